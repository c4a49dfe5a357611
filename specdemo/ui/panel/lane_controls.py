"""What a person chooses for one lane: its method, and the options that the method reads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError
from specdemo.settings import ACCEPTANCE_RULES, MAX_GAMMA, MAX_LOOKUP_NGRAM, Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.methods import NO_LANE, find_method, local_methods, method_choices


@dataclass(frozen=True, slots=True)
class LaneControls:
    """The components of one lane: the method, then its options, called as the fields of ``Settings``."""

    method: gr.Dropdown
    gamma: gr.Slider
    adaptive_gamma: gr.Checkbox
    acceptance: gr.Dropdown
    accept_top_k: gr.Number
    lookup_ngram: gr.Slider
    exit_layer: gr.Number

    def inputs(self) -> list[gr.components.Component]:
        """What :func:`lane_settings` reads, in its order."""
        return [getattr(self, f.name) for f in fields(self)]


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
        "acceptance": ours,
        "accept_top_k": ours and acceptance == "top_k",
    }
    return [name for name in OPTIONS if read.get(name, name in chosen.drafter.reads)]


def _option(name: str, value: Any) -> Any:
    if name == "acceptance":
        return value
    if name == "adaptive_gamma":
        return bool(value)
    number = whole(name, value)
    return None if name == "exit_layer" and number == 0 else number  # 0 leaves the choice to the drafter


def whole(field: str, value: float | None) -> int | float:
    """JSON knows one kind of number; what is whole becomes an int, the rest is left for Settings to refuse."""
    if value is None:
        raise SettingsError(field, "is empty; give a whole number.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def create_lane(number: int, method: str, *, optional: bool) -> LaneControls:
    """Build one lane's controls in the current layout; only those that its method reads are shown."""
    defaults = Settings()
    shown = shown_options(method, defaults.acceptance)

    def option(kind: type[Any], name: str, label: str, **look: Any) -> Any:
        element = f"lane{number}-{'adaptive' if name == 'adaptive_gamma' else name.replace('_', '-')}"
        return kind(label=label, elem_id=element, visible=name in shown, **look)

    def slider(name: str, label: str, most: int, **look: Any) -> gr.Slider:
        value = getattr(defaults, name)
        return option(gr.Slider, name, label, minimum=1, maximum=most, value=value, step=1, **look)

    rules = [(label, name) for name, label in ACCEPTANCE_RULES.items()]
    lane = LaneControls(
        method=gr.Dropdown(
            method_choices(has_draft=True, quantized=False, optional=optional),
            value=method,
            label="Decodes by",
            elem_id=f"lane{number}-method",
        ),
        gamma=slider("gamma", "γ, tokens drafted per round", MAX_GAMMA, info=_note(method)),
        adaptive_gamma=option(
            gr.Checkbox, "adaptive_gamma", "Adapt γ in every round", value=False, container=False
        ),
        acceptance=option(gr.Dropdown, "acceptance", "Acceptance", choices=rules, value=defaults.acceptance),
        accept_top_k=option(
            gr.Number, "accept_top_k", "Accept among the target's top", value=defaults.accept_top_k, precision=0
        ),
        lookup_ngram=slider("lookup_ngram", "Longest match, tokens", MAX_LOOKUP_NGRAM),
        exit_layer=option(gr.Number, "exit_layer", "Layers that draft, 0 for a third", value=0, precision=0),
    )

    def show(method: str, acceptance: str) -> list[Any]:
        shown = shown_options(method, acceptance)
        looks: dict[str, dict[str, Any]] = {name: {"visible": name in shown} for name in OPTIONS}
        looks["gamma"]["info"] = _note(method)
        return [gr.update(**look) for look in looks.values()]

    for trigger in (lane.method, lane.acceptance):
        trigger.change(show, [lane.method, lane.acceptance], lane.inputs()[1:], **QUIET)
    return lane


def _note(method: str) -> str | None:
    """What the table of drafters says of a method to people; None if it says nothing."""
    chosen = find_method(method)
    return (chosen.drafter.note or None) if chosen and chosen.drafter else None
