"""A lane of the page's state as settings, and which options its method reads."""

from __future__ import annotations

from typing import Any

from specdemo.errors import SettingsError
from specdemo.settings import TREE_RULES, Settings
from specdemo.ui.state.methods import NO_LANE, NOTES, Method, find_method, local_methods
from specdemo.ui.state.state import FirstLane

OPTIONS = tuple(FirstLane.model_fields)[1:]
"""The fields of a lane besides its method; each is a setting."""
OF_RULES = {"tree_nodes": TREE_RULES, "accept_top_k": ("top_k",)}
"""The acceptance rules without which an option is not read."""


def lane_settings(lane: FirstLane, **shared: Any) -> Settings | None:
    """One lane's settings; None for no lane.

    Args:
        lane: only the options that its method reads are read: one that is hidden cannot be wrong.
        shared: fields of ``Settings`` that all lanes share.

    Raises:
        SettingsError: a value is missing or out of range; names the field.
    """
    if lane.method == NO_LANE:
        return None
    chosen = find_method(lane.method)
    if chosen is None:
        raise SettingsError(
            "method", f"{lane.method!r:.80} is not known; choose one of {', '.join(local_methods())}."
        )
    if chosen.server is not None:  # γ and the rule, which is lossless, are the server's own
        served = {
            "engine": "server",
            "server": chosen.server,
            "acceptance": "sampling" if shared.get("temperature") else "exact",
            # Whether a server has a template is not known here, so the box is taken at its word.
            "chat": shared.get("chat") is not False,
        }
        return Settings(strategy=chosen.strategy, **{**shared, **served})
    read = {name: _option(name, getattr(lane, name)) for name in shown_options(lane.method, lane.acceptance)}
    drafter: dict[str, Any] = {"drafter": chosen.drafter.name} if chosen.drafter else {}
    return Settings(strategy=chosen.strategy, **drafter, **read, **shared)


def option_values(settings: Settings) -> list[Any]:
    """What a lane's controls hold for its settings, in the order of ``OPTIONS``: the way back."""
    held = {name: getattr(settings, name) for name in OPTIONS}
    return [*(held | {"tree_nodes": str(settings.tree_nodes), "exit_layer": settings.exit_layer or 0}).values()]


def shown_options(method: str, acceptance: str) -> list[str]:
    """The options that a method reads with an acceptance rule, which are the ones that are shown."""
    return [name for name in _read_by(find_method(method)) if acceptance in OF_RULES.get(name, (acceptance,))]


def lane_table() -> dict[str, Any]:
    """For panel.js: what :func:`shown_options` goes by, and what is said of each method."""
    methods = {
        name: {"reads": _read_by(method), "note": NOTES.get(method.drafter.name, "") if method.drafter else ""}
        for name, method in local_methods().items()
    }
    return {"options": OPTIONS, "rules": OF_RULES, "methods": methods}


def _read_by(method: Method | None) -> list[str]:
    """The options of a method, some of them with some acceptance rules only; none of a server's method."""
    if method is None or method.drafter is None:
        return []
    ours = method.strategy == "speculative"
    read = {
        "gamma": True,
        "adaptive_gamma": ours or method.drafter.needs == "draft",  # transformers adapts to a draft model only
        "tree_nodes": ours and method.drafter.trees,
        "acceptance": ours,
        "accept_top_k": ours,
    }
    return [name for name in OPTIONS if read.get(name, name in method.drafter.reads)]


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
