"""The tab that finds a setting: every γ of one method, or every method; what to measure, and how far it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gradio as gr

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.sweep_report import SweepReport
from specdemo.errors import SettingsError
from specdemo.settings import MAX_GAMMA, Settings
from specdemo.ui.jobs.job import LaneRequest
from specdemo.ui.jobs.measuring import MeasureJob
from specdemo.ui.jobs.queue import JobRunner
from specdemo.ui.panel.controls import UNQUEUED, Controls
from specdemo.ui.state.methods import NO_LANE, PLAIN, UNQUANTIZED, method_of, server_of
from specdemo.ui.state.request import OPTIONS, PanelRequest, option_values
from specdemo.ui.state.state import GAMMAS, LONGEST_BUDGET, METHODS, MOST_REPEATS, parameter_of
from specdemo.ui.tabs.examples import show_example
from specdemo.ui.tabs.results import Offer, create_results, show_measurement
from specdemo.ui.tabs.tab_parts import (
    Start,
    bounded,
    check_length,
    chosen_prompts,
    connect,
    create_prompt_source,
)

LEADS = {
    GAMMAS: "<p>How many tokens should be drafted in a round? Every γ is measured against plain decoding.</p>",
    METHODS: "<p>Which method, which γ? All that this pair allows race; the beaten are dropped early.</p>",
}
# The results that answer the view's question; page.css hides advice before there is any. No button.
SHOW_ANSWER = """
(view) => [view === "gammas", view === "methods", false].map((visible) => ({ __type__: "update", visible }))
"""
USED = ("temperature", "top_k", "top_p", "chat", "engine")
"""Of the settings that all lanes share, those that a best γ depends on."""
SERVER_LEAD = "<p>Does this server's speculation pay? It is measured as it was started.</p>"


def setting_job(request: PanelRequest, file: str | None = None) -> MeasureJob:
    """What to measure, with prompts perhaps from a ``file``: every γ of the lane that drafts, or every method.

    Raises SpecDemoError where that cannot be run.
    """
    tab, settings = request.state.sweep, replace(request.drafting_lane().settings, adaptive_gamma=False)
    low, high = 1, 1
    if tab.view == GAMMAS:
        low, high = bounded("γ from", tab.first, MAX_GAMMA), bounded("γ to", tab.last, MAX_GAMMA)
    if low > high:
        raise SettingsError("γ", f"goes from {low} to {high}; put the smaller one first.")
    check_length(settings)
    found = chosen_prompts(request.prompt, tab, file, mixed=tab.view == METHODS)
    prompts, here = [prompt for prompt, _ in found], settings.server is None
    lane = LaneRequest(settings, request.pair if here else None)
    if tab.view == METHODS:
        seconds, kinds = bounded("budget", tab.budget, LONGEST_BUDGET), tuple(kind for _, kind in found)
        return MeasureJob(prompts, lane, budget=seconds, kinds=kinds).checked()
    gammas = tuple(range(low, high + 1)) if here else ()
    return MeasureJob(prompts, lane, bounded("repeats", tab.repeats, MOST_REPEATS), gammas).checked()


def create_sweep_tab(controls: Controls, runner: JobRunner) -> Start:
    """Build the tab in the current layout; returns what its button starts."""
    with gr.Column(elem_id="sweep", elem_classes="measuring"):
        lead = gr.HTML(LEADS[GAMMAS], padding=False, elem_classes="measuring-lead")
        view = controls.build("sweep.view", gr.Radio, show_label=False)
        with gr.Row(elem_classes="measuring-numbers"):
            # No limits here: Gradio would end the event with an error of its own instead of saying what to do.
            numbers = [
                controls.build(f"sweep.{name}", gr.Number, min_width=90, visible=name != "budget")
                for name in ("from", "to", "repeats", "budget")
            ]
        file = create_prompt_source(controls, "sweep")
        note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="sweep-drafts")
        use = gr.Button("Use γ", visible=False, size="sm", elem_id="sweep-use", min_width=120, scale=0)
        offer = Offer(use, gr.State(Settings()))
        status = gr.HTML(value=None, padding=False, elem_id="sweep-status")
        results, advice = create_results(SweepReport), create_results(AdviceReport)
    show_example(results)
    pair = controls["pair"]
    gr.on([pair.change, view.change], _fitting, [pair, view], [lead, *numbers], **UNQUEUED)
    view.change(None, view, [results.area, advice.area, use], js=SHOW_ANSWER, **UNQUEUED)
    show = show_measurement(status, [results, advice], offer)
    outputs = [status, *results.outputs(), *advice.outputs(), use, offer.settings]
    start = Start(controls.starts["sweep"], setting_job, show, [file], note=note)
    connect(runner, controls, "sweep", [start], outputs)
    methods = controls.methods
    options = [parameter_of(f"lane{lane}", field) for lane in range(1, len(methods) + 1) for field in OPTIONS]
    panel = [*controls.named(map(parameter_of, USED)), *methods, *controls.named(options)]
    use.click(used, [offer.settings, *methods], [use, *panel], **UNQUEUED)
    return start


def used(measured: Settings, *methods: str) -> list[Any]:
    """Set what was ``measured`` to be best in the panel; the button says in which lane.

    It is the first that drafts in the same way, else the first that drafts at all, else the second.
    """
    method, width = method_of(measured.drafter), len(OPTIONS)
    drafting = [n for n, name in enumerate(methods) if name not in (PLAIN, UNQUANTIZED, NO_LANE)]
    lane = methods.index(method) if method in methods else drafting[0] if drafting else 1
    chosen = [gr.skip()] * len(methods)
    chosen[lane] = method
    options = [gr.skip()] * (width * len(methods))
    options[width * lane : width * (lane + 1)] = option_values(measured)
    shared = [measured.chat is not False if name == "chat" else getattr(measured, name) for name in USED]
    said = "adapts γ" if measured.adaptive_gamma else "drafts trees" if measured.tree_nodes else None
    said = f"Lane {lane + 1} now {said or f'drafts γ = {measured.gamma}'}"
    return [gr.update(value=said, interactive=False), *shared, *chosen, *options]


def _fitting(pair: str, view: str) -> list[Any]:
    """The question, and the numbers that it needs: a server's γ is its own."""
    here, sweeps = server_of(pair) is None, view == GAMMAS
    shown = (here and sweeps, here and sweeps, sweeps, not sweeps)
    return [LEADS[view] if here else SERVER_LEAD, *(gr.update(visible=visible) for visible in shown)]
