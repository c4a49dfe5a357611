"""What goes with a choice: the values that it brings, and of other choices those that it leaves.

Links, recordings and a person's input all go by these. ``values`` are those of the page, by parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specdemo.drafters import all_with, first_choice
from specdemo.models.request import catalog, is_public
from specdemo.runs.beside import can_write
from specdemo.settings import ACCEPTANCE_RULES
from specdemo.ui.state.methods import method_choices, methods_on, nearest_method, server_of
from specdemo.ui.state.request import chats, parts_of
from specdemo.ui.state.state import CUSTOM, GREEDY, METHOD_PARAMETERS, NONE, of_lanes, precision_of

Values = Mapping[str, Any]
MODE, RULE, DRAFTER = "losslessness.mode", "losslessness.rule", "losslessness.drafter"
OFFERED = (*METHOD_PARAMETERS, DRAFTER)
"""What depends on what the pair can draft with."""


def choices_left(name: str, values: Values) -> list[tuple[str, str]] | None:
    """(label, value) of the choices that the parameters before leave to one; None where they leave all."""
    if name == RULE:  # exact match compares single best tokens, which sampling has not
        exact = values[MODE] == GREEDY
        return [(label, rule) for rule, label in ACCEPTANCE_RULES.items() if exact or rule != "exact"]
    if name == DRAFTER:
        return [(spec.label, spec.name) for spec in all_with(_parts(values))]
    if name not in METHOD_PARAMETERS:
        return None
    return method_choices(
        parts=_parts(values),
        quantized=values["target-weights"] != NONE,
        optional=name != METHOD_PARAMETERS[0],
        server=server_of(values["pair"]),
        beside=catalog()[pair].gguf and can_write() if (pair := values["pair"]) in catalog() else False,
    )


def nearest_offered(values: Values) -> dict[str, str]:
    """Of what the pair offers each lane's method most like the one in ``values``, and a drafter to check."""
    server = server_of(values["pair"])
    wishes = [values[name] for name in METHOD_PARAMETERS]
    wishes = wishes if server is None else methods_on(server, wishes)
    able = {name: [value for _, value in choices_left(name, values) or ()] for name in OFFERED}
    methods = {name: nearest_method(w, able[name]) for name, w in zip(METHOD_PARAMETERS, wishes, strict=True)}
    drafter = values.get(DRAFTER)
    return {**methods, DRAFTER: drafter if drafter in able[DRAFTER] else first_choice(_parts(values)).name}


def _of_pair(values: Values) -> dict[str, Any]:
    own = {**precision_of(values["pair"]), "chat": chats(values["pair"])}
    return own | nearest_offered({**values, **own})


def _of_temperature(values: Values) -> dict[str, Any]:
    """Greedily rejection sampling comes down to exact match, which has no meaning elsewhere."""
    old, new = ("exact", "sampling") if values["temperature"] else ("sampling", "exact")
    return dict.fromkeys((name for name in of_lanes("acceptance") if values[name] == old), new)


def _of_mode(values: Values) -> dict[str, Any]:
    """In a greedy check exact match is what rejection sampling comes down to; elsewhere it has no meaning."""
    swapped = {"sampling": "exact"} if values[MODE] == GREEDY else {"exact": "sampling"}
    return {RULE: swapped.get(values[RULE], values[RULE])}


BROUGHT: Mapping[str, Callable[[Values], dict[str, Any]]] = {
    "target": lambda values: {"pair": CUSTOM} if values["target"] and not is_public() else {},
    "pair": _of_pair,
    "temperature": _of_temperature,
    MODE: _of_mode,
}
"""By parameter, what others become once it has its value."""


def _parts(values: Values) -> frozenset[str]:
    return parts_of(values["pair"], values["target"], values["draft"])
