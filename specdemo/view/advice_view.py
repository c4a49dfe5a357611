"""The advisor's report as a chart of intervals."""

from __future__ import annotations

from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.rows import Row
from specdemo.view.progress_text import counted
from specdemo.view.templates import fill

MOST_IN_CHART = 16
DASHED = "Dashed: over the runs on these prompts; there are too few prompts to speak of others."
OWN_CHOICE = ("strategy", "drafter", "gamma", "adaptive_gamma", "tree_nodes")
"""Settings that the advisor chooses."""


def forest(report: AdviceReport) -> str:
    """A chart of speed-ups with their intervals, one line a contender, as HTML without scripts.

    Intervals that are of these prompts alone are dashed, with a line that says so. Plain decoding, which the
    others are held against, is shown wherever it ranks.
    """
    known = [row for row in report.rows if row.speedup is not None]
    rows = [row for n, row in enumerate(known) if n < MOST_IN_CHART or row.settings.strategy == "autoregressive"]
    top = 1.08 * max([1.0, *(min(_ends(row)[1], 2.5 * row.range[0]) for row in rows)])
    notes = [DASHED] if any(row.interval_over == "runs" for row in rows) else []
    if more := len(known) - len(rows):
        notes.append(f"{counted(more, 'more setting stands', 'more settings stand')} in the table.")
    return fill("advice-forest.html", lines=[_line(row, top) for row in rows], one=100 / top, notes=notes)


def _ends(row: Row) -> list[float]:
    return row.interval or [row.range[0], row.range[0]]


def _line(row: Row, top: float) -> dict[str, Any]:
    """A contender's line of the chart, its places in per cent of the width."""
    low, place, high = (100 * min(value, top) / top for value in (_ends(row)[0], row.range[0], _ends(row)[1]))
    return {
        "state": row.verdict.split(",")[0].replace(" ", "-"),
        "name": row.name,
        "over": row.interval_over,
        "speedup": row.speedup,
        "low": low,
        "place": place,
        "high": max(low, high),
    }
