"""The γ sweep tab: what to measure, Run and Stop, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError
from specdemo.settings import MAX_GAMMA
from specdemo.ui.event_options import QUIET
from specdemo.ui.jobs.job import LaneRequest
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.measuring import SERVERS_OWN, SweepJob, checked_sweep
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.jobs.stops import StopSignals
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.panel_drafting import say_what_drafts
from specdemo.ui.panel.prompt_source import (
    PANEL,
    SOURCE_INPUTS,
    PromptSource,
    chosen_prompts,
    create_prompt_source,
)
from specdemo.ui.panel.request import panel_request
from specdemo.ui.panel.server_choice import server_of
from specdemo.ui.tabs.measured import show_measurement
from specdemo.ui.tabs.sweep_results import create_sweep_results, show_sweep
from specdemo.ui.tabs.tab_parts import Start, bounded, connect

MOST_REPEATS = 20
LEAD = "<p>How many tokens should be drafted in a round? Every γ is measured against plain decoding.</p>"
SERVER_LEAD = "<p>Does this server's speculation pay? It is measured as it was started.</p>"


@dataclass(frozen=True, slots=True)
class SweepControls:
    """What a person chooses for a sweep besides the panel."""

    first: gr.Number
    last: gr.Number
    repeats: gr.Number
    tokens: gr.Number
    prompts: PromptSource

    def inputs(self) -> list[Any]:
        """What :func:`sweep_job` reads, in its order."""
        return [self.first, self.last, self.repeats, self.tokens, *self.prompts.inputs()]


SWEEP_INPUTS = 4 + SOURCE_INPUTS


def sweep_job(
    panel: Sequence[Any],
    first: float | None,
    last: float | None,
    repeats: float | None,
    tokens: float | None,
    *source: Any,
) -> SweepJob:
    """What to measure, from the values of the panel (``Controls.inputs()``) and of the tab.

    Raises:
        SpecDemoError: a value is missing or out of range, there is no prompt, or no lane drafts.
    """
    low, high = bounded("γ from", first, MAX_GAMMA), bounded("γ to", last, MAX_GAMMA)
    if low > high:
        raise SettingsError("γ", f"goes from {low} to {high}; put the smaller one first.")
    request = panel_request(panel)
    settings = replace(
        request.drafting_lane().settings,
        adaptive_gamma=False,
        max_new_tokens=bounded("tokens a run", tokens, limits().tokens, least=2),
    )
    prompts, here = chosen_prompts(request.prompt, *source), settings.server is None
    gammas = range(low, high + 1) if here else SERVERS_OWN
    lane = LaneRequest(settings, request.pair if here else None)
    return checked_sweep(SweepJob(prompts, lane, bounded("repeats", repeats, MOST_REPEATS), gammas))


def create_sweep_tab(controls: Controls, runner: JobRunner) -> StopSignals:
    """Build the tab in the current layout; returns the visitors' stop signals."""
    with gr.Column(elem_id="sweep", elem_classes="measuring"):
        lead = gr.HTML(LEAD, padding=False, elem_classes="measuring-lead")
        choices = _create_choices()
        drafts = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="sweep-drafts")
        with gr.Row(elem_classes="measuring-actions"):
            run = gr.Button("Run sweep", variant="primary", elem_id="sweep-run", min_width=130, scale=0)
            stop = gr.Button("Stop", interactive=False, elem_id="sweep-stop", min_width=84, scale=0)
        status = gr.HTML(value=None, padding=False, elem_id="sweep-status")
        results = create_sweep_results()
    say_what_drafts(controls, drafts, servers=True)
    pair = controls.pair.pair
    pair.change(_on_server, pair, [lead, choices.first, choices.last], **QUIET)

    def job(*values: Any) -> SweepJob:
        return sweep_job(values[:-SWEEP_INPUTS], *values[-SWEEP_INPUTS:])

    start = Start(run, job, show_measurement(status, results, show_sweep))
    inputs = [*controls.inputs(), *choices.inputs()]
    signals, _ = connect(runner, [start], stop, inputs, [status, *results.outputs()])
    return signals


def _on_server(pair: str) -> list[Any]:
    """The question, and whether there is a range of γ: a server's is its own."""
    here = server_of(pair) is None
    return [LEAD if here else SERVER_LEAD, *[gr.update(visible=here)] * 2]


def _create_choices() -> SweepControls:
    with gr.Row(elem_classes="measuring-numbers"):
        # No limits here: Gradio would end the event with an error of its own instead of saying what to do.
        small: dict[str, Any] = {"min_width": 90}
        first = gr.Number(2, label="γ from", elem_id="sweep-from", **small)
        last = gr.Number(8, label="γ to", elem_id="sweep-to", **small)
        repeats = gr.Number(3, label="Repeats", elem_id="sweep-repeats", **small)
        tokens = gr.Number(64, label="Tokens a run", elem_id="sweep-tokens", **small)
    return SweepControls(first, last, repeats, tokens, create_prompt_source("sweep", PANEL))
