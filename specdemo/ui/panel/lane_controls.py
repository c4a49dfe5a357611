"""What a person chooses for one lane: its method, and the options that the method reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError
from specdemo.settings import ACCEPTANCE_RULES, MAX_GAMMA, MAX_LOOKUP_NGRAM, MAX_TREE_NODES, TREE_RULES, Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.methods import NO_LANE, find_method, local_methods, method_choices


@dataclass(frozen=True, slots=True)
class LaneControls:
    """The components of one lane: the method, then its options, called as the fields of ``Settings``."""

    method: gr.Dropdown
    gamma: gr.Slider
    adaptive_gamma: gr.Checkbox
    tree_nodes: gr.Dropdown
    acceptance: gr.Dropdown
    accept_top_k: gr.Number
    lookup_ngram: gr.Slider
    exit_layer: gr.Number

    def inputs(self) -> list[gr.components.Component]:
        """What :func:`lane_settings` reads, in its order."""
        return [getattr(self, f.name) for f in fields(self)]


TREE_CHOICES = [
    ("none: one guess a position", "0"),
    *((f"{n} tokens", str(n)) for n in (4, 6, 8, 12, 16, 24, 32, 48, 64)),
]
GAMMA_OF_CHAINS, GAMMA_OF_TREES = "γ, tokens drafted per round", "γ, depth of the draft tree"
LANE_INPUTS = len(fields(LaneControls))
OPTIONS = tuple(f.name for f in fields(LaneControls)[1:])


def lane_settings(method: str, *values: Any, **shared: Any) -> Settings | None:
    """One lane's settings; None for no lane.

    Args:
        method: the value of its control.
        values: of the other controls, in the order of ``OPTIONS``. Only those that the method reads are read: an
            option that is hidden cannot be wrong.
        shared: fields of ``Settings`` that all lanes share.

    Raises:
        SettingsError: a value is missing or out of range; names the field.
    """
    if method == NO_LANE:
        return None
    chosen = find_method(method)
    if chosen is None:
        raise SettingsError("method", f"{method!r:.80} is not known; choose one of {', '.join(local_methods())}.")
    if chosen.server is not None:  # γ and the rule, which is lossless, are the server's own
        served = {
            "engine": "server",
            "server": chosen.server,
            "acceptance": "sampling" if shared.get("temperature") else "exact",
            # Whether a server has a template is not known here, so the box is taken at its word.
            "chat": shared.get("chat") is not False,
        }
        return Settings(strategy=chosen.strategy, **{**shared, **served})
    given = dict(zip(OPTIONS, values, strict=True))
    read = {name: _option(name, given[name]) for name in shown_options(method, given["acceptance"])}
    drafter = {"drafter": chosen.drafter.name} if chosen.drafter else {}
    return Settings(strategy=chosen.strategy, **drafter, **read, **shared)


def option_values(settings: Settings) -> list[Any]:
    """What a lane's controls hold for its settings, in the order of ``OPTIONS``: the way back."""
    held = {name: getattr(settings, name) for name in OPTIONS}
    return [*(held | {"tree_nodes": str(settings.tree_nodes), "exit_layer": settings.exit_layer or 0}).values()]


def option_name(field: str) -> str:
    """What links and elements call an option, by its field of ``Settings``."""
    return "adaptive" if field == "adaptive_gamma" else field.replace("_", "-")


def shown_options(method: str, acceptance: str) -> list[str]:
    """The options that a method reads, which are the ones that are shown; none of a server's method.

    Args:
        method: its name.
        acceptance: the chosen rule.
    """
    chosen = find_method(method)
    if chosen is None or chosen.drafter is None:
        return []
    ours = chosen.strategy == "speculative"
    read = {
        "gamma": True,
        "adaptive_gamma": ours or chosen.drafter.needs == "draft",  # transformers adapts to a draft model only
        "tree_nodes": ours and chosen.drafter.trees and acceptance in TREE_RULES,
        "acceptance": ours,
        "accept_top_k": ours and acceptance == "top_k",
    }
    return [name for name in OPTIONS if read.get(name, name in chosen.drafter.reads)]


def _option(name: str, value: Any) -> Any:
    if name == "acceptance":
        return value
    if name == "adaptive_gamma":
        return bool(value)
    if name == "tree_nodes":
        text = str(value).strip()
        return int(text) if text.isdecimal() else text  # which Settings refuses
    number = whole(name, value)
    return None if name == "exit_layer" and number == 0 else number  # 0 leaves the choice to the drafter


def whole(field: str, value: float | None) -> int | float:
    """JSON knows one kind of number; what is whole becomes an int, the rest is left for Settings to refuse."""
    if value is None:
        raise SettingsError(field, "is empty; give a whole number.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def create_lane(number: int, method: str, *, optional: bool, parts: Collection[str]) -> LaneControls:
    """Build one lane's controls in the current layout; only those that its method reads are shown.

    ``parts``: what the pair has besides its target.
    """
    defaults = Settings()
    shown = shown_options(method, defaults.acceptance)

    def option(kind: type[Any], name: str, label: str, **look: Any) -> Any:
        return kind(label=label, elem_id=f"lane{number}-{option_name(name)}", visible=name in shown, **look)

    def slider(name: str, label: str, most: int, **look: Any) -> gr.Slider:
        value = getattr(defaults, name)
        look |= {"buttons": []}  # a button that resets it stands in no relation to its use
        return option(gr.Slider, name, label, minimum=1, maximum=most, value=value, step=1, **look)

    rules = [(label, name) for name, label in ACCEPTANCE_RULES.items()]
    # What a tab does not use it dims as a whole, by the classes of these columns.
    with gr.Column(elem_classes="lane-part lane-how"):
        way = gr.Dropdown(
            method_choices(parts=parts, quantized=False, optional=optional),
            value=method,
            label="Decodes by",
            elem_id=f"lane{number}-method",
        )
    with gr.Column(elem_classes="lane-part lane-gamma"):
        gamma = slider("gamma", GAMMA_OF_CHAINS, MAX_GAMMA, info=_note(method))
        adapt = "Adapt γ in every round"
        adaptive = option(gr.Checkbox, "adaptive_gamma", adapt, value=False, container=False)
        tree = option(
            gr.Dropdown,
            "tree_nodes",
            "Draft tree, tokens per round",
            info=f"Any number from 2 to {MAX_TREE_NODES} can be typed.",
            choices=TREE_CHOICES,
            value="0",
            allow_custom_value=True,
        )
    with gr.Column(elem_classes="lane-part lane-how"):
        rule = option(gr.Dropdown, "acceptance", "Acceptance", choices=rules, value=defaults.acceptance)
        top = "Accept among the target's top"
        accept_top_k = option(gr.Number, "accept_top_k", top, value=defaults.accept_top_k, precision=0)
        ngram = slider("lookup_ngram", "Longest match, tokens", MAX_LOOKUP_NGRAM)
        layer = option(gr.Number, "exit_layer", "Layers that draft, 0 for a third", value=0, precision=0)
    lane = LaneControls(way, gamma, adaptive, tree, rule, accept_top_k, ngram, layer)

    def show(method: str, acceptance: str, tree: str) -> list[Any]:
        shown = shown_options(method, acceptance)
        looks: dict[str, dict[str, Any]] = {name: {"visible": name in shown} for name in OPTIONS}
        chains = "tree_nodes" not in shown or tree == "0"
        looks["gamma"] |= {"info": _note(method), "label": GAMMA_OF_CHAINS if chains else GAMMA_OF_TREES}
        return [gr.update(**look) for look in looks.values()]

    read = [lane.method, lane.acceptance, lane.tree_nodes]
    for trigger in read:
        trigger.change(show, read, lane.inputs()[1:], **QUIET)
    return lane


def _note(method: str) -> str | None:
    """What the table of drafters says of a method to people; None if it says nothing."""
    chosen = find_method(method)
    return (chosen.drafter.note or None) if chosen and chosen.drafter else None
