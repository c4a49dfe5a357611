"""Figures of lanes, batches and reports as text, each with the formula that people see when they point at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from string import Formatter
from typing import Any

from specdemo.analysis.advice import AdviceReport, KindRow
from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.report import Report
from specdemo.analysis.speedup import plain_of
from specdemo.analysis.sweep_report import SweepReport
from specdemo.models.request import read_toml
from specdemo.trace import Trace
from specdemo.view.lane_headers import engine_note

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


def _rate(value: float) -> str:
    """Tokens a second with four digits, so that two of them divide to the ratio that stands beside them."""
    return f"{value:.{1 if value >= 100 else 2 if value >= 10 else 3}f}"


def _speedup(row: Any) -> str:
    if getattr(row, "doubt", None):
        return f"at most {row.most:.2f}×" if row.most else NOTHING
    if not getattr(row, "verdict", True):  # the median of repeats, with the worst and the best if they differ
        middle, ends = number(row.speedup, ".2f", "×"), [number(end, ".2f") for end in row.range[1:]]
        return middle if row.speedup is None or ends[0] == ends[1] else f"{middle} ({ends[0]}–{ends[1]})"
    over = " over runs" if row.interval_over == "runs" else ""
    between = f" [{row.interval[0]:.2f}, {row.interval[1]:.2f}]{over}" if row.interval else ""
    return f"{number(row.speedup, '.2f', '×')}{between}"


class _Unknown(Exception):
    """Nothing was measured of a figure."""


FORMATS: dict[str, Callable[[Any], str]] = {
    "bytes": lambda nbytes: f"{nbytes / 1e9:.2f}\u00a0GB",
    "list": lambda values: " · ".join(map(str, values)),
    "range": lambda values: (
        f"{min(known):.1f}–{max(known):.1f}" if (known := [v for v in values if v is not None]) else NOTHING
    ),
    "rate": _rate,
    "share": lambda share: f"{100 * share:.1f}\u00a0%",
    "shares": lambda shares: " · ".join(number(s and 100 * s, ".0f") for s in shares) + "\u00a0%",
    "some": lambda _: "",  # of others that it is known for
    "speedup": _speedup,
    "time": lambda seconds: f"{seconds:.2f}\u00a0s" if seconds >= 1 else f"{1000 * seconds:.1f}\u00a0ms",
    "verdict": lambda row: f"{row.verdict}: {row.dropped}" if row.dropped else row.verdict,
}
"""Besides Python's own."""


class _Figures(Formatter):
    """Writes the attributes of what was measured; without a name that itself."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(args[0], key) if isinstance(key, str) else args[0]

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or (format_spec in ("list", "shares", "some") and not value):
            raise _Unknown
        return FORMATS.get(format_spec, lambda known: format(known, format_spec))(value)


def _read(reads: str, measured: Any) -> str:
    try:
        return _Figures().format(reads, measured)
    except _Unknown:
        return NOTHING


_TEXTS = read_toml(Path(__file__).parent / "figures.toml")
CAPTIONS: dict[str, str] = _TEXTS["captions"]
"""What stands under the charts of measurements."""


def _columns(table: str) -> dict[str, Column]:
    return {name: (name, each["formula"], partial(_read, each["reads"])) for name, each in _TEXTS[table].items()}


COLUMNS = _columns("columns")
"""Of a ``Row``, by name."""
_SHOWN: dict[type[Report], str] = {
    SweepReport: "γ, speed-up, predicted, τ/(γc+v), tokens/s, plain tokens/s, accepted, τ, c, v(γ), o, rounds",
    AdviceReport: "method, speed-up, tokens/s, accepted, τ, c, v(γ), memory, runs, seconds, verdict",
    SizeReport: "rows, speed-up, plain tokens/s, tokens/s, accepted, τ, padding, idle cache, overhead",
}
SHOWN = {kind: names.split(", ") for kind, names in _SHOWN.items()}
"""The names of a report's columns, by its kind."""


def columns(names: Sequence[str]) -> list[Column]:
    return [COLUMNS[name] for name in names]


def report_table(report: Report) -> str:
    """The table of a report as HTML, without columns that nothing is known of; and of advice the one by kind."""
    known = [c for c in columns(SHOWN[type(report)]) if any(c[2](row) != NOTHING for row in report.shown)]
    more = kind_tables(report) if isinstance(report, AdviceReport) else []
    return table_html(known, report.shown) + "".join(table_html(*table) for table in more)


def kind_tables(report: AdviceReport) -> list[tuple[Sequence[Column], Sequence[Any]]]:
    """The best for each kind of prompt, and τ and speed-up of each method on each; none of one kind."""
    if not report.by_kind:
        return []
    methods: dict[str, dict[str, KindRow]] = {}
    for row in report.matrix:
        methods.setdefault(row.method, {})[row.kind] = row

    def cell(kind: str) -> Callable[[Any], str]:
        return lambda line: (
            f"{number(row.mean_acceptance_length, '.2f')} · {row.speedup:.2f}×"
            if (row := line[1].get(kind))
            else NOTHING
        )

    tip = "τ · speed-up, on the prompts of this kind that this method decoded"
    head = ("τ · speed-up", "the method, and how many tokens a round (γ)", lambda line: line[0])
    return [
        ([*_columns("kinds").values()], report.by_kind),
        ([head, *((row.kind or NOTHING, tip, cell(row.kind)) for row in report.by_kind)], [*methods.items()]),
    ]


def figure_rows(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """Label, formula and a text for every lane; a figure that no lane has is left out.

    Costs are relative to the first plain lane of the same weights in the same place.
    """
    rows = _rows("lanes", [trace.metrics(plain_of(traces, trace)) for trace in traces])
    known = [row for row in rows if any(text != NOTHING for text in row["values"])]
    if any(engine_note(trace) is not None for trace in traces):
        formula = "what ran the models' layers, and why it is not what was asked for"
        known.append({"label": "engine", "formula": formula, "values": [t.engine or NOTHING for t in traces]})
    return known


def batch_figures(batches: Sequence[BatchMetrics]) -> list[dict[str, Any]]:
    return _rows("batches", batches)


def _rows(table: str, measured: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"label": label, "formula": formula, "values": [read(m) for m in measured]}
        for label, formula, read in _columns(table).values()
    ]
