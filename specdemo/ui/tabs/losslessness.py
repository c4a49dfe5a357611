"""The losslessness tab: what to check, Check and Stop, and the view they feed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

from specdemo.files import write_whole
from specdemo.losslessness.certify import PROMPT
from specdemo.ui.jobs.job import JobState, LaneRequest
from specdemo.ui.jobs.limits import check_lanes, check_prompts, check_runs
from specdemo.ui.jobs.losslessness import CheckJob
from specdemo.ui.jobs.queue import JobRunner
from specdemo.ui.panel.controls import UNQUEUED, Controls
from specdemo.ui.state.request import PanelRequest, whole
from specdemo.ui.state.state import DISTRIBUTION, GREEDY, PageState
from specdemo.ui.tabs.examples import EXAMPLE, example_certificate
from specdemo.ui.tabs.tab_parts import Start, Updates, connect
from specdemo.view.losslessness_view import render
from specdemo.view.progress_text import counted

INTRODUCTION = {
    DISTRIBUTION: "Many short runs of it and of plain decoding continue one prompt, until a test can tell the two "
    "apart or has seen enough: rejection sampling passes, the rule “naive” is caught.",
    GREEDY: "One run continues the panel’s prompt, and the target judges every token of it.",
}


def create_losslessness_tab(controls: Controls, runner: JobRunner) -> Start:
    """Build the tab in the current layout; returns what its button starts."""
    introduction = gr.HTML(_introduced(DISTRIBUTION), padding=False)
    with gr.Row(elem_id="losslessness-what", elem_classes="losslessness-row"):
        mode = controls.build("losslessness.mode", gr.Radio, min_width=200)
        controls.build("losslessness.rule", gr.Dropdown, min_width=200)
        controls.build("losslessness.drafter", gr.Dropdown, min_width=150)
    with gr.Row(elem_classes="losslessness-row"):
        temperature, runs, tokens = (
            controls.build(f"losslessness.{name}", gr.Slider, step=step, min_width=150)
            for name, step in (("temperature", 0.05), ("runs", 25), ("tokens", 1))
        )
    note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="losslessness-plan")
    known = "<p>The rule “naive”, which tutorials have, is caught:</p>" + render("done", "", example_certificate())
    view = gr.HTML(f"{EXAMPLE}{known}", padding=False, elem_id="losslessness-view")
    save = gr.DownloadButton(
        "Save certificate (JSON)", size="sm", visible=False, elem_id="losslessness-save", scale=0, min_width=180
    )

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            shown: Updates = {view: render(state.phase, state.message, state.result)}
            if not state.ended or state.result is None:
                yield {**shown, save: gr.update(visible=False)}
                continue
            with TemporaryDirectory(prefix="specdemo-") as folder:
                file = Path(folder) / "losslessness-certificate.json"
                write_whole(file, state.result.to_json())
                yield {**shown, save: gr.update(value=str(file), visible=True)}

    check = controls.starts["losslessness"]
    start = Start(check, check_job, show, on_servers=False, note=note, plan=check_plan)
    connect(runner, controls, "losslessness", [start], [view, save])
    mode.change(_shown, mode, [introduction, temperature, runs, tokens], **UNQUEUED)
    return start


def check_plan(request: PanelRequest, job: CheckJob) -> str:
    """What the check would run."""
    taken = f"γ {job.settings.gamma} is lane {request.drafting_lane().number}’s."
    if job.settings.greedy:
        return f"{taken} One run of at most {counted(job.settings.max_new_tokens, 'token')}."
    runs, tokens = counted(2 * job.runs, "run"), counted(job.tokens, "token")
    story = f" They continue “{PROMPT}”, unless you choose a prompt." if job.prompt == PROMPT else ""
    return f"{taken} {runs} of at most {tokens}, half of them plain.{story}"


def check_job(request: PanelRequest) -> CheckJob:
    """What the page asks for; raises SpecDemoError where it cannot be had, or is too much."""
    tab, pair = request.state.losslessness, request.pair
    # The page's first prompt is a list, which leaves the target no choice: of it no sampled run can show anything.
    first = tab.mode == DISTRIBUTION and request.prompt == PageState().prompt
    prompt = PROMPT if first else request.prompt
    settings = replace(
        request.drafting_lane().settings,
        strategy="speculative",
        adaptive_gamma=False,
        acceptance=tab.rule,
        drafter=tab.drafter,
        temperature=0.0 if tab.mode == GREEDY else tab.temperature,
    )
    check_prompts([prompt])
    check_lanes([settings])
    counts: Any = whole("runs", tab.runs), whole("tokens", tab.tokens)  # what is not whole, certify refuses
    job = CheckJob(prompt, LaneRequest(settings, pair), *counts)
    if tab.mode == DISTRIBUTION:
        check_runs(2 * job.runs)
    return job


def _shown(mode: str) -> list[Any]:
    """A greedy check has one run, as long as the panel says."""
    return [_introduced(mode), *(gr.update(visible=mode == DISTRIBUTION) for _ in range(3))]


def _introduced(mode: str) -> str:
    text = f"Does speculation change what comes out? {INTRODUCTION[mode]}"
    return f"<p class='losslessness-intro'>{text}</p>"
