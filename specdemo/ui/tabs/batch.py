"""The batch tab: several prompts decoded together, plain and then drafted, and what their number changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import gradio as gr

from specdemo.analysis.batch_sizes import LoadReport, SizeReport
from specdemo.drafters import DRAFTERS, offered_with
from specdemo.errors import PairError
from specdemo.settings import LLAMA_CPP
from specdemo.ui.jobs.batch import BatchJob
from specdemo.ui.jobs.job import JobState, LaneRequest
from specdemo.ui.jobs.limits import check_prompts
from specdemo.ui.jobs.measuring import MeasureJob
from specdemo.ui.jobs.queue import JobRunner
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.methods import needs_models
from specdemo.ui.state.request import PanelRequest, parts_of
from specdemo.ui.state.state import MOST_REPEATS, MOST_ROWS
from specdemo.ui.tabs.examples import show_example
from specdemo.ui.tabs.results import create_results, show_measurement
from specdemo.ui.tabs.tab_parts import (
    Start,
    Updates,
    bounded,
    check_length,
    chosen_prompts,
    connect,
    create_prompt_source,
    create_stage,
    state_line,
)


def batch_job(request: PanelRequest, file: str | None = None) -> BatchJob:
    """One batch, with prompts perhaps from a ``file``; raises SpecDemoError where it cannot run."""
    if request.server is not None:
        raise PairError(needs_models(request.server))
    return _batch(request, file)


def _batch(request: PanelRequest, file: str | None) -> BatchJob:
    pair = None if request.server else request.pair  # what is wrong with its name comes first
    state, settings = request.state, request.drafting_lane().settings
    here = pair is not None and not pair.is_gguf and settings.engine != LLAMA_CPP
    if here and not DRAFTERS[settings.drafter].batches:
        parts = parts_of(state.pair, state.target, state.draft)
        able = next(spec for spec in offered_with(parts) if spec.batches)
        settings = replace(settings, drafter=able.name)
    check_length(settings)
    prompts = [prompt for prompt, _ in chosen_prompts(request.prompt, state.batch, file, mixed=True)]
    check_prompts(prompts)
    return BatchJob(prompts, LaneRequest(settings, pair), bounded("rows", state.batch.rows, MOST_ROWS))


def sizes_job(request: PanelRequest, file: str | None = None) -> MeasureJob:
    """Batches of 1, 2, 4, … rows up to those asked for, of a server so many users. Raises as :func:`batch_job`."""
    batch, times = _batch(request, file), bounded("repeats", request.state.batch.repeats, MOST_REPEATS)
    sizes = tuple(sorted({2**i for i in range(batch.rows.bit_length())} | {batch.rows}))
    return MeasureJob(batch.prompts, batch.lane, times, sizes=sizes, kind="batch").checked()


def create_batch_tab(controls: Controls, runner: JobRunner) -> Start:
    """Build the tab in the current layout; returns what its main button starts."""
    with gr.Column(elem_id="batch", elem_classes="measuring"):
        gr.HTML(
            "<p>Several prompts decoded together, each keeping its own number of tokens a round; or several "
            "users of a server at a time: does drafting still pay?</p>",
            padding=False,
            elem_classes="measuring-lead",
        )
        with gr.Row(elem_classes="measuring-numbers"):
            # No limits here: Gradio would end the event with an error of its own instead of saying what to do.
            for name in ("rows", "repeats"):
                controls.build(f"batch.{name}", gr.Number, min_width=90)
        file = create_prompt_source(controls, "batch")
        note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="batch-drafts")
        run = gr.Button("Watch one batch, row by row", size="sm", elem_id="batch-run", min_width=130, scale=0)
        status = gr.HTML(value=None, padding=False, elem_id="batch-status")
        view, streams = create_stage("batch-view", None)
        results, load = create_results(SizeReport), create_results(LoadReport)
    show_example(results)

    def show_batch(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            update: Updates = {status: state_line(state)}
            if state.result is not None:  # not before: an error should not take away what was there
                update |= {view: streams.offer({**state.result, "phase": state.phase})}
                update |= {each.area: gr.update(visible=False) for each in (results, load)}
            yield update

    measured = show_measurement(status, [results, load])

    def show_measured(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        # One result at a time: two large figures of different runs would be read together.
        for update in measured(states, session):
            yield {**update, view: None} if results.area in update or load.area in update else update

    measure = controls.starts["batch"]
    sizes = Start(measure, sizes_job, show_measured, [file], note=note)
    starts = [Start(run, batch_job, show_batch, [file]), sizes]
    connect(runner, controls, "batch", starts, [status, view, *results.outputs(), *load.outputs()])
    return sizes
