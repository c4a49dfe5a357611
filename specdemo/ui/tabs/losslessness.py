"""The losslessness tab: what to check, Check and Stop, and the view they feed."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import gradio as gr

from specdemo.drafters import DEFAULT_DRAFTER, DRAFTERS, without
from specdemo.losslessness.certify import RUNS, TOKENS
from specdemo.settings import ACCEPTANCE_RULES, MAX_GAMMA, Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.jobs.job import JobState
from specdemo.ui.jobs.limits import check_lanes, check_prompts, check_runs
from specdemo.ui.jobs.losslessness import CheckJob
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.jobs.stops import StopSignals
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.lane_controls import whole
from specdemo.ui.panel.pair_controls import PAIR_INPUTS, has_draft, pair_request
from specdemo.ui.panel.server_choice import needs_models, server_of
from specdemo.ui.tabs.tab_parts import Start, Updates, connect
from specdemo.view.losslessness_view import render

DISTRIBUTION, GREEDY = "distribution", "greedy"
INTRODUCTION = {
    DISTRIBUTION: "Many short runs of it and of plain decoding continue the panel’s prompt, until a test can tell "
    "the two apart or gives up.",
    GREEDY: "One run continues the panel’s prompt, and the target judges every token of it.",
}
MODES = [("sampled", DISTRIBUTION), ("greedy", GREEDY)]


def create_losslessness_tab(controls: Controls, runner: JobRunner) -> StopSignals:
    """Build the tab in the current layout; returns the visitors' stop signals."""
    introduction = gr.HTML(_introduced(DISTRIBUTION), padding=False)
    elsewhere = gr.HTML(value=None, padding=False, elem_id="losslessness-elsewhere")
    with gr.Row(elem_id="losslessness-what", elem_classes="losslessness-row"):
        mode = gr.Radio(MODES, value=DISTRIBUTION, label="Output", elem_id="losslessness-mode", min_width=200)
        rule = gr.Dropdown(
            rules_of(DISTRIBUTION),
            value="sampling",
            label="Acceptance rule",
            elem_id="losslessness-rule",
            min_width=200,
        )
        drafter = gr.Dropdown(
            drafters_of(has_model=True),
            value=DEFAULT_DRAFTER,
            label="Drafts with",
            elem_id="losslessness-drafter",
            min_width=150,
        )
    with gr.Row(elem_classes="losslessness-row"):
        gamma = gr.Slider(
            1, MAX_GAMMA, Settings().gamma, step=1, label="γ", elem_id="losslessness-gamma", min_width=150
        )
        temperature = gr.Slider(
            0.05, 2, 1.0, step=0.05, label="Temperature", elem_id="losslessness-temperature", min_width=150
        )
        runs = gr.Slider(
            25, 1000, RUNS, step=25, label="Pairs of runs", elem_id="losslessness-runs", min_width=150
        )
        tokens = gr.Slider(
            2, 64, TOKENS, step=1, label="Tokens a run", elem_id="losslessness-tokens", min_width=150
        )
    with gr.Row(elem_classes="actions", elem_id="losslessness-actions"):
        start = gr.Button("Check", variant="primary", elem_id="losslessness-start", min_width=120, scale=0)
        halt = gr.Button("Stop", interactive=False, elem_id="losslessness-stop", min_width=80, scale=0)
    view = gr.HTML(value=None, padding=False, elem_id="losslessness-view")

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            yield {view: render(state)}

    pair = controls.pair.pair
    panel = [controls.prompt, controls.top_k, controls.top_p, controls.seed, controls.chat, controls.engine]
    own = [mode, rule, drafter, gamma, temperature, runs, tokens]
    inputs = [*controls.pair.inputs(), *panel, controls.max_new_tokens, *own]
    signals, _ = connect(runner, [Start(start, check_job, show)], halt, inputs, [view], models=pair)
    pair.change(_said_of_servers, pair, elsewhere, **QUIET)
    mode.change(_shown, mode, [introduction, temperature, runs, tokens], **QUIET)
    # By hand only: a link says for itself what goes with its pair and its kind of check.
    mode.input(_swapped, [mode, rule], rule, **QUIET)
    named = [controls.pair.pair, controls.pair.target, controls.pair.draft]
    gr.on([c.input for c in named], _offer_drafters, [*named, drafter], drafter, **QUIET)
    return signals


def check_job(*values: Any) -> CheckJob:
    """What the controls of the pair, the panel and the tab ask for.

    Raises:
        PairError: the models cannot be had.
        SettingsError: a value is missing or out of range; names the field.
        SpecDemoError: it asks for too much.
    """
    prompt, top_k, top_p, seed, chat, engine, max_new_tokens, *own = values[PAIR_INPUTS:]
    mode, rule, drafter, gamma, temperature, runs, tokens = own
    settings = Settings(
        acceptance=rule,
        drafter=drafter,
        gamma=whole("gamma", gamma),
        temperature=0.0 if mode == GREEDY else temperature,
        top_k=whole("top_k", top_k),
        top_p=top_p,
        seed=whole("seed", seed),
        chat=None if chat else False,
        engine=engine,
        max_new_tokens=whole("max_new_tokens", max_new_tokens),
    )
    check_prompts([prompt or ""])
    check_lanes([settings])
    pair = pair_request(*values[:PAIR_INPUTS])
    job = CheckJob(pair, prompt or "", settings, whole("runs", runs), whole("tokens", tokens))
    if mode == DISTRIBUTION:
        check_runs(2 * job.runs)
    return job


def _shown(mode: str) -> list[Any]:
    """A greedy check has one run, as long as the panel says."""
    return [_introduced(mode), *(gr.update(visible=mode == DISTRIBUTION) for _ in range(3))]


def _swapped(mode: str, rule: str) -> Any:
    """Exact match has a meaning only in a greedy check, where it is what rejection sampling comes down to."""
    sampled = mode == DISTRIBUTION
    swapped = {True: {"exact": "sampling"}, False: {"sampling": "exact"}}[sampled]
    return gr.update(choices=rules_of(mode), value=swapped.get(rule, rule))


def _said_of_servers(pair: str) -> str:
    server = server_of(pair)
    return "" if server is None else f"<p class='losslessness-intro'>{escape(needs_models(server))}</p>"


def _introduced(mode: str) -> str:
    text = f"Does speculation change what comes out? {INTRODUCTION[mode]}"
    return f"<p class='losslessness-intro'>{text}</p>"


def rules_of(mode: str) -> list[tuple[str, str]]:
    """(label, name) of the rules: exact match compares single best tokens, which sampling has not."""
    return [(label, name) for name, label in ACCEPTANCE_RULES.items() if mode == GREEDY or name != "exact"]


def _offer_drafters(pair: str, target: str, draft: str, drafter: str) -> Any:
    """What the pair can draft with; who has no draft model copies from the prompt."""
    choices = drafters_of(has_model=has_draft(pair, target, draft))
    kept = drafter if drafter in [name for _, name in choices] else without("draft")[0].name
    return gr.update(choices=choices, value=kept)


def drafters_of(*, has_model: bool) -> list[tuple[str, str]]:
    """(label, name) of the drafters that a pair offers, by whether it has a draft model."""
    return [(spec.label, spec.name) for spec in (DRAFTERS.values() if has_model else without("draft"))]
