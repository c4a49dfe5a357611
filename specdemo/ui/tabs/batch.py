"""The batch tab: several prompts decoded together, plain and then drafted, and what their number changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from specdemo.runs.store import Load, PairStore
from specdemo.settings import Settings
from specdemo.ui.jobs.batch import BatchPlan, batch_views
from specdemo.ui.jobs.batch_sizes import SizesPlan
from specdemo.ui.jobs.limits import check_prompts, check_runs, limits
from specdemo.ui.jobs.measuring import measure_states
from specdemo.ui.jobs.queue import Turns
from specdemo.ui.jobs.stops import Stop, Stops
from specdemo.ui.panel.controls import Controls, split
from specdemo.ui.panel.pair_controls import pair_request
from specdemo.ui.panel.panel_drafting import drafting, say_what_drafts
from specdemo.ui.panel.prompt_source import (
    DOMAINS,
    SOURCE_INPUTS,
    PromptSource,
    chosen_prompts,
    create_prompt_source,
)
from specdemo.ui.tabs.batch_results import SizeResults, create_size_results, saved_sizes, shown_sizes
from specdemo.ui.tabs.measured import measured_updates
from specdemo.ui.tabs.tab_parts import Job, bounded, connect, state_line

MOST_ROWS = 16
MOST_REPEATS = 20
CONNECT = """
const show = () => window.SpecDemoBatch.mount(element.querySelector(".batch-root")).update(props.value);
watch("value", show);
show();
"""


@dataclass(frozen=True, slots=True)
class BatchControls:
    """What a person chooses for a batch besides the panel."""

    rows: gr.Number
    tokens: gr.Number
    repeats: gr.Number
    prompts: PromptSource

    def inputs(self) -> list[Any]:
        """What the plans read, in their order."""
        return [self.rows, self.tokens, self.repeats, *self.prompts.inputs()]


OWN_INPUTS = 3 + SOURCE_INPUTS


def batch_plan(panel: Sequence[Any], rows: float | None, tokens: float | None, _: Any, *source: Any) -> BatchPlan:
    """One batch, from the values of the panel (as :func:`split` takes them) and of the tab.

    Raises:
        SpecDemoError: a value is missing or out of range, there is no prompt, or no lane drafts.
    """
    count = bounded("rows", rows, MOST_ROWS)
    settings, prompts = _drafted(panel, tokens, source)
    return BatchPlan(prompts, count, settings)


def sizes_plan(
    panel: Sequence[Any], rows: float | None, tokens: float | None, repeats: float | None, *source: Any
) -> SizesPlan:
    """Batches of 1, 2, 4, … rows up to those asked for. Raises what :func:`batch_plan` does."""
    most = bounded("rows", rows, MOST_ROWS)
    settings, prompts = _drafted(panel, tokens, source)
    sizes = tuple(sorted({2**i for i in range(most.bit_length())} | {most}))
    times = bounded("repeats", repeats, MOST_REPEATS)
    check_runs(2 * times * most * len(sizes))  # every size decodes as many rows, plainly and drafted
    return SizesPlan(prompts, settings, sizes, times)


def _drafted(panel: Sequence[Any], tokens: float | None, source: Sequence[Any]) -> tuple[Settings, list[str]]:
    prompt = split(panel)[1]
    # Speeds begin after the first token, which is the prefill's.
    length = bounded("tokens a row", tokens, limits().tokens, least=2)
    prompts = chosen_prompts(prompt, *source, mixed=True)
    check_prompts(prompts)
    return replace(drafting(panel), max_new_tokens=length), prompts


def create_batch_tab(controls: Controls, store: PairStore, line: Turns) -> Stops:
    """Build the tab in the current layout; returns the visitors' stop signals."""
    with gr.Column(elem_id="batch", elem_classes="measuring"):
        gr.HTML(
            "<p>Several prompts decoded together, each keeping its own number of tokens a round: "
            "does drafting still pay?</p>",
            padding=False,
            elem_classes="measuring-lead",
        )
        choices = _create_choices()
        note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="batch-drafts")
        with gr.Row(elem_classes="measuring-actions"):
            run = gr.Button("Run batch", variant="primary", elem_id="batch-run", min_width=130, scale=0)
            sizes = gr.Button("Measure sizes", elem_id="batch-measure", min_width=150, scale=0)
            stop = gr.Button("Stop", interactive=False, elem_id="batch-stop", min_width=84, scale=0)
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
    say_what_drafts(controls, note, without=("early_exit",))
    return _connect(controls, store, line, choices, (run, sizes, stop), status, view, results)


def _create_choices() -> BatchControls:
    with gr.Row(elem_classes="measuring-numbers"):
        # No limits here: Gradio would end the event with an error of its own instead of saying what to do.
        small: dict[str, Any] = {"min_width": 90}
        rows = gr.Number(8, label=f"Rows, up to {MOST_ROWS}", elem_id="batch-rows", **small)
        tokens = gr.Number(48, label="Tokens a row", elem_id="batch-tokens", **small)
        repeats = gr.Number(3, label="Repeats, for sizes", elem_id="batch-repeats", **small)
    return BatchControls(rows, tokens, repeats, create_prompt_source("batch", DOMAINS))


def _connect(
    controls: Controls,
    store: PairStore,
    line: Turns,
    choices: BatchControls,
    buttons: tuple[gr.Button, gr.Button, gr.Button],
    status: gr.HTML,
    view: gr.HTML,
    results: SizeResults,
) -> Stops:
    # One result at a time: two large figures of different runs would be read together.
    only_view, only_sizes = {results.area: gr.update(visible=False)}, {view: None}

    def decode(*values: Any) -> Job:
        panel, own = values[:-OWN_INPUTS], values[-OWN_INPUTS:]
        pair = pair_request(*split(panel)[0])
        wanted = batch_plan(panel, *own)

        def work(thread: Executor, load: Load, signal: Stop) -> Iterator[dict[Any, Any]]:
            with closing(batch_views(thread, load, wanted, signal)) as views:
                for state in views:
                    update = {status: state_line(state.phase, state.message, state.fraction)}
                    if state.rounds:  # not before: an error should not take away what was there
                        update |= {view: state.value(), **only_view}
                    yield update

        return pair, work

    def measure(*values: Any) -> Job:
        panel, own = values[:-OWN_INPUTS], values[-OWN_INPUTS:]
        pair = pair_request(*split(panel)[0])
        wanted = sizes_plan(panel, *own)

        def work(thread: Executor, load: Load, signal: Stop) -> Iterator[dict[Any, Any]]:
            states = measure_states(thread, load, wanted.measurement, signal)
            updates = measured_updates(
                states, status, results.area, partial(shown_sizes, results), partial(saved_sizes, results)
            )
            for update in updates:
                yield update | only_sizes if results.area in update else update

        return pair, work

    run, sizes, stop = buttons
    inputs, outputs = [*controls.inputs(), *choices.inputs()], [view, *results.outputs()]
    return connect([(run, decode), (sizes, measure)], stop, status, inputs, outputs, store, line)
