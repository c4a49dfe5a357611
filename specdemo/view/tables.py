"""Measured figures as text, and reports as tables: of one list of columns every kind of report shows its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.report import Report
from specdemo.analysis.sweep_report import SweepReport

NOTHING = "–"
"""Stands where nothing was measured."""

Column = tuple[str, str, Callable[[Any], str]]
"""A figure's name, its formula, and its text for what was measured: a row of a report, a lane, a batch."""


def table_html(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """The table, with the column's formula as the tip of every cell."""
    head = "".join(f'<th scope="col" title="{escape(tip)}">{escape(name)}</th>' for name, tip, _ in columns)
    lines = (
        "".join(f'<td title="{escape(tip)}">{escape(read(row))}</td>' for _, tip, read in columns) for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def number(value: float | None, form: str, unit: str = "") -> str:
    """A figure, or a dash where nothing was measured."""
    return NOTHING if value is None else f"{value:{form}}{unit}"


def rate(value: float | None) -> str:
    """Tokens a second with four digits, so that two of them divide to the ratio that stands beside them."""
    return NOTHING if value is None else f"{value:.{1 if value >= 100 else 2 if value >= 10 else 3}f}"


def spread(value: float | None, low: float | None, high: float | None, form: str, unit: str = "") -> str:
    """A median with its lowest and highest, if they differ as written."""
    middle, ends = number(value, form, unit), [number(end, form) for end in (low, high)]
    return middle if ends[0] == ends[1] else f"{middle} ({ends[0]}–{ends[1]})"


def _speedup(row: Any) -> str:
    if not getattr(row, "verdict", True):
        return spread(row.speedup, row.speedup_low, row.speedup_high, ".2f", "×")
    over = " over runs" if row.interval_over == "runs" else ""
    between = f" [{row.interval[0]:.2f}, {row.interval[1]:.2f}]{over}" if row.interval else ""
    return f"{number(row.speedup, '.2f', '×')}{between}"


_COLUMNS: tuple[Column, ...] = (
    ("method", "who drafts, and how many tokens a round (γ)", lambda r: r.name),
    ("γ", "drafted tokens a round", lambda r: number(r.gamma, "d")),
    ("rows", "prompts decoded together", lambda r: number(r.size, "d")),
    (
        "speed-up",
        "plain seconds a token / speculative seconds a token, each repeat against its own plain runs: the median, "
        "and from the worst repeat to the best. Of every method: the geometric mean over the prompts, in brackets "
        "its 95 % interval over prompts; over runs, where prompts are few, it is of these prompts alone",
        _speedup,
    ),
    (
        "predicted",
        "(1 + o₀) Σ τ(d) / Σ (d·c + v(d) + o) over the rounds, d the tokens a round drafted, "
        "τ(d) = 1 + Σⱼ Πᵢ≤ⱼ aᵢ from the share aᵢ of rounds that kept token i where it was reached, "
        "v(d) on the line from v(0) = 1 to v(γ), o₀ the overhead of a plain step",
        lambda r: number(r.predicted_speedup, ".2f", "×"),
    ),
    (
        "τ/(γc+v)",
        "the same for endless decoding: every round drafts γ, and nothing but models takes time",
        lambda r: number(r.expected_speedup, ".2f", "×"),
    ),
    (
        "tokens/s",
        "decoded tokens / decode time, of all prompts or rows together; of repeats in the one whose speed-up is "
        "shown",
        lambda r: rate(r.tokens_per_second),
    ),
    ("plain tokens/s", "the same of plain decoding", lambda r: rate(r.plain_tokens_per_second)),
    ("accepted", "Σ accepted / Σ drafted", lambda r: number(r.acceptance_rate, ".1%")),
    (
        "τ",
        "tokens after the first / rounds, the target's own included; of a batch what a row keeps of a round",
        lambda r: number(r.mean_acceptance_length, ".2f"),
    ),
    ("c", "median draft step / median target step", lambda r: number(r.draft_cost, ".3f")),
    ("v(γ)", "median forward over γ + 1 tokens / median target step", lambda r: number(r.verify_cost, ".2f")),
    ("o", "median other time of a round / median target step", lambda r: number(r.overhead_cost, ".3f")),
    ("rounds", "target forwards after the prefills, over all runs", lambda r: number(r.rounds, ",")),
    ("padding", "positions that only filled up shorter rows", lambda r: number(r.padding, ".1%")),
    ("idle cache", "cache slots read that held nothing of their row", lambda r: number(r.idle_slots, ".1%")),
    ("overhead", "time outside model forwards", lambda r: number(r.other_share, ".1%")),
    ("memory", "largest peak of its runs", lambda r: NOTHING if r.memory is None else f"{r.memory / 1e9:.2f} GB"),
    ("runs", "each on one prompt", lambda r: number(r.runs, "d")),
    ("seconds", "of the budget", lambda r: number(r.seconds, ".1f")),
    ("verdict", "and why it was dropped", lambda r: f"{r.verdict}: {r.dropped}" if r.dropped else r.verdict),
)
COLUMNS = {column[0]: column for column in _COLUMNS}
"""Of a ``Row``, by name."""
KIND_COLUMNS: tuple[Column, ...] = (
    ("kind", "of the prompts", lambda r: r.kind),
    ("prompts", "of this kind that were decoded", lambda r: number(r.prompts, "d")),
    ("fastest", "on the prompts of this kind", lambda r: r.method),
    ("speed-up", "as in the table above, of these prompts", _speedup),
)
SHOWN: dict[type[Report], tuple[str, ...]] = {
    SweepReport: (
        *(
            "γ",
            "speed-up",
            "predicted",
            "τ/(γc+v)",
            "tokens/s",
            "plain tokens/s",
            "accepted",
            "τ",
            "c",
            "v(γ)",
            "o",
        ),
        "rounds",
    ),
    AdviceReport: (
        *("method", "speed-up", "tokens/s", "accepted", "τ", "c", "v(γ)", "memory", "runs", "seconds"),
        "verdict",
    ),
    SizeReport: (
        *("rows", "speed-up", "plain tokens/s", "tokens/s", "accepted", "τ", "padding", "idle cache", "overhead"),
    ),
}


def columns(names: Sequence[str]) -> list[Column]:
    """The columns of these names."""
    return [COLUMNS[name] for name in names]


def report_table(report: Report) -> str:
    """The table of a report as HTML, without columns that nothing is known of; and of advice the one by kind."""
    known = [c for c in columns(SHOWN[type(report)]) if any(c[2](row) != NOTHING for row in report.rows)]
    kinds = report.by_kind if isinstance(report, AdviceReport) else ()
    return table_html(known, report.rows) + (table_html(KIND_COLUMNS, kinds) if kinds else "")
