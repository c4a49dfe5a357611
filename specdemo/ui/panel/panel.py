"""The side panel: everything a person chooses before pressing Run."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from specdemo.runs.prompts import by_domain
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.lane_controls import create_lane
from specdemo.ui.panel.pair_controls import PairCard, create_pair_controls
from specdemo.ui.panel.run_row import create_run_row
from specdemo.ui.state.methods import FIRST_LANES, method_choices, methods_on, nearest_method, wish_of
from specdemo.ui.state.pairs import chats, parts_of
from specdemo.ui.state.server_choice import server_of
from specdemo.ui.state.state import NONE, held_as, lane_parameter

NUMBERS = range(1, len(FIRST_LANES) + 1)
RULES = [lane_parameter(number, "acceptance") for number in NUMBERS]
# Exact match needs temperature 0; a rule that stays is not set, since it may have been chosen meanwhile.
WARM = """
(temperature, ...rules) => rules.map((rule) => temperature && rule === "exact"
  ? { __type__: "update", value: "sampling" } : { __type__: "update" })
"""


def create_panel(controls: Controls) -> PairCard:
    """Build the panel in the current layout and wire what only concerns itself."""
    prompt = controls.build("prompt", gr.Textbox, lines=3, max_lines=10)
    _example_chips(prompt)
    sheet = gr.Button("Settings: models, lanes, length, sampling", size="sm", elem_id="settings-toggle")
    sheet.click(None, None, None, js="() => { window.SpecDemoPanel.toggleSettings(); }", **QUIET)
    with gr.Column(elem_id="settings"):
        card = create_pair_controls(controls)
        parts = parts_of(controls["pair"].value)
        with gr.Tabs(selected=2, elem_id="lanes"):
            for number, method in enumerate(FIRST_LANES, start=1):
                with gr.Tab(f"Lane {number}", id=number, elem_classes="lane-tab"):
                    create_lane(controls, number, method, parts)
        controls.build("length", gr.Slider)
        controls.build("ignore-eos", gr.Checkbox)
        with gr.Accordion("Sampling", open=False, elem_id="sampling"):
            temperature = controls.build("temperature", gr.Slider, step=0.05)
            with gr.Row(elem_classes="pairwise"):
                controls.build("top-k", gr.Number, precision=0, min_width=110)
                controls.build("seed", gr.Number, precision=0, min_width=110)
            controls.build("top-p", gr.Slider, step=0.01)
            controls.build("chat", gr.Checkbox)
            eager = "CUDA graphs need a GPU; what cannot have them runs eagerly, and its lane says so."
            controls.build("engine", gr.Dropdown, info=eager)
    controls.note = gr.HTML(value=None, padding=False, elem_id="panel-note")
    controls.row = create_run_row()
    controls.wished = gr.State(list(FIRST_LANES))
    # Only what a person does triggers these couplings: a link has a value for every control.
    rules = controls.named(RULES)
    temperature.input(None, [temperature, *rules], rules, js=WARM, **QUIET)
    _follow_pair(controls)
    return card


def _example_chips(prompt: gr.Textbox) -> None:
    """One small button a domain; pressing it again gives the domain's next prompt."""

    def next_example(domain: str, current: str) -> str:
        prompts = [e.prompt.strip() for e in by_domain()[domain]]
        place = prompts.index(current.strip()) + 1 if current.strip() in prompts else 0
        return prompts[place % len(prompts)]

    with gr.Row(elem_classes="chips"):
        for domain in by_domain():
            gr.Button(domain, size="sm", min_width=40, elem_classes="chip", elem_id=f"example-{domain}").click(
                lambda current, domain=domain: next_example(domain, current or ""),
                prompt,
                prompt,
                **QUIET,
            )


def offered_methods(
    pair: str, target: str | None, draft: str | None, quantization: str, wishes: list[str]
) -> list[dict[str, Any]]:
    """Updates of the lanes' methods: what the pair offers, and of it what is most like the wish for each lane."""
    updates = []
    server = server_of(pair)
    wanted = wishes if server is None else methods_on(server, wishes)
    for number, wish in enumerate(wanted, start=1):
        choices = method_choices(
            parts=parts_of(pair, target, draft),
            quantized=quantization != NONE,
            optional=number > 1,
            server=server,
        )
        updates.append(gr.update(choices=choices, value=nearest_method(wish, [value for _, value in choices])))
    return updates


def _follow_pair(controls: Controls) -> None:
    """Set what goes with a pair that a person chooses; a method that it lacks comes back with one that has it."""
    pair, target, draft, weights, *_ = named = controls.named(("pair", "target", "draft", "target-weights"))
    methods, wished = controls.methods, controls.wished
    held = controls.named(("target-weights", "draft-weights", "dtype", "device"))

    def follow(name: str, target: str, draft: str, wishes: list[str]) -> list[Any]:
        values = held_as(name)
        return [*values, chats(name), *offered_methods(name, target, draft, values[0], wishes)]

    brought = [*held, controls["chat"], *methods]
    pair.input(follow, [pair, target, draft, wished], brought, trigger_mode="always_last", **QUIET)
    # Leaving the draft's field empty changes nothing in it, but says that there is no draft model.
    triggers = [draft.input, draft.blur, draft.submit, weights.input]
    gr.on(triggers, offered_methods, [*named, wished], methods, trigger_mode="always_last", **QUIET)

    def wish(lane: int, chosen: str, name: str, wishes: list[str]) -> list[str]:
        return [*wishes[:lane], wish_of(chosen, server_of(name)), *wishes[lane + 1 :]]

    for lane, method in enumerate(methods):  # a person's choices only: what a pair brings about is no wish
        method.input(partial(wish, lane), [method, pair, wished], wished, **QUIET)
