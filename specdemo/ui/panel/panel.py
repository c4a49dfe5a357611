"""The side panel: everything a person chooses before pressing Run."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import gradio as gr

from specdemo.machine import bfloat16_instructions
from specdemo.models.memory import best_device, free_memory
from specdemo.models.request import CatalogEntry, catalog
from specdemo.runs.prompts import by_domain
from specdemo.settings import MAX_TREE_NODES, Settings
from specdemo.ui.event_options import UNQUEUED
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.run_row import create_run_row
from specdemo.ui.state.methods import (
    FIRST_LANES,
    NOTES,
    find_method,
    method_choices,
    methods_on,
    nearest_method,
    server_of,
    wish_of,
)
from specdemo.ui.state.request import OPTIONS, chats, parts_of, shown_options
from specdemo.ui.state.state import NONE, of_lanes, pairs, parameter_of, precision_of

TREE_CHOICES = [
    ("none: one guess a position", "0"),
    *((f"{n} tokens", str(n)) for n in (4, 6, 8, 12, 16, 24, 32, 48, 64)),
]
# What is shown follows the values, whoever sets them; the browser does that by itself.
SHOW_OPTIONS = "(...read) => window.SpecDemoPanel.options(...read)"
SHOW_PAIR = """
(pair) => [pair === "custom", !pair.startsWith("server:")].map((visible) => ({ __type__: "update", visible }))
"""
# Exact match needs temperature 0; a rule that stays is not set, since it may have been chosen meanwhile.
WARM = """
(temperature, ...rules) => rules.map((rule) => temperature && rule === "exact"
  ? { __type__: "update", value: "sampling" } : { __type__: "update" })
"""


def create_panel(controls: Controls) -> None:
    """Build the panel in the current layout and wire what only concerns itself."""
    prompt = controls.build("prompt", gr.Textbox, lines=3, max_lines=10)
    _example_chips(prompt)
    sheet = gr.Button("Settings: models, lanes, length, sampling", size="sm", elem_id="settings-toggle")
    sheet.click(None, None, None, js="() => { window.SpecDemoPanel.toggleSettings(); }", **UNQUEUED)
    with gr.Column(elem_id="settings"):
        create_pair_controls(controls)
        parts = parts_of(controls["pair"].value)
        with gr.Tabs(selected=2, elem_id="lanes"):
            for number, method in enumerate(FIRST_LANES, start=1):
                with gr.Tab(f"Lane {number}", id=number, elem_classes="lane-tab"):
                    _create_lane(controls, number, method, parts)
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
    create_run_row(controls)
    controls.wished = gr.State(list(FIRST_LANES))
    # Only what a person does triggers these couplings: a link has a value for every control.
    rules = controls.named(of_lanes("acceptance"))
    temperature.input(None, [temperature, *rules], rules, js=WARM, **UNQUEUED)
    _follow_pair(controls)


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
                **UNQUEUED,
            )


def create_pair_controls(controls: Controls) -> None:
    """Build the controls in the current layout; the fields for names are shown for a custom pair only."""
    room = free_memory(best_device())
    sized = {entry.id: _sized(entry, room) for entry in catalog().values()}
    choices = [(sized.get(name, label), name) for name, label in pairs().items()]
    pair = controls.build("pair", gr.Dropdown, choices=choices)
    with gr.Column(visible=False, elem_id="custom-pair") as custom:
        controls.build("target", gr.Textbox, placeholder="Qwen/Qwen3-4B", max_lines=1)
        controls.build("draft", gr.Textbox, placeholder="Qwen/Qwen3-0.6B", max_lines=1)
    card = gr.HTML(value=None, padding=False, elem_id="pair-card")
    with gr.Row(elem_classes="actions"):
        load = gr.Button("Load", size="sm", visible=False, elem_id="load", min_width=120)
        cancel = gr.Button("Stop loading", size="sm", visible=False, elem_id="cancel-load", min_width=120)
    with gr.Accordion("Precision and device", open=False, elem_id="precision") as precision:
        for row in (("target-weights", "draft-weights"), ("dtype", "device")):
            with gr.Row(elem_classes="pairwise"):
                for name in row:
                    controls.build(name, gr.Dropdown, min_width=110)
        if hint := bfloat16_hint():
            gr.HTML(f"<p>{hint}</p>", padding=False, elem_id="bfloat16-hint")
    pair.change(None, pair, [custom, precision], js=SHOW_PAIR, **UNQUEUED)
    controls.card = card, load, cancel


def _sized(entry: CatalogEntry, room: int) -> str:
    """A pair of the catalogue in the list: its size, and whether ``room`` bytes are enough."""
    size = f"{entry.memory_gb:.1f}" if entry.memory_gb < 10 else f"{entry.memory_gb:.0f}"
    fits = "fits here" if entry.memory_gb * 1e9 <= room else "too large here"
    return f"{entry.label} · {size} GB, {fits}"


def bfloat16_hint() -> str | None:
    """Advice to try bfloat16, on a CPU with instructions for it and without a GPU; else None."""
    instructions = {"amx": "AMX", "avx512": "AVX-512"}.get(bfloat16_instructions() or "")
    if instructions is None or best_device() != "cpu":
        return None
    return (
        f"This CPU multiplies bfloat16 with {instructions}, which can make checking γ + 1 tokens cheaper: "
        "compare v(γ) in <i>All figures</i>. Here auto is bfloat16 for models from 50M parameters, else float32, "
        "which is exact."
    )


def _create_lane(controls: Controls, number: int, method: str, parts: Collection[str]) -> None:
    """Build one lane's controls in the current layout; only those that its method reads are shown.

    Args:
        controls: take them up.
        number: of the lane, from 1.
        method: with which it begins.
        parts: what the pair has besides its target.
    """
    shown = shown_options(method, Settings().acceptance)

    def option(field: str, kind: type[Any], **look: Any) -> None:
        controls.build(parameter_of(f"lane{number}", field), kind, visible=field in shown, **look)

    chosen = find_method(method)
    # What a tab does not use it dims as a whole, by the classes of these columns.
    with gr.Column(elem_classes="lane-part lane-how"):
        choices = method_choices(parts=parts, quantized=False, optional=number > 1)
        controls.build(parameter_of(f"lane{number}", "method"), gr.Dropdown, choices=choices)
    with gr.Column(elem_classes="lane-part lane-gamma"):
        option("gamma", gr.Slider, info=NOTES.get(chosen.drafter.name) if chosen and chosen.drafter else None)
        option("adaptive_gamma", gr.Checkbox, container=False)
        typed = f"Any number from 2 to {MAX_TREE_NODES} can be typed."
        option("tree_nodes", gr.Dropdown, choices=TREE_CHOICES, info=typed, allow_custom_value=True)
    with gr.Column(elem_classes="lane-part lane-how"):
        option("acceptance", gr.Dropdown)
        option("accept_top_k", gr.Number, precision=0)
        option("lookup_ngram", gr.Slider)
        option("exit_layer", gr.Number, precision=0)
    read, options = (
        controls.named(parameter_of(f"lane{number}", field) for field in fields)
        for fields in (("method", "acceptance", "tree_nodes"), OPTIONS)
    )
    gr.on([each.change for each in read], None, read, options, js=SHOW_OPTIONS, **UNQUEUED)


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
    precision = controls.named(precision_of(pair.value))

    def follow(name: str, target: str, draft: str, wishes: list[str]) -> list[Any]:
        values = precision_of(name)
        offered = offered_methods(name, target, draft, values["target-weights"], wishes)
        return [*values.values(), chats(name), *offered]

    brought = [*precision, controls["chat"], *methods]
    pair.input(follow, [pair, target, draft, wished], brought, trigger_mode="always_last", **UNQUEUED)
    # Leaving the draft's field empty changes nothing in it, but says that there is no draft model.
    triggers = [draft.input, draft.blur, draft.submit, weights.input]
    gr.on(triggers, offered_methods, [*named, wished], methods, trigger_mode="always_last", **UNQUEUED)

    def wish(lane: int, chosen: str, name: str, wishes: list[str]) -> list[str]:
        return [*wishes[:lane], wish_of(chosen, server_of(name)), *wishes[lane + 1 :]]

    for lane, method in enumerate(methods):  # a person's choices only: what a pair brings about is no wish
        method.input(partial(wish, lane), [method, pair, wished], wished, **UNQUEUED)
