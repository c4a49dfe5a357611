"""The link that would set the panel to what a recording ran with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdemo.models.catalog import catalog
from specdemo.models.request import BETWEEN
from specdemo.recording import Recording
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.ui.state.lanes import OPTIONS, option_values
from specdemo.ui.state.methods import NO_LANE, PLAIN, UNQUANTIZED, method_of, server_method
from specdemo.ui.state.request import SHARED
from specdemo.ui.state.server_choice import pair_name
from specdemo.ui.state.state import METHOD_PARAMETERS, parameter_of


def query_of(recording: Recording) -> dict[str, str]:
    """The parameters of the race and their texts; :func:`specdemo.ui.links.links.from_query` reads them.

    Precision and device are those of the pair here, not of the machine that recorded.
    """
    shared = recording.traces[0].settings
    query = {parameter_of(name): getattr(shared, name) for name in SHARED}
    query |= {**_pair(recording.traces), "prompt": recording.prompt or "", "chat": shared.chat is not False}
    if shared.server is not None:
        query["engine"] = "auto"
    for number, method in enumerate(METHOD_PARAMETERS, start=1):
        if number > len(recording.traces):
            query[method] = NO_LANE
            continue
        trace = recording.traces[number - 1]
        query[method] = _method(trace, recording.traces)
        options = zip(OPTIONS, option_values(trace.settings), strict=True)
        query |= {parameter_of(f"lane{number}", name): value for name, value in options}
    return {name: str(int(value) if isinstance(value, bool) else value) for name, value in query.items()}


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


def _method(trace: Trace, traces: tuple[Trace, ...]) -> str:
    settings: Settings = trace.settings
    plain = settings.strategy == "autoregressive"
    if settings.server is not None:
        return server_method(settings.server, PLAIN if plain else "speculative")
    if plain:
        quantized = any(t.quantization for t in traces)
        return UNQUANTIZED if quantized and trace.quantization is None else PLAIN
    return method_of(settings.drafter, settings.strategy)
