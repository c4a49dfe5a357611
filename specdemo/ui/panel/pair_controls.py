"""The part of the panel that names the models, of the catalogue or typed in, and their precision and device."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from specdemo.machine import bfloat16_instructions
from specdemo.models.catalog import CatalogEntry, catalog
from specdemo.models.memory import best_device, free_memory
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.state import pairs

SHOW = """
(pair) => [pair === "custom", !pair.startsWith("server:")].map((visible) => ({ __type__: "update", visible }))
"""


@dataclass(frozen=True, slots=True)
class PairCard:
    """The card that says what a pair is, and the buttons that load it."""

    html: gr.HTML
    load: gr.Button
    cancel: gr.Button


def create_pair_controls(controls: Controls) -> PairCard:
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
    # What is shown follows the value, whoever sets it.
    pair.change(None, pair, [custom, precision], js=SHOW, **QUIET)
    return PairCard(card, load, cancel)


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
