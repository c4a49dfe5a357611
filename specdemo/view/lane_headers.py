"""How the page calls the lanes of a race."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from specdemo.drafters import DEFAULT_DRAFTER, DRAFTERS
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.view.server_lanes import server_header, server_names


def lane_headers(
    lanes: Sequence[Settings],
    quantizations: Sequence[str | None] | None = None,
    servers: Sequence[str | None] | None = None,
) -> list[dict[str, Any]]:
    """Title, detail and marks of every lane; equal titles get the lane's number.

    Args:
        lanes: in the order of the page.
        quantizations: of each lane's target; mentioned if any target is quantised.
        servers: the name of each lane's server, None for a lane here; taken from the settings if not given.
    """
    names = list(servers) if servers is not None else server_names(list(lanes))
    alone = len(set(names)) == 1
    headers = [
        _header(s) if name is None else server_header(s, name, alone=alone)
        for s, name in zip(lanes, names, strict=True)
    ]
    if quantizations and any(quantizations):
        for header, weights in zip(headers, quantizations, strict=True):
            served = "server" in header
            header["weights"] = "the server’s weights" if served else f"{weights or 'unquantised'} weights"
            header["detail"] += "" if served else f", {header['weights']}"
    counts = Counter(h["title"] for h in headers)
    for number, header in enumerate(headers, start=1):
        if counts[header["title"]] > 1:
            header["title"] += f" {number}"
    return headers


def trace_headers(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """The headers of lanes that ran; servers have the names that their traces recorded."""
    names = [t.server.name if t.server else None for t in traces]
    return lane_headers([t.settings for t in traces], [t.quantization for t in traces], names)


def engine_note(trace: Trace) -> str | None:
    """The lane's engine, if a person chose one or if the lane ran on another than it should have."""
    if trace.engine is None or (trace.settings.engine == "auto" and ":" not in trace.engine):
        return None
    return trace.engine


def _header(settings: Settings) -> dict[str, Any]:
    if settings.strategy == "autoregressive":
        return {"title": "Plain", "detail": "target only", "gamma": 0, "adaptive": False, "lossy": False}
    spec = DRAFTERS[settings.drafter]
    gamma = "adaptive γ" if settings.adaptive_gamma else f"γ {settings.gamma}"
    if settings.strategy == "assisted":
        by = "" if settings.drafter == DEFAULT_DRAFTER else f"{spec.label}, "
        title, details = "transformers", f"{by}{'its own γ' if settings.adaptive_gamma else gamma}"
    else:
        rule = f"top-{settings.accept_top_k}" if settings.acceptance == "top_k" else settings.acceptance
        title, details = spec.title, f"{gamma}, {rule.replace('_', ' ')}"
    return {
        "title": title,
        "detail": details,
        "gamma": settings.gamma,
        "adaptive": settings.adaptive_gamma,
        "lossy": not settings.lossless,
    }
