"""A load's progress, as a line for people."""

from __future__ import annotations

from specdemo.models.preflight import gigabytes
from specdemo.models.progress import Step


def describe(step: Step) -> str:
    """What is being done, how far it is, and how long it may take."""
    if step.fraction is None:
        return f"{step.text}…"
    if not step.in_bytes:
        return f"{step.text}: {step.fraction:.0%}"
    parts = [f"{step.text}: {gigabytes(step.done)} of {gigabytes(step.total)}"]
    if step.per_second:
        parts.append(f"{gigabytes(round(step.per_second))}/s")
        parts.append(_left((step.total - step.done) / step.per_second))
    return ", ".join(parts)


def _left(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f}\u00a0s left"
    return f"{seconds / 60:.0f} min left" if seconds < 5400 else f"{seconds / 3600:.1f} h left"
