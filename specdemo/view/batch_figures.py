"""The table of a batch's figures, each with its formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.analysis.batch_metrics import BatchMetrics

NOTHING = "–"
ROWS = (
    ("tokens/s of the batch", "tokens of all rows after the first / (seconds − TTFT)", "tokens_per_second", ".1f"),
    (
        "tokens/s of a row",
        "its own tokens over its own time, slowest to fastest row",
        "row_tokens_per_second",
        ".1f",
    ),
    ("time", "the clock at the end of the last row, which all rows share", "seconds", ".2f"),
    ("TTFT", "time to the first tokens: the prefill of all rows", "ttft", ".3f"),
    ("rounds", "forwards of the target after the prefill", "rounds", ",d"),
    ("τ", "tokens that a row keeps of a round it takes part in", "mean_acceptance_length", ".2f"),
    ("accepted", "Σ accepted / Σ drafted, all rows", "acceptance_rate", ".1%"),
    ("rows in a round", "rows that took part, on average; the batch shrinks as rows end", "mean_rows", ".1f"),
    ("padding", "positions computed only to fill up shorter rows / all positions computed", "padding", ".1%"),
    ("idle cache", "KV cache slots read that held nothing of their row / all slots read", "idle_slots", ".1%"),
    ("overhead", "time outside model forwards / time after the prefill", "other_share", ".1%"),
)
UNITS = {"seconds": "\u202fs", "ttft": "\u202fs"}


def batch_figures(batches: Sequence[BatchMetrics]) -> list[dict[str, Any]]:
    """Rows of label, formula and one value a batch, as text."""
    return [
        {"label": label, "formula": formula, "values": [_text(getattr(b, name), form, name) for b in batches]}
        for label, formula, name, form in ROWS
    ]


def _text(value: Any, form: str, name: str) -> str:
    if isinstance(value, list):
        known = [v for v in value if v is not None]
        return f"{min(known):{form}}–{max(known):{form}}" if known else NOTHING
    return NOTHING if value is None else f"{value:{form}}{UNITS.get(name, '')}"
