"""The batch tab: several prompts decoded together, plain and then drafted, and what their number changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from specdemo.drafters import DRAFTERS, offered_with
from specdemo.errors import PairError
from specdemo.ui.jobs.batch import BatchJob
from specdemo.ui.jobs.job import JobState, LaneRequest
from specdemo.ui.jobs.limits import check_prompts, check_runs
from specdemo.ui.jobs.measuring import SizesJob
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.prompt_source import (
    SOURCE_INPUTS,
    PromptSource,
    chosen_prompts,
    create_prompt_source,
)
from specdemo.ui.state.pairs import parts_of
from specdemo.ui.state.request import PanelLane, PanelRequest
from specdemo.ui.state.server_choice import needs_models
from specdemo.ui.state.state import MOST_REPEATS, MOST_ROWS
from specdemo.ui.tabs.batch_results import create_size_results, show_sizes
from specdemo.ui.tabs.examples import example_sizes, show_example
from specdemo.ui.tabs.measured import show_measurement
from specdemo.ui.tabs.plans import Announcement, Plan, drafts_as
from specdemo.ui.tabs.tab_parts import Start, Updates, bounded, check_length, connect, state_line
from specdemo.view.progress_text import counted

ROW_COST = 0.15
"""What one more row adds to a step of a batch, in steps of one row; roughly, for the time that is announced."""
CONNECT = """
const show = () => window.SpecDemoBatch.mount(element.querySelector(".batch-root")).update(props.value);
watch("value", show);
show();
"""


@dataclass(frozen=True, slots=True)
class BatchControls:
    """What a person chooses for a batch besides the panel."""

    rows: gr.Number
    repeats: gr.Number
    prompts: PromptSource

    def inputs(self) -> list[Any]:
        """What the plans read, in their order."""
        return [self.rows, self.repeats, *self.prompts.inputs()]


OWN_INPUTS = 2 + SOURCE_INPUTS


def batch_job(request: PanelRequest, rows: float | None, _: Any, *source: Any) -> BatchJob:
    """One batch, of the panel's request and the values of the tab.

    Raises:
        SpecDemoError: a value is missing or out of range, there is no prompt, no lane drafts, or a server is
            chosen.
    """
    lane, prompts = _drafted(request, source)
    return BatchJob(lane.pair, prompts, bounded("rows", rows, MOST_ROWS), lane.settings)


def sizes_job(request: PanelRequest, rows: float | None, repeats: float | None, *source: Any) -> SizesJob:
    """Batches of 1, 2, 4, … rows up to those asked for. Raises what :func:`batch_job` does."""
    lane, prompts = _drafted(request, source)
    most = bounded("rows", rows, MOST_ROWS)
    sizes = tuple(sorted({2**i for i in range(most.bit_length())} | {most}))
    times = bounded("repeats", repeats, MOST_REPEATS)
    check_runs(2 * times * most * len(sizes))  # every size decodes as many rows, plainly and drafted
    return SizesJob(prompts, lane, times, sizes)


def _drafted(request: PanelRequest, source: Sequence[Any]) -> tuple[LaneRequest, list[str]]:
    pair = request.pair  # what is wrong with its name comes first
    lane = LaneRequest(_lane(request).settings, pair)
    check_length(lane.settings)
    prompts = chosen_prompts(request.prompt, *source, mixed=True)
    check_prompts(prompts)
    return lane, prompts


def _lane(request: PanelRequest) -> PanelLane:
    """The lane whose settings are taken; one that a batch does, in place of a drafter that has none."""
    lane = request.drafting_lane()
    if lane.settings.server is not None or DRAFTERS[lane.settings.drafter].batches:
        return lane
    choice = request.choice
    parts = parts_of(choice.pair, choice.target, choice.draft)
    able = next(spec for spec in offered_with(parts) if spec.batches)
    return replace(lane, settings=replace(lane.settings, drafter=able.name))


def sizes_plan(request: PanelRequest, *own: Any) -> Plan:
    """What a measurement of sizes would run. Raises what :func:`sizes_job` does."""
    if request.server is not None:
        raise PairError(needs_models(request.server))
    job = sizes_job(request, *own)
    lane, asked = _lane(request), request.drafting_lane().settings.drafter
    drafts = drafts_as(lane, None if asked == lane.settings.drafter else asked)
    batches = {size: job.repeats * -(-max(job.sizes) // size) for size in job.sizes}
    length = lane.settings.max_new_tokens
    sizes = ", ".join(map(str, job.sizes))
    text = (
        f"{drafts} {counted(2 * sum(batches.values()), 'batch', 'batches')} of {sizes} rows, "
        f"plain and drafted, each row of at most {counted(length, 'token')}."
    )
    tokens = length * sum(number * (1 + (size - 1) * ROW_COST) for size, number in batches.items())
    return Plan(text, job.lane.pair.name, tokens, tokens)


def create_batch_tab(controls: Controls, runner: JobRunner) -> Announcement:
    """Build the tab in the current layout; returns what it says before it starts."""
    with gr.Column(elem_id="batch", elem_classes="measuring"):
        gr.HTML(
            "<p>Several prompts decoded together, each keeping its own number of tokens a round: "
            "does drafting still pay?</p>",
            padding=False,
            elem_classes="measuring-lead",
        )
        choices = _create_choices(controls)
        note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="batch-drafts")
        run = gr.Button("Watch one batch, row by row", size="sm", elem_id="batch-run", min_width=130, scale=0)
        status = gr.HTML(value=None, padding=False, elem_id="batch-status")
        view = gr.HTML(
            value=None,
            html_template='<div class="batch-root"></div>',
            js_on_load=CONNECT,
            apply_default_css=False,
            padding=False,
            elem_id="batch-view",
        )
        results = create_size_results()
    show_example(results, show_sizes(results, example_sizes()))

    def show_batch(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            update: Updates = {status: state_line(state)}
            if state.result is not None:  # not before: an error should not take away what was there
                update |= {view: {**state.result, "phase": state.phase}, results.area: gr.update(visible=False)}
            yield update

    measured = show_measurement(status, results, show_sizes)

    def show_measured(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        # One result at a time: two large figures of different runs would be read together.
        for update in measured(states, session):
            yield {**update, view: None} if results.area in update else update

    def own(values: Sequence[Any]) -> tuple[Any, ...]:
        return controls.request(values[:-OWN_INPUTS]), *values[-OWN_INPUTS:]

    starts = [
        Start(run, lambda *values: batch_job(*own(values)), show_batch),
        Start(controls.row.starts["batch"], lambda *values: sizes_job(*own(values)), show_measured),
    ]
    inputs = [*controls.inputs(), *choices.inputs()]
    outputs = [status, view, *results.outputs()]
    connect(runner, "batch", starts, controls.row, inputs, outputs, models=controls["pair"])
    return Announcement(note, choices.inputs(), sizes_plan)


def _create_choices(controls: Controls) -> BatchControls:
    with gr.Row(elem_classes="measuring-numbers"):
        # No limits here: Gradio would end the event with an error of its own instead of saying what to do.
        rows, repeats = (controls.build(f"batch.{name}", gr.Number, min_width=90) for name in ("rows", "repeats"))
    return BatchControls(rows, repeats, create_prompt_source(controls, "batch"))
