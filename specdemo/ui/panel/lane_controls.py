"""What a person chooses for one lane: how it decodes, and the options of that way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError
from specdemo.settings import MAX_GAMMA, MAX_LOOKUP_NGRAM, Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.server_choice import method_name, method_parts, method_settings, offered, server_methods

NO_LANE = "none"
UNQUANTIZED = "plain_unquantized"
METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "plain": ("Plain: the target alone", {"strategy": "autoregressive"}),
    UNQUANTIZED: ("Plain: unquantised target", {"strategy": "autoregressive"}),
    "draft": ("Speculative: draft model", {"strategy": "speculative", "drafter": "model"}),
    "lookup": ("Speculative: prompt lookup", {"strategy": "speculative", "drafter": "prompt_lookup"}),
    "early_exit": ("Speculative: early exit", {"strategy": "speculative", "drafter": "early_exit"}),
    "assisted": ("transformers: draft model", {"strategy": "assisted", "drafter": "model"}),
    "assisted_lookup": ("transformers: prompt lookup", {"strategy": "assisted", "drafter": "prompt_lookup"}),
}
"""Name of a way to decode: what the page calls it, and the settings it stands for."""

ACCEPTANCE_LABELS = {
    "exact": "exact match · lossless",
    "sampling": "rejection sampling · lossless",
    "token_match": "token match · lossless",
    "block": "block verification · lossless",
    "top_k": "among top k · lossy",
    "typical": "typical · lossy",
    "naive": "naive · lossy",
}
EARLY_EXIT_NOTE = "Models not trained to exit early accept little; the output is the target's all the same."


@dataclass(frozen=True, slots=True)
class LaneControls:
    """The components of one lane."""

    method: gr.Dropdown
    gamma: gr.Slider
    adaptive: gr.Checkbox
    acceptance: gr.Dropdown
    accept_top_k: gr.Number
    lookup_ngram: gr.Slider
    exit_layer: gr.Number

    def inputs(self) -> list[gr.components.Component]:
        """What :func:`lane_settings` reads, in its order."""
        return [getattr(self, f.name) for f in fields(self)]


LANE_INPUTS = len(fields(LaneControls))


def lane_settings(
    method: str,
    gamma: float | None,
    adaptive: bool,
    acceptance: str,
    accept_top_k: float | None,
    lookup_ngram: float | None,
    exit_layer: float | None,
    **shared: Any,
) -> Settings | None:
    """One lane's settings from its controls' values and the panel's ``shared`` ones; None for no lane.

    Only what the method uses is read: an option that is hidden cannot be wrong.

    Raises:
        SettingsError: a value is missing or out of range; names the field.
    """
    if method == NO_LANE:
        return None
    served = method_settings(method, shared.get("temperature"))
    if served is not None:
        # Whether a server has a template is not known here, so the box is taken at its word.
        return Settings(**{**shared, **served, "chat": shared.get("chat") is not False})
    if not isinstance(method, str) or method not in METHODS:
        raise SettingsError("method", f"{method!r} is not known; choose one of {', '.join(METHODS)}.")
    chosen: dict[str, Any] = dict(METHODS[method][1])
    if chosen["strategy"] != "autoregressive":
        chosen |= {"gamma": whole("gamma", gamma), "adaptive_gamma": bool(adaptive)}
    if chosen["strategy"] == "speculative":
        chosen["acceptance"] = acceptance
        if acceptance == "top_k":
            chosen["accept_top_k"] = whole("accept_top_k", accept_top_k)
    if chosen.get("drafter") == "prompt_lookup":
        chosen["lookup_ngram"] = whole("lookup_ngram", lookup_ngram)
    if chosen.get("drafter") == "early_exit":
        # 0 leaves the choice to the library.
        chosen["exit_layer"] = whole("exit_layer", exit_layer) or None
    return Settings(**chosen, **shared)


def whole(field: str, value: float | None) -> int | float:
    """JSON knows one kind of number; what is whole becomes an int, the rest is left for Settings to refuse."""
    if value is None:
        raise SettingsError(field, "is empty; give a whole number.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def method_choices(
    *, has_draft: bool, quantized: bool, optional: bool, server: str | None = None
) -> list[tuple[str, str]]:
    """(label, name) of the ways to decode that a pair offers, and after them those of the configured servers.

    Without a draft model those that need none; with a quantised target its unquantised baseline too; with a
    ``server`` in place of models none but servers'.
    """
    here = [
        (label, name)
        for name, (label, settings) in METHODS.items()
        if (has_draft or settings.get("drafter") != "model") and (quantized or name != UNQUANTIZED)
    ]
    choices = [*(here if server is None else []), *server_methods(server)]
    return [("None", NO_LANE), *choices] if optional else choices


def methods_on(server: str, wishes: Sequence[str]) -> list[str]:
    """What each lane does on a server, by what it was wished to do: one lane where there is one deployment."""
    entry = offered().get(server)
    if entry is None:
        return list(wishes)
    strategies = entry.strategies
    only = None if len(strategies) > 1 else "plain" if strategies == ("autoregressive",) else "speculative"
    methods = []
    for lane, wish in enumerate(wishes):
        if wish == NO_LANE or method_parts(wish) is not None:
            methods.append(wish)
        elif only is not None:
            methods.append(method_name(server, only) if lane == 0 else NO_LANE)
        else:
            plain = METHODS[wish][1]["strategy"] == "autoregressive"
            methods.append(method_name(server, "plain" if plain else "speculative"))
    return methods


def wish_of(method: str, server: str | None) -> str:
    """What a choice says of lanes in general: on the chosen ``server`` its ways stand for those of models."""
    parts = method_parts(method)
    if parts is None or parts[0] != server:
        return method
    return "plain" if parts[1] == "plain" else "draft"


def create_lane(number: int, method: str, *, optional: bool) -> LaneControls:
    """Build one lane's controls in the current layout; only those of its method are shown."""
    defaults = Settings()
    shown = _visible(method, defaults.acceptance)
    lane = LaneControls(
        method=gr.Dropdown(
            method_choices(has_draft=True, quantized=False, optional=optional),
            value=method,
            label="Decodes by",
            elem_id=f"lane{number}-method",
        ),
        gamma=gr.Slider(
            1,
            MAX_GAMMA,
            defaults.gamma,
            step=1,
            label="γ, tokens drafted per round",
            elem_id=f"lane{number}-gamma",
            visible=shown["gamma"],
        ),
        adaptive=gr.Checkbox(
            False,
            label="Adapt γ in every round",
            elem_id=f"lane{number}-adaptive",
            container=False,
            visible=shown["adaptive"],
        ),
        acceptance=gr.Dropdown(
            [(label, name) for name, label in ACCEPTANCE_LABELS.items()],
            value=defaults.acceptance,
            label="Acceptance",
            elem_id=f"lane{number}-acceptance",
            visible=shown["acceptance"],
        ),
        accept_top_k=gr.Number(
            defaults.accept_top_k,
            label="Accept among the target's top",
            precision=0,
            elem_id=f"lane{number}-accept-top-k",
            visible=shown["accept_top_k"],
        ),
        lookup_ngram=gr.Slider(
            1,
            MAX_LOOKUP_NGRAM,
            defaults.lookup_ngram,
            step=1,
            label="Longest match, tokens",
            elem_id=f"lane{number}-lookup-ngram",
            visible=shown["lookup_ngram"],
        ),
        exit_layer=gr.Number(
            0,
            label="Layers that draft, 0 for a third",
            info=EARLY_EXIT_NOTE,
            precision=0,
            elem_id=f"lane{number}-exit-layer",
            visible=shown["exit_layer"],
        ),
    )

    def show(method: str, acceptance: str) -> list[Any]:
        visible = _visible(method, acceptance)
        return [gr.update(visible=visible[f.name]) for f in fields(LaneControls)[1:]]

    for trigger in (lane.method, lane.acceptance):
        trigger.change(show, [lane.method, lane.acceptance], lane.inputs()[1:], **QUIET)
    return lane


def _visible(method: str, acceptance: str) -> dict[str, bool]:
    """Which options a way of decoding has."""
    chosen = METHODS[method][1] if method in METHODS else {}
    drafts = chosen.get("strategy") in ("speculative", "assisted")
    ours = chosen.get("strategy") == "speculative"
    return {
        "gamma": drafts,
        "adaptive": drafts and method != "assisted_lookup",
        "acceptance": ours,
        "accept_top_k": ours and acceptance == "top_k",
        "lookup_ngram": chosen.get("drafter") == "prompt_lookup",
        "exit_layer": chosen.get("drafter") == "early_exit",
    }
