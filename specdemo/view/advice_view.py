"""The advisor's report as a table and as a chart of intervals."""

from __future__ import annotations

from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.rows import Row
from specdemo.view.measured_table import NOTHING, Column, number, rate, table_html
from specdemo.view.progress_text import counted
from specdemo.view.templates import fill

MOST_IN_CHART = 16
DASHED = "Dashed: over the runs on these prompts; there are too few prompts to speak of others."
OWN_CHOICE = ("strategy", "drafter", "gamma", "adaptive_gamma", "tree_nodes")
"""Settings that the advisor chooses."""
COLUMNS: tuple[Column, ...] = (
    ("method", "who drafts, and how many tokens a round (γ)", lambda r: r.name),
    (
        "speed-up",
        "geometric mean over the prompts of tokens/s over those of plain decoding in the same block; in brackets "
        "the 95 % interval over prompts; over runs, where prompts are few, it is of these prompts alone",
        lambda r: _speedup(r),
    ),
    ("tokens/s", "decoded tokens / decode time of all its runs", lambda r: rate(r.tokens_per_second)),
    ("accepted", "Σ accepted / Σ drafted", lambda r: number(r.acceptance_rate, ".0%")),
    ("τ", "tokens after the first / rounds", lambda r: number(r.mean_acceptance_length, ".2f")),
    ("c", "median draft step / median target step", lambda r: number(r.draft_cost, ".3f")),
    ("v(γ)", "median forward over γ + 1 tokens / median target step", lambda r: number(r.verify_cost, ".2f")),
    ("memory", "largest peak of its runs", lambda r: NOTHING if r.memory is None else f"{r.memory / 1e9:.2f} GB"),
    ("runs", "each on one prompt", lambda r: number(r.runs, "d")),
    ("seconds", "of the budget", lambda r: number(r.seconds, ".1f")),
    ("verdict", "and why it was dropped", lambda r: f"{r.verdict}: {r.dropped}" if r.dropped else r.verdict),
)
KIND_COLUMNS: tuple[Column, ...] = (
    ("kind", "of the prompts", lambda r: r.kind),
    ("prompts", "of this kind that were decoded", lambda r: number(r.prompts, "d")),
    ("fastest", "on the prompts of this kind", lambda r: r.method),
    ("speed-up", "as in the table above, of these prompts", lambda r: _speedup(r)),
)


def advice_tables(report: AdviceReport) -> str:
    """The table of rows, and the one by kind where there are kinds, as HTML."""
    kinds = table_html(KIND_COLUMNS, report.by_kind) if report.by_kind else ""
    return table_html(COLUMNS, report.rows) + kinds


def forest(report: AdviceReport) -> str:
    """A chart of speed-ups with their intervals, one line a contender, as HTML without scripts.

    Intervals that are of these prompts alone are dashed, with a line that says so. Plain decoding, which the
    others are held against, is shown wherever it ranks.
    """
    known = [row for row in report.rows if row.speedup is not None]
    rows = [row for n, row in enumerate(known) if n < MOST_IN_CHART or row.settings.strategy == "autoregressive"]
    top = 1.08 * max([1.0, *(min(_ends(row)[1], 2.5 * row.speedup) for row in rows)])
    notes = [DASHED] if any(row.interval_over == "runs" for row in rows) else []
    if more := len(known) - len(rows):
        notes.append(f"{counted(more, 'more setting stands', 'more settings stand')} in the table.")
    return fill("advice-forest.html", lines=[_line(row, top) for row in rows], one=100 / top, notes=notes)


def _ends(row: Row) -> list[float]:
    return row.interval or [row.speedup, row.speedup]


def _line(row: Row, top: float) -> dict[str, Any]:
    """A contender's line of the chart, its places in per cent of the width."""
    low, place, high = (100 * min(value, top) / top for value in (_ends(row)[0], row.speedup, _ends(row)[1]))
    return {
        "state": row.verdict.split(",")[0].replace(" ", "-"),
        "name": row.name,
        "over": row.interval_over,
        "speedup": row.speedup,
        "low": low,
        "place": place,
        "high": max(low, high),
    }


def _speedup(row: Any) -> str:
    if row.speedup is None or not row.interval:
        return number(row.speedup, ".2f", "×")
    over = " over runs" if row.interval_over == "runs" else ""
    return f"{row.speedup:.2f}× [{row.interval[0]:.2f}, {row.interval[1]:.2f}]{over}"
