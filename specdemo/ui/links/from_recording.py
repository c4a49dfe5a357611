"""The link that would set the panel to what a recording ran with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdemo.drafters import DRAFTERS
from specdemo.models.catalog import catalog
from specdemo.models.request import BETWEEN
from specdemo.recording import Recording
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.ui.links.fields import METHOD_FIELDS, lane_field
from specdemo.ui.panel.lane_controls import OPTIONS, option_name, option_values
from specdemo.ui.panel.methods import NO_LANE, PLAIN, UNQUANTIZED, server_method
from specdemo.ui.panel.server_choice import pair_name

LANES = range(1, len(METHOD_FIELDS) + 1)


def query_of(recording: Recording) -> dict[str, str]:
    """The parameters of the race and their texts; :func:`specdemo.ui.links.links.from_query` reads them.

    Precision and device are those of the pair here, not of the machine that recorded.
    """
    shared = recording.traces[0].settings
    query: dict[str, Any] = {
        **_pair(recording.traces),
        "prompt": recording.prompt or "",
        "length": shared.max_new_tokens,
        "ignore-eos": int(shared.ignore_eos),
        "temperature": shared.temperature,
        "top-k": shared.top_k,
        "top-p": shared.top_p,
        "seed": shared.seed,
        "chat": int(shared.chat is not False),
        "engine": shared.engine if shared.server is None else "auto",
    }
    for number in LANES:
        if number <= len(recording.traces):
            query |= _lane(number, recording.traces[number - 1], recording.traces)
        else:
            query[lane_field(number, "method")] = NO_LANE
    return {name: str(value) for name, value in query.items()}


def _pair(traces: tuple[Trace, ...]) -> Mapping[str, Any]:
    here = next((t for t in traces if t.server is None), None)
    if here is None:
        server = traces[0].settings.server
        return {"pair": pair_name(server)} if server else {}
    weights = next((t.quantization for t in traces if t.quantization), None)
    held = {"target-weights": weights} if weights else {}
    if here.pair in catalog():
        return {"pair": here.pair, **held}
    target, _, draft = here.pair.partition(BETWEEN)
    return {"target": target.strip('"'), "draft": draft.strip('"'), **held}


def _lane(number: int, trace: Trace, traces: tuple[Trace, ...]) -> dict[str, Any]:
    held = zip(map(option_name, OPTIONS), option_values(trace.settings), strict=True)
    options = {name: int(value) if isinstance(value, bool) else value for name, value in held}
    options["method"] = _method(trace, traces)
    return {lane_field(number, name): value for name, value in options.items()}


def _method(trace: Trace, traces: tuple[Trace, ...]) -> str:
    settings: Settings = trace.settings
    plain = settings.strategy == "autoregressive"
    if settings.server is not None:
        return server_method(settings.server, PLAIN if plain else "speculative")
    if plain:
        quantized = any(t.quantization for t in traces)
        return UNQUANTIZED if quantized and trace.quantization is None else PLAIN
    spec = DRAFTERS[settings.drafter]
    return spec.method if settings.strategy == "speculative" else spec.assisted or spec.method
