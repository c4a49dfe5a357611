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
from specdemo.models.request import names_gguf
from specdemo.ui.jobs.job import JobState, LaneRequest
from specdemo.ui.jobs.limits import check_lanes, check_prompts, check_runs
from specdemo.ui.jobs.losslessness import CheckJob
from specdemo.ui.jobs.queue import JobRunner
from specdemo.ui.panel.controls import UNQUEUED, Controls
from specdemo.ui.state.methods import server_of
from specdemo.ui.state.request import PanelRequest, whole
from specdemo.ui.state.state import CUSTOM, DISTRIBUTION, GREEDY, PANEL, PageState
from specdemo.ui.tabs.examples import EXAMPLE, example_certificate
from specdemo.ui.tabs.tab_parts import Start, Updates, chosen_prompts, connect, create_prompt_source
from specdemo.view.losslessness_view import render

INTRODUCTION = {
    DISTRIBUTION: "Many short runs of it and of plain decoding continue one prompt, until a test can tell the two "
    "apart or has seen enough: rejection sampling passes, the rule “naive” is caught.",
    GREEDY: "One run continues the panel’s prompt, and the target judges every token of it.",
}
OF_DEPLOYMENTS = {
    DISTRIBUTION: "Many short runs of both deployments, until a test can tell them apart or has seen enough: "
    "another temperature, top-k or model is caught.",
    GREEDY: "Both deployments write every prompt, alone and beside other requests. Where they part the baseline "
    "says how likely both tokens are: a tie, or a divergence with the requests that show it.",
}


def create_losslessness_tab(controls: Controls, runner: JobRunner) -> Start:
    """Build the tab in the current layout; returns what its button starts."""
    introduction = gr.HTML(_introduced(DISTRIBUTION), padding=False)
    with gr.Row(elem_id="losslessness-what", elem_classes="losslessness-row"):
        mode = controls.build("losslessness.mode", gr.Radio, min_width=200)
        rule = controls.build("losslessness.rule", gr.Dropdown, min_width=200)
        drafter = controls.build("losslessness.drafter", gr.Dropdown, min_width=150)
    with gr.Column(visible=False, elem_classes="measuring") as of_prompts:
        file = create_prompt_source(controls, "losslessness")
    with gr.Row(elem_classes="losslessness-row"):
        temperature, runs, tokens = (
            controls.build(f"losslessness.{name}", gr.Slider, step=step, min_width=150)
            for name, step in (("temperature", 0.05), ("runs", 25), ("tokens", 1))
        )
    note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="losslessness-plan")
    known = "<p>Nothing of yours was checked yet. Here the rule “naive”, which tutorials have, is caught:</p>"
    known += render("done", "", example_certificate())
    view = gr.HTML(f"{EXAMPLE}{known}", padding=False, elem_id="losslessness-view")
    save = gr.DownloadButton(
        "Save (JSON)", size="sm", visible=False, elem_id="losslessness-save", scale=0, min_width=180
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
    start = Start(check, check_job, show, [file], note=note)
    connect(runner, controls, "losslessness", [start], [view, save])
    pair, target = controls["pair"], controls["target"]
    fitting = [introduction, temperature, runs, tokens, rule, drafter, of_prompts]
    gr.on([pair.change, mode.change, target.change], _shown, [mode, pair, target], fitting, **UNQUEUED)
    return start


def check_job(request: PanelRequest, file: str | None = None) -> CheckJob:
    """What the page asks for; raises SpecDemoError where it cannot be had, or is too much.

    ``file``: with prompts for two deployments.
    """
    tab, pair = request.state.losslessness, None if request.server else request.pair
    # The page's first prompt is a list, which leaves the target no choice: of it no sampled run can show anything.
    first = tab.mode == DISTRIBUTION and request.prompt == PageState().prompt
    prompts = [PROMPT if first else request.prompt]
    own: dict[str, Any] = {"acceptance": tab.rule, "drafter": tab.drafter}
    if pair is None:
        own = {"acceptance": "exact" if tab.mode == GREEDY else "sampling"}
    settings = replace(
        request.drafting_lane().settings,
        strategy="speculative",
        adaptive_gamma=False,
        temperature=0.0 if tab.mode == GREEDY else tab.temperature,
        **own,
    )
    if (pair is None or pair.is_gguf) and (tab.prompts != PANEL or file):
        prompts = [prompt for prompt, _ in chosen_prompts(request.prompt, tab, file, mixed=True)]
    check_prompts(prompts)
    check_lanes([settings])
    counts: Any = whole("runs", tab.runs), whole("tokens", tab.tokens)  # what is not whole, certify refuses
    job = CheckJob(tuple(prompts), LaneRequest(settings, pair), *counts)
    check_runs(sum(work.times for work in job.work))
    return job


def _shown(mode: str, pair: str, target: str) -> list[Any]:
    """A greedy check has runs as long as the panel says; a server has its own rule, and several prompts."""
    served = server_of(pair) is not None
    deployed = served or (pair == CUSTOM and names_gguf((target or "").strip()))
    shown = (*[mode == DISTRIBUTION] * 3, not served, not served, deployed)
    return [_introduced(mode, deployed), *(gr.update(visible=visible) for visible in shown)]


def _introduced(mode: str, deployed: bool = False) -> str:
    text = f"Does speculation change what comes out? {(OF_DEPLOYMENTS if deployed else INTRODUCTION)[mode]}"
    return f"<p class='losslessness-intro'>{text}</p>"
