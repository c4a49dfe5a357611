"""The losslessness tab: what to check, Check and Stop, and the view they feed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

from specdemo.drafters import first_choice, offered_with
from specdemo.files import write_whole
from specdemo.settings import ACCEPTANCE_RULES
from specdemo.ui.event_options import UNQUEUED
from specdemo.ui.jobs.job import JobState, LaneRequest
from specdemo.ui.jobs.limits import check_lanes, check_prompts, check_runs
from specdemo.ui.jobs.losslessness import CheckJob
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.request import PanelRequest, parts_of, whole
from specdemo.ui.state.state import DISTRIBUTION, GREEDY
from specdemo.ui.tabs.examples import EXAMPLE, example_certificate
from specdemo.ui.tabs.plans import Announcement
from specdemo.ui.tabs.tab_parts import Start, Updates, connect
from specdemo.view.losslessness_view import render
from specdemo.view.progress_text import counted

INTRODUCTION = {
    DISTRIBUTION: "Many short runs of it and of plain decoding continue the panel’s prompt, until a test can tell "
    "the two apart or gives up.",
    GREEDY: "One run continues the panel’s prompt, and the target judges every token of it.",
}


def create_losslessness_tab(controls: Controls, runner: JobRunner) -> Announcement:
    """Build the tab in the current layout; returns what it says before it starts."""
    introduction = gr.HTML(_introduced(DISTRIBUTION), padding=False)
    with gr.Row(elem_id="losslessness-what", elem_classes="losslessness-row"):
        mode = controls.build("losslessness.mode", gr.Radio, min_width=200)
        rules = rules_of(DISTRIBUTION)
        rule = controls.build("losslessness.rule", gr.Dropdown, choices=rules, min_width=200)
        offered = drafters_of(parts_of(controls["pair"].value))
        drafter = controls.build("losslessness.drafter", gr.Dropdown, choices=offered, min_width=150)
    with gr.Row(elem_classes="losslessness-row"):
        temperature, runs, tokens = (
            controls.build(f"losslessness.{name}", gr.Slider, step=step, min_width=150)
            for name, step in (("temperature", 0.05), ("runs", 25), ("tokens", 1))
        )
    note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="losslessness-plan")
    known = render("done", "", example_certificate())
    view = gr.HTML(f"{EXAMPLE}{known}", padding=False, elem_id="losslessness-view")
    save = gr.DownloadButton(
        "Save certificate (JSON)", size="sm", visible=False, elem_id="losslessness-save", scale=0, min_width=180
    )

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            if not state.ended or state.result is None:
                yield {view: render(state.phase, state.message, state.result), save: gr.update(visible=False)}
                continue
            with TemporaryDirectory(prefix="specdemo-") as folder:
                file = Path(folder) / "losslessness-certificate.json"
                write_whole(file, state.result.to_json())
                yield {
                    view: render(state.phase, state.message, state.result),
                    save: gr.update(value=str(file), visible=True),
                }

    start = Start(controls.starts["losslessness"], check_job, show)
    connect(runner, controls, "losslessness", [start], [view, save], on_servers=False)
    mode.change(_shown, mode, [introduction, temperature, runs, tokens], **UNQUEUED)
    # By hand only: a link says for itself what goes with its pair and its kind of check.
    mode.input(_swapped, [mode, rule], rule, **UNQUEUED)
    named = controls.named(("pair", "target", "draft"))
    gr.on([c.input for c in named], _offer_drafters, [*named, drafter], drafter, **UNQUEUED)
    return Announcement(note, check_plan)


def check_plan(request: PanelRequest) -> tuple[str, CheckJob]:
    """What the check would run, as a sentence and a job. Raises what :func:`check_job` does."""
    job = check_job(request)
    taken = f"γ {job.settings.gamma} is lane {request.drafting_lane().number}’s."
    if job.settings.greedy:
        return f"{taken} One run of at most {counted(job.settings.max_new_tokens, 'token')}.", job
    runs, tokens = counted(2 * job.runs, "run"), counted(job.tokens, "token")
    return f"{taken} {runs} of at most {tokens}, half of them plain.", job


def check_job(request: PanelRequest) -> CheckJob:
    """What the page asks for, with the state of this tab.

    Raises:
        PairError: the models cannot be had.
        SettingsError: a value is missing or out of range; names the field.
        SpecDemoError: it asks for too much.
    """
    tab, pair = request.state.losslessness, request.pair
    settings = replace(
        request.drafting_lane().settings,
        strategy="speculative",
        adaptive_gamma=False,
        acceptance=tab.rule,
        drafter=tab.drafter,
        temperature=0.0 if tab.mode == GREEDY else tab.temperature,
    )
    check_prompts([request.prompt])
    check_lanes([settings])
    counts: Any = whole("runs", tab.runs), whole("tokens", tab.tokens)  # what is not whole, certify refuses
    job = CheckJob(request.prompt, LaneRequest(settings, pair), *counts)
    if tab.mode == DISTRIBUTION:
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


def _introduced(mode: str) -> str:
    text = f"Does speculation change what comes out? {INTRODUCTION[mode]}"
    return f"<p class='losslessness-intro'>{text}</p>"


def rules_of(mode: str) -> list[tuple[str, str]]:
    """(label, name) of the rules: exact match compares single best tokens, which sampling has not."""
    return [(label, name) for name, label in ACCEPTANCE_RULES.items() if mode == GREEDY or name != "exact"]


def _offer_drafters(pair: str, target: str, draft: str, drafter: str) -> Any:
    """What the pair can draft with."""
    parts = parts_of(pair, target, draft)
    choices = drafters_of(parts)
    kept = drafter if drafter in [name for _, name in choices] else first_choice(parts).name
    return gr.update(choices=choices, value=kept)


def drafters_of(parts: Collection[str]) -> list[tuple[str, str]]:
    """(label, name) of the drafters that a pair offers, by what it has besides its target."""
    return [(spec.label, spec.name) for spec in offered_with(parts)]
