"""How the page calls the lanes of a race."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from specdemo.settings import Settings
from specdemo.trace import Trace

TITLES = {"model": "Speculative", "prompt_lookup": "Prompt lookup", "early_exit": "Early exit"}


def lane_headers(
    lanes: Sequence[Settings], quantizations: Sequence[str | None] | None = None
) -> list[dict[str, Any]]:
    """Title, detail and marks of every lane; titles that would be the same get the lane's number.

    Args:
        lanes: in the order of the page.
        quantizations: of each lane's target; said where there is any.
    """
    headers = [_header(s) for s in lanes]
    if quantizations and any(quantizations):
        for header, weights in zip(headers, quantizations, strict=True):
            header["weights"] = f"{weights or 'unquantised'} weights"
            header["detail"] += f", {header['weights']}"
    counts = Counter(h["title"] for h in headers)
    for number, header in enumerate(headers, start=1):
        if counts[header["title"]] > 1:
            header["title"] += f" {number}"
    return headers


def engine_note(trace: Trace) -> str | None:
    """What ran a lane's models, where somebody chose it or where it is not what was to be expected."""
    if trace.engine is None or (trace.settings.engine == "auto" and ":" not in trace.engine):
        return None
    return trace.engine


def _header(settings: Settings) -> dict[str, Any]:
    if settings.strategy == "autoregressive":
        return {"title": "Plain", "detail": "target only", "gamma": 0, "adaptive": False, "lossy": False}
    gamma = "adaptive γ" if settings.adaptive_gamma else f"γ {settings.gamma}"
    if settings.strategy == "assisted":
        by = "prompt lookup, " if settings.drafter == "prompt_lookup" else ""
        title, details = "transformers", f"{by}{'its own γ' if settings.adaptive_gamma else gamma}"
    else:
        rule = f"top-{settings.accept_top_k}" if settings.acceptance == "top_k" else settings.acceptance
        title, details = TITLES[settings.drafter], f"{gamma}, {rule.replace('_', ' ')}"
    return {
        "title": title,
        "detail": details,
        "gamma": settings.gamma,
        "adaptive": settings.adaptive_gamma,
        "lossy": not settings.lossless,
    }
