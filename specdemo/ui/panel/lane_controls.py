"""The controls of one lane: its method, and the options that the method reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gradio as gr

from specdemo.settings import MAX_TREE_NODES, Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.lanes import OPTIONS, shown_options
from specdemo.ui.state.methods import NOTES, find_method, method_choices
from specdemo.ui.state.state import parameter_of

TREE_CHOICES = [
    ("none: one guess a position", "0"),
    *((f"{n} tokens", str(n)) for n in (4, 6, 8, 12, 16, 24, 32, 48, 64)),
]
SHOW = "(...read) => window.SpecDemoPanel.options(...read)"


def create_lane(controls: Controls, number: int, method: str, parts: Collection[str]) -> None:
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
    gr.on([each.change for each in read], None, read, options, js=SHOW, **QUIET)
