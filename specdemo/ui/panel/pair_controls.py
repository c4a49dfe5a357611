"""The part of the panel that names the models, of the catalogue or typed in, and their precision and device."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import gradio as gr
import torch

from specdemo.errors import PairError
from specdemo.machine import bfloat16_instructions
from specdemo.models.catalog import CatalogEntry, catalog
from specdemo.models.eagle3_config import named_like_head
from specdemo.models.memory import best_device, free_memory
from specdemo.models.request import DTYPES, QUANTIZATIONS, PairRequest, is_public, request_models, request_pair
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.server_choice import needs_models, pair_choices, server_of

CUSTOM = "custom"
NONE = "none"
BEST = "best"


@dataclass(frozen=True, slots=True)
class PairControls:
    """The components that name and load a pair."""

    pair: gr.Dropdown
    target: gr.Textbox
    draft: gr.Textbox
    target_quantization: gr.Dropdown
    draft_quantization: gr.Dropdown
    dtype: gr.Dropdown
    device: gr.Dropdown
    card: gr.HTML
    load: gr.Button
    cancel: gr.Button

    def inputs(self) -> list[gr.components.Component]:
        """What :func:`pair_request` reads, in its order."""
        return [getattr(self, f.name) for f in fields(self)[:PAIR_INPUTS]]


PAIR_INPUTS = 7


def pair_request(
    pair: str,
    target: str | None,
    draft: str | None,
    target_quantization: str,
    draft_quantization: str,
    dtype: str,
    device: str,
) -> PairRequest:
    """The pair that the controls' values name.

    Raises:
        PairError: no name is typed in, a server is chosen, or a name is unknown.
    """
    server = server_of(pair)
    if server is not None:
        raise PairError(f"pair: {needs_models(server)}")
    held = (None if device == BEST else device, dtype, target_quantization, draft_quantization)
    if pair != CUSTOM:
        return request_pair(pair, *held)
    typed = [part.strip() for part in (target or "", draft or "")]
    if not typed[0]:
        raise PairError("target: it is empty; type a repository of the hub (owner/name) or a folder's path.")
    return request_models(typed[0], typed[1] or None, *held)


def named(pair: str, target: str | None, *_: str) -> bool:
    """Whether the controls name a pair yet."""
    return pair != CUSTOM or bool((target or "").strip())


def parts_of(pair: str, target: str | None, draft: str | None) -> frozenset[str]:
    """What the chosen pair has besides its target; a draft is assumed until a custom target alone is typed in."""
    if server_of(pair) is not None:  # it drafts by itself
        return frozenset({"draft"})
    if pair != CUSTOM:
        return catalog()[pair].parts
    second = (draft or "").strip()
    if second and named_like_head(second):
        return frozenset({"head"})
    return frozenset({"draft"} if second or not (target or "").strip() else ())


def create_pair_controls() -> PairControls:
    """Build the controls in the current layout; the fields for names are shown for a custom pair only."""
    room = free_memory(best_device())
    local = [(_sized(entry, room), entry.id) for entry in catalog().values()]
    choices = [*local, *pair_choices()]
    if not is_public():
        choices.append(("Custom: your own models…", CUSTOM))
    first = next(iter(catalog().values()))
    pair = gr.Dropdown(choices, value=first.id, label="Model pair", elem_id="pair")
    with gr.Column(visible=False, elem_id="custom-pair") as custom:
        target = gr.Textbox(
            label="Target: owner/name on the hub, or a folder",
            placeholder="Qwen/Qwen3-4B",
            max_lines=1,
            elem_id="custom-target",
        )
        draft = gr.Textbox(
            label="Draft or EAGLE-3 head, may be empty",
            placeholder="Qwen/Qwen3-0.6B",
            max_lines=1,
            elem_id="custom-draft",
        )
    card = gr.HTML(value=None, padding=False, elem_id="pair-card")
    with gr.Row(elem_classes="actions"):
        load = gr.Button("Load", size="sm", visible=False, elem_id="load", min_width=120)
        cancel = gr.Button("Stop loading", size="sm", visible=False, elem_id="cancel-load", min_width=120)
    with gr.Accordion("Precision and device", open=False, elem_id="precision") as precision:
        weights = [("as they are", NONE), *((name, name) for name in QUANTIZATIONS)]
        *quantized, dtype, _ = held_as(first.id)
        with gr.Row(elem_classes="pairwise"):
            quantizations = [
                _small_dropdown(weights, held, f"{role.capitalize()} weights", f"{role}-quantization")
                for held, role in zip(quantized, ("target", "draft"), strict=True)
            ]
        with gr.Row(elem_classes="pairwise"):
            types = _small_dropdown(["auto", *DTYPES], dtype, "Type", "dtype")
            places = _small_dropdown(devices(), BEST, "Device", "device")
        if hint := bfloat16_hint():
            gr.HTML(f"<p>{hint}</p>", padding=False, elem_id="bfloat16-hint")
    controls = PairControls(pair, target, draft, *quantizations, types, places, card, load, cancel)
    # What is shown follows the value, whoever sets it; values follow a person's choice only: a link has its own.
    pair.change(
        lambda name: [gr.update(visible=name == CUSTOM), gr.update(visible=server_of(name) is None)],
        pair,
        [custom, precision],
        **QUIET,
    )
    pair.input(lambda name: list(held_as(name)), pair, controls.inputs()[3:], **QUIET)
    return controls


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


def held_as(pair: str) -> tuple[str, str, str, str]:
    """The values of the other controls that a pair brings: both quantisations, type and device."""
    entry = catalog().get(pair)
    if entry is None:
        return NONE, NONE, "auto", BEST
    quantizations = (entry.target_quantization or NONE, entry.draft_quantization or NONE)
    return *quantizations, entry.dtype or "auto", entry.device or BEST


def _small_dropdown(choices: list[Any], value: str, label: str, element: str) -> gr.Dropdown:
    return gr.Dropdown(choices, value=value, label=label, min_width=110, elem_id=element)


def devices() -> list[tuple[str, str]]:
    """(label, name) of this machine's devices, with torch's names."""
    found = [("CPU", "cpu"), *((f"GPU {n}", f"cuda:{n}") for n in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        found.append(("Apple GPU", "mps"))
    return [("the best here", BEST), *found, ("spread (device map)", "auto")]
