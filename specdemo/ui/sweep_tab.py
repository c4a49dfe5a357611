"""The γ sweep tab: what to measure, Run and Stop, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

from specdemo.errors import PromptError, SettingsError, SpecDemoError
from specdemo.models.store import PairStore
from specdemo.prompts import by_domain, prompt_lines, read_prompts
from specdemo.settings import MAX_GAMMA, Settings
from specdemo.ui.controls import LONGEST_OUTPUT, SHARED_INPUTS, Controls, race_settings, split
from specdemo.ui.job import BUSY
from specdemo.ui.lane_controls import ACCEPTANCE_LABELS, LANE_INPUTS, METHODS, whole
from specdemo.ui.pair_controls import pair_request
from specdemo.ui.quiet import QUIET, UNSEEN
from specdemo.ui.stops import Stops
from specdemo.ui.sweep_job import Plan, SweepState, sweep_states
from specdemo.ui.sweep_results import Results, create_results, saved, shown

PANEL, DOMAINS, OWN = "panel", "domains", "own"
MOST_REPEATS = 20
MOST_RUNS = 3000
FIGURE_SECONDS = 3.0
"""Figures are rebuilt whole, so seldom enough not to flicker."""
NO_LANE_DRAFTS = "no lane drafts in a way whose γ could be measured; set one to “Speculative: …” in the panel."


@dataclass(frozen=True, slots=True)
class SweepControls:
    """What a person chooses for a sweep besides the panel."""

    first: gr.Number
    last: gr.Number
    repeats: gr.Number
    tokens: gr.Number
    source: gr.Radio
    domains: gr.CheckboxGroup
    own: gr.Textbox
    file: gr.File

    def inputs(self) -> list[Any]:
        """What :func:`plan` reads, in its order."""
        return [getattr(self, f.name) for f in fields(self)]


SWEEP_INPUTS = len(fields(SweepControls))


def plan(
    panel: Sequence[Any],
    first: float | None,
    last: float | None,
    repeats: float | None,
    tokens: float | None,
    source: str,
    domains: list[str],
    own: str | None,
    file: str | None,
) -> Plan:
    """What to measure, from the values of the panel (as :func:`split` takes them) and of the tab.

    Raises:
        SpecDemoError: a value is missing or out of range, there is no prompt, or no lane drafts.
    """
    _, prompt, lanes = split(panel)
    low, high = _bounded("γ from", first, MAX_GAMMA), _bounded("γ to", last, MAX_GAMMA)
    if low > high:
        raise SettingsError("γ", f"goes from {low} to {high}; put the smaller one first.")
    settings = replace(_drafting(lanes), max_new_tokens=_bounded("tokens a run", tokens, LONGEST_OUTPUT))
    prompts = _prompts(source, prompt, domains, own, file)
    wanted = Plan(prompts, settings, range(low, high + 1), _bounded("repeats", repeats, MOST_REPEATS))
    runs = (len(wanted.gammas) + 1) * len(prompts) * wanted.repeats
    if runs > MOST_RUNS:
        raise SpecDemoError(
            f"These are {runs:,} runs, and {MOST_RUNS:,} are the most; take fewer prompts or repeats."
        )
    return wanted


def create_sweep_tab(controls: Controls, store: PairStore) -> Stops:
    """Build the tab in the current layout; returns the visitors' stop signals."""
    with gr.Column(elem_id="sweep"):
        gr.HTML(
            "<p>How many tokens should be drafted in a round? Every γ is measured against plain decoding.</p>",
            padding=False,
            elem_classes="sweep-lead",
        )
        choices = _create_choices()
        drafts = gr.HTML(value=None, padding=False, elem_classes="sweep-note", elem_id="sweep-drafts")
        with gr.Row(elem_classes="sweep-actions"):
            run = gr.Button("Run sweep", variant="primary", elem_id="sweep-run", min_width=130, scale=0)
            stop = gr.Button("Stop", interactive=False, elem_id="sweep-stop", min_width=84, scale=0)
        status = gr.HTML(value=None, padding=False, elem_id="sweep-status")
        results = create_results()
    _say_what_drafts(controls, drafts)
    return _connect(controls, store, choices, (run, stop), status, results)


def _create_choices() -> SweepControls:
    with gr.Row(elem_classes="sweep-numbers"):
        # No limits here: Gradio would end the event with an error of its own instead of saying what to do.
        small: dict[str, Any] = {"precision": 0, "min_width": 90}
        first = gr.Number(2, label="γ from", elem_id="sweep-from", **small)
        last = gr.Number(8, label="γ to", elem_id="sweep-to", **small)
        repeats = gr.Number(3, label="Repeats", elem_id="sweep-repeats", **small)
        tokens = gr.Number(64, label="Tokens a run", elem_id="sweep-tokens", **small)
    source = gr.Radio(
        [("The panel's prompt", PANEL), ("Builtin domains", DOMAINS), ("My own", OWN)],
        value=PANEL,
        label="Prompts",
        elem_id="sweep-source",
    )
    names = list(by_domain())
    domains = gr.CheckboxGroup(names, value=names, label="Domains", visible=False, elem_id="sweep-domains")
    with gr.Row(visible=False, elem_classes="sweep-own") as mine:
        own = gr.Textbox(
            label="One prompt a line, here or in a .txt file; .jsonl with “prompt” or “text” in each line",
            lines=5,
            max_lines=12,
            scale=2,
            elem_id="sweep-own",
        )
        file = gr.File(
            label="File, up to 1 MB",
            file_types=[".txt", ".jsonl"],
            height=150,
            elem_id="sweep-file",
        )
    source.change(
        lambda chosen: [gr.update(visible=chosen == DOMAINS), gr.update(visible=chosen == OWN)],
        source,
        [domains, mine],
        **QUIET,
    )
    return SweepControls(first, last, repeats, tokens, source, domains, own, file)


def _say_what_drafts(controls: Controls, note: gr.HTML) -> None:
    """Which of the panel's lanes the sweep drafts like."""
    inputs = controls.inputs()

    def say(*values: Any) -> str:
        _, _, lanes = split(values)
        methods = lanes[SHARED_INPUTS::LANE_INPUTS]
        number = next((n for n, m in enumerate(methods, start=1) if _drafts(m)), None)
        if number is None:
            return f"<p>{escape(NO_LANE_DRAFTS.capitalize())}</p>"
        try:
            settings = _drafting(lanes)
        except SpecDemoError as error:
            return f"<p>{escape(str(error))}</p>"
        how = METHODS[methods[number - 1]][0].removeprefix("Speculative: ")
        rule = ACCEPTANCE_LABELS[settings.acceptance]
        warmth = "greedy" if settings.greedy else f"temperature {settings.temperature:g}"
        return f"<p>Drafts as lane {number} of the panel does: {how}, {rule}, {warmth}.</p>"

    chosen = [c for lane in controls.lanes for c in (lane.method, lane.acceptance)]
    gr.on([c.change for c in (*chosen, controls.temperature)], say, inputs, note, **QUIET)
    note.value = say(*(c.value for c in inputs))


def _connect(
    controls: Controls,
    store: PairStore,
    choices: SweepControls,
    buttons: tuple[gr.Button, gr.Button],
    status: gr.HTML,
    results: Results,
) -> Stops:
    stops = Stops()
    run, stop = buttons

    def prepare(request: gr.Request) -> list[Any]:
        stops.arm(request.session_hash or "")
        return [_status(SweepState("loading", "Waiting for a turn…")), gr.update(visible=False), *_busy(True)]

    def execute(request: gr.Request, *values: Any) -> Iterator[dict[Any, Any]]:
        signal = stops.signal(request.session_hash or "")
        panel, own = values[:-SWEEP_INPUTS], values[-SWEEP_INPUTS:]
        try:
            wanted = plan(panel, *own)
            with store.using(pair_request(*split(panel)[0])) as load:
                yield from _updates(sweep_states(store.thread, load, wanted, signal), status, results)
        except SpecDemoError as error:
            yield {status: _status(SweepState("error", str(error)))}

    def end(request: gr.Request) -> None:
        stops.stop(request.session_hash or "")

    refused = _status(SweepState("error", BUSY))
    prepared = run.click(prepare, None, [status, results.area, *buttons], trigger_mode="once", **QUIET)
    swept = prepared.then(
        execute,
        [*controls.inputs(), *choices.inputs()],
        [status, *results.outputs()],
        concurrency_id="sweep",
        concurrency_limit=2,
        **UNSEEN,
    )
    swept.failure(lambda: refused, None, status, **QUIET)
    swept.then(lambda: _busy(False), None, list(buttons), **QUIET)
    stop.click(end, None, None, **QUIET)
    return stops


def _updates(states: Iterator[SweepState], status: gr.HTML, results: Results) -> Iterator[dict[Any, Any]]:
    """Progress at once, figures now and then, files at the end."""
    drawn = time.monotonic()
    for state in states:
        update: dict[Any, Any] = {status: _status(state)}
        ended = state.phase not in ("loading", "running")
        measured = state.report is not None and any(row.speedup for row in state.report.rows)
        if measured and (ended or time.monotonic() - drawn > FIGURE_SECONDS):
            update |= shown(results, state.report)
            with TemporaryDirectory(prefix="specdemo-") as folder:
                yield update | saved(results, state.report, Path(folder))
            drawn = time.monotonic()
        else:
            yield update


def _prompts(source: str, prompt: str, domains: list[str], own: str | None, file: str | None) -> list[str]:
    if source == PANEL:
        return [prompt]
    if source == DOMAINS:
        found = [e.prompt for name in domains or [] for e in by_domain().get(name, [])]
        if not found:
            raise PromptError("no domain is chosen; tick at least one.")
        return found
    typed = prompt_lines(own) if (own or "").strip() else []
    uploaded = read_prompts(Path(file)) if file else []
    if not typed and not uploaded:
        raise PromptError("there is none; write one a line, or choose a file.")
    return [*typed, *uploaded]


def _drafting(lanes: Sequence[Any]) -> Settings:
    """The settings of the first lane that drafts with our own loop; its γ is the sweep's to choose."""
    found = next((s for s in race_settings(*lanes) if s.strategy == "speculative"), None)
    if found is None:
        raise SettingsError("lanes", NO_LANE_DRAFTS)
    return replace(found, adaptive_gamma=False)


def _drafts(method: str) -> bool:
    return method in METHODS and METHODS[method][1]["strategy"] == "speculative"


def _bounded(field: str, value: float | None, most: int) -> int:
    number = whole(field, value)
    if not isinstance(number, int) or not 1 <= number <= most:
        raise SettingsError(field, f"must be a whole number from 1 to {most:,}, not {number!r}.")
    return number


def _status(state: SweepState) -> str:
    """The line under the buttons, with a bar while it moves."""
    moving = state.phase in ("loading", "running")
    bar = f'<span class="bar"><b style="width:{100 * state.fraction:.0f}%"></b></span>' if moving else ""
    return (
        f'<div class="sweep-state" data-phase="{state.phase}" role="status">'
        f"<p>{escape(state.message)}</p>{bar}</div>"
    )


def _busy(running: bool) -> list[Any]:
    """Run and Stop, of which one can be pressed."""
    return [gr.update(interactive=not running), gr.update(interactive=running)]
