"""The tab that finds a setting: every γ of one method, or every method; what to measure, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from specdemo.analysis.advice import AdviceReport
from specdemo.errors import SettingsError
from specdemo.settings import ACCEPTANCE_RULES, MAX_GAMMA, Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.jobs.job import LaneRequest
from specdemo.ui.jobs.measuring import SERVERS_OWN, AdviceJob, SweepJob, checked_advice, checked_sweep
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.prompt_source import (
    SOURCE_INPUTS,
    PromptSource,
    chosen_prompts,
    chosen_with_kinds,
    create_prompt_source,
)
from specdemo.ui.state.lanes import OPTIONS, option_values
from specdemo.ui.state.methods import NO_LANE, PLAIN, UNQUANTIZED, method_of
from specdemo.ui.state.request import PanelRequest
from specdemo.ui.state.server_choice import server_of
from specdemo.ui.state.state import GAMMAS, LONGEST_BUDGET, METHODS, MOST_REPEATS, parameter_of
from specdemo.ui.tabs.examples import example_sweep, show_example
from specdemo.ui.tabs.measured import show_measurement
from specdemo.ui.tabs.plans import Announcement, Plan, drafts_as
from specdemo.ui.tabs.sweep_results import (
    Offer,
    create_advice_results,
    create_sweep_results,
    show_advice,
    show_sweep,
)
from specdemo.ui.tabs.tab_parts import Start, bounded, check_length, connect
from specdemo.view.progress_text import counted

LEADS = {
    GAMMAS: "<p>How many tokens should be drafted in a round? Every γ is measured against plain decoding.</p>",
    METHODS: "<p>Which method, which γ? All that this pair allows race; the beaten are dropped early.</p>",
}
USED = ("temperature", "top_k", "top_p", "chat", "engine")
"""Of the settings that all lanes share, those that a best γ depends on."""
SERVER_LEAD = "<p>Does this server's speculation pay? It is measured as it was started.</p>"


@dataclass(frozen=True, slots=True)
class SweepControls:
    """What a person chooses for a sweep besides the panel."""

    view: gr.Radio
    budget: gr.Number
    first: gr.Number
    last: gr.Number
    repeats: gr.Number
    prompts: PromptSource

    def inputs(self) -> list[Any]:
        """What :func:`setting_job` reads, in its order."""
        return [self.view, self.budget, self.first, self.last, self.repeats, *self.prompts.inputs()]


SWEEP_INPUTS = 5 + SOURCE_INPUTS


def setting_job(request: PanelRequest, view: str, budget: float | None, *own: Any) -> SweepJob | AdviceJob:
    """What to measure, of the panel's request and the values of the tab.

    Raises:
        SpecDemoError: a value is missing or out of range, there is no prompt, or no lane drafts.
    """
    if view == GAMMAS:
        return sweep_job(request, *own)
    settings = replace(request.drafting_lane().settings, adaptive_gamma=False)
    check_length(settings)
    found = chosen_with_kinds(request.prompt, *own[3:], mixed=True)
    lane = LaneRequest(settings, request.pair if settings.server is None else None)
    kinds = tuple(kind for _, kind in found)
    seconds = bounded("budget", budget, LONGEST_BUDGET)
    return checked_advice(AdviceJob([prompt for prompt, _ in found], lane, 1, seconds, kinds))


def sweep_job(
    request: PanelRequest,
    first: float | None,
    last: float | None,
    repeats: float | None,
    *source: Any,
) -> SweepJob:
    """The sweep among these. Raises what :func:`setting_job` does."""
    low, high = bounded("γ from", first, MAX_GAMMA), bounded("γ to", last, MAX_GAMMA)
    if low > high:
        raise SettingsError("γ", f"goes from {low} to {high}; put the smaller one first.")
    settings = replace(request.drafting_lane().settings, adaptive_gamma=False)
    check_length(settings)
    prompts, here = chosen_prompts(request.prompt, *source), settings.server is None
    gammas = range(low, high + 1) if here else SERVERS_OWN
    lane = LaneRequest(settings, request.pair if here else None)
    return checked_sweep(SweepJob(prompts, lane, bounded("repeats", repeats, MOST_REPEATS), gammas))


def sweep_plan(request: PanelRequest, *own: Any) -> Plan:
    """What these values would run. Raises what :func:`setting_job` does."""
    job = setting_job(request, *own)
    lane = request.drafting_lane()
    if isinstance(job, AdviceJob):
        rule, prompts = ACCEPTANCE_RULES[job.lane.settings.acceptance], counted(len(job.prompts), "prompt")
        text = f"Tries every method on {prompts}, {rule}, for {job.budget_seconds:g}\u00a0s at most."
        return Plan(text, None, 0, 0, job.budget_seconds)
    each = len(job.prompts) * job.repeats
    length = lane.settings.max_new_tokens
    runs = counted(each * (len(job.gammas) + 1), "run")
    text = f"{drafts_as(lane)} {runs} of at most {counted(length, 'token')}, plain and with every γ."
    pair = job.lane.pair and job.lane.pair.name
    return Plan(text, pair, each * length, each * length * len(job.gammas))


def create_sweep_tab(controls: Controls, runner: JobRunner) -> Announcement:
    """Build the tab in the current layout; returns what it says before it starts."""
    with gr.Column(elem_id="sweep", elem_classes="measuring"):
        lead = gr.HTML(LEADS[GAMMAS], padding=False, elem_classes="measuring-lead")
        choices = _create_choices(controls)
        note = gr.HTML(value=None, padding=False, elem_classes="measuring-note", elem_id="sweep-drafts")
        use = gr.Button("Use γ", visible=False, size="sm", elem_id="sweep-use", min_width=120, scale=0)
        offer = Offer(use, gr.State(Settings()))
        status = gr.HTML(value=None, padding=False, elem_id="sweep-status")
        results, advice = create_sweep_results(), create_advice_results()
    show_example(results, show_sweep(offer, results, example_sweep()))
    pair = controls["pair"]
    changed = [lead, choices.first, choices.last, choices.repeats, choices.budget]
    gr.on([pair.change, choices.view.change], _fitting, [pair, choices.view], changed, **QUIET)
    areas = [results.area, advice.area, use]
    choices.view.change(_results_of, [choices.view, advice.known], areas, **QUIET)

    def job(*values: Any) -> SweepJob | AdviceJob:
        return setting_job(controls.request(values[:-SWEEP_INPUTS]), *values[-SWEEP_INPUTS:])

    others = {AdviceReport: (advice, partial(show_advice, offer))}
    show = show_measurement(status, results, partial(show_sweep, offer), others)
    inputs = [*controls.inputs(), *choices.inputs()]
    starts = [Start(controls.row.starts["sweep"], job, show)]
    outputs = [status, *results.outputs(), *advice.outputs(), *offer.outputs()]
    connect(runner, "sweep", starts, controls.row, inputs, outputs)
    methods = controls.methods
    options = [parameter_of(f"lane{lane}", field) for lane in range(1, len(methods) + 1) for field in OPTIONS]
    shared = map(parameter_of, USED)
    panel = [*controls.named(shared), *methods, *controls.named(options)]
    use.click(used, [offer.settings, *methods], [use, *panel], **QUIET)
    return Announcement(note, choices.inputs(), sweep_plan)


def used(measured: Settings, *methods: str) -> list[Any]:
    """Set what was measured to be best in the panel; the button says in which lane.

    Args:
        measured: the settings, none of which the panel need still have.
        methods: of the lanes. The first that drafts in the same way takes the settings, else the first that
            drafts at all, else the second.

    Returns:
        Updates of the button, of the controls in ``USED``, and of all lanes' methods and options.
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


def _results_of(view: str, advised: bool) -> list[Any]:
    """The results that answer this view's question: a sweep or its example, advice if there is any; no button."""
    return [gr.update(visible=shown) for shown in (view == GAMMAS, view == METHODS and advised, False)]


def _fitting(pair: str, view: str) -> list[Any]:
    """The question, and the numbers that it needs: a server's γ is its own."""
    here, sweeps = server_of(pair) is None, view == GAMMAS
    lead = LEADS[view] if here else SERVER_LEAD
    return [
        lead,
        *[gr.update(visible=here and sweeps)] * 2,
        gr.update(visible=sweeps),
        gr.update(visible=not sweeps),
    ]


def _create_choices(controls: Controls) -> SweepControls:
    view = controls.build("sweep.view", gr.Radio, show_label=False)
    with gr.Row(elem_classes="measuring-numbers"):
        # No limits here: Gradio would end the event with an error of its own instead of saying what to do.
        first, last, repeats, budget = (
            controls.build(f"sweep.{name}", gr.Number, min_width=90, visible=name != "budget")
            for name in ("from", "to", "repeats", "budget")
        )
    return SweepControls(view, budget, first, last, repeats, create_prompt_source(controls, "sweep"))
