"""The γ sweep tab: what to measure, Run and Stop, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError
from specdemo.runs.store import Load, PairStore
from specdemo.settings import MAX_GAMMA
from specdemo.ui.event_options import QUIET
from specdemo.ui.jobs.limits import check_prompts, check_runs, limits
from specdemo.ui.jobs.measuring import measure_states
from specdemo.ui.jobs.queue import Turns
from specdemo.ui.jobs.stops import Stop, Stops
from specdemo.ui.jobs.sweep import SERVERS_OWN, Plan
from specdemo.ui.panel.controls import Controls, split
from specdemo.ui.panel.pair_controls import pair_request
from specdemo.ui.panel.panel_drafting import drafting, say_what_drafts
from specdemo.ui.panel.prompt_source import (
    PANEL,
    SOURCE_INPUTS,
    PromptSource,
    chosen_prompts,
    create_prompt_source,
)
from specdemo.ui.panel.server_choice import server_of
from specdemo.ui.tabs.measured import measured_updates
from specdemo.ui.tabs.sweep_results import Results, create_results, saved, shown
from specdemo.ui.tabs.tab_parts import Job, bounded, connect

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
        """What :func:`plan` reads, in its order."""
        return [self.first, self.last, self.repeats, self.tokens, *self.prompts.inputs()]


SWEEP_INPUTS = 4 + SOURCE_INPUTS


def plan(
    panel: Sequence[Any],
    first: float | None,
    last: float | None,
    repeats: float | None,
    tokens: float | None,
    *source: Any,
) -> Plan:
    """What to measure, from the values of the panel (as :func:`split` takes them) and of the tab.

    Raises:
        SpecDemoError: a value is missing or out of range, there is no prompt, or no lane drafts.
    """
    prompt = split(panel)[1]
    low, high = bounded("γ from", first, MAX_GAMMA), bounded("γ to", last, MAX_GAMMA)
    if low > high:
        raise SettingsError("γ", f"goes from {low} to {high}; put the smaller one first.")
    settings = replace(
        drafting(panel),
        adaptive_gamma=False,
        max_new_tokens=bounded("tokens a run", tokens, limits().tokens, least=2),
    )
    prompts = chosen_prompts(prompt, *source)
    gammas = range(low, high + 1) if settings.server is None else SERVERS_OWN
    wanted = Plan(prompts, settings, gammas, bounded("repeats", repeats, MOST_REPEATS))
    check_prompts(prompts)
    check_runs((len(wanted.gammas) + 1) * len(prompts) * wanted.repeats)
    return wanted


def create_sweep_tab(controls: Controls, store: PairStore, line: Turns, away: Turns) -> Stops:
    """Build the tab in the current layout; returns the visitors' stop signals.

    Sweeps take their turns in ``line``, those on a server in ``away``.
    """
    with gr.Column(elem_id="sweep", elem_classes="measuring"):
        lead = gr.HTML(LEAD, padding=False, elem_classes="measuring-lead")
        choices = _create_choices()
        drafts = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="sweep-drafts")
        with gr.Row(elem_classes="measuring-actions"):
            run = gr.Button("Run sweep", variant="primary", elem_id="sweep-run", min_width=130, scale=0)
            stop = gr.Button("Stop", interactive=False, elem_id="sweep-stop", min_width=84, scale=0)
        status = gr.HTML(value=None, padding=False, elem_id="sweep-status")
        results = create_results()
    say_what_drafts(controls, drafts, servers=True)
    pair = controls.pair.pair
    pair.change(_on_server, pair, [lead, choices.first, choices.last], **QUIET)
    return _connect(controls, store, (line, away), choices, (run, stop), status, results)


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


def _connect(
    controls: Controls,
    store: PairStore,
    lines: tuple[Turns, Turns],
    choices: SweepControls,
    buttons: tuple[gr.Button, gr.Button],
    status: gr.HTML,
    results: Results,
) -> Stops:
    def begin(*values: Any) -> Job:
        panel, own = values[:-SWEEP_INPUTS], values[-SWEEP_INPUTS:]
        wanted = plan(panel, *own)

        def measure(thread: Executor, load: Load | None, signal: Stop) -> Iterator[dict[Any, Any]]:
            states = measure_states(thread, load, wanted.measurement, signal)
            yield from measured_updates(
                states, status, results.area, partial(shown, results), partial(saved, results)
            )

        pair = pair_request(*split(panel)[0]) if wanted.settings.server is None else None
        return pair, measure

    run, stop = buttons
    inputs = [*controls.inputs(), *choices.inputs()]
    return connect([(run, begin)], stop, status, inputs, results.outputs(), store, *lines)
