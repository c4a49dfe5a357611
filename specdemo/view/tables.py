"""Figures of lanes, batches and reports as text, each with the formula that people see when they point at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.batch_sizes import LoadReport, SizeReport
from specdemo.analysis.report import Report
from specdemo.analysis.rows import Row
from specdemo.analysis.speedup import plain_of
from specdemo.analysis.sweep_report import SweepReport
from specdemo.metrics import Metrics
from specdemo.trace import Trace
from specdemo.view.assets import NOTHING, fill, number
from specdemo.view.lane_headers import engine_note

Column = tuple[str, str, Callable[[Any], str]]
"""A figure's name, its formula, and its text for what was measured: a row of a report, a lane, a batch."""


def table_html(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """The table, with the column's formula as the tip of every cell."""
    return fill("table.html", columns=columns, rows=rows)


def rate(value: float | None) -> str:
    """Tokens a second with four digits, so that two of them divide to the ratio that stands beside them."""
    return NOTHING if value is None else f"{value:.{1 if value >= 100 else 2 if value >= 10 else 3}f}"


def spread(value: float | None, low: float | None, high: float | None, form: str, unit: str = "") -> str:
    """A median with its lowest and highest, if they differ as written."""
    middle, ends = number(value, form, unit), [number(end, form) for end in (low, high)]
    return middle if ends[0] == ends[1] else f"{middle} ({ends[0]}–{ends[1]})"


def _speedup(row: Any) -> str:
    if getattr(row, "doubt", None):
        return f"at most {row.most:.2f}×" if row.most else NOTHING
    if not getattr(row, "verdict", True):
        return spread(row.speedup, row.speedup_low, row.speedup_high, ".2f", "×")
    over = " over runs" if row.interval_over == "runs" else ""
    between = f" [{row.interval[0]:.2f}, {row.interval[1]:.2f}]{over}" if row.interval else ""
    return f"{number(row.speedup, '.2f', '×')}{between}"


OVER = "median of the requests; of the repeats the median, the lowest and the highest"


def _ends(three: Sequence[float] | None, form: str, unit: str = "", factor: float = 1) -> str:
    low, middle, high = sorted(factor * value for value in three or (0, 0, 0))
    return spread(middle, low, high, form, unit) if three else NOTHING


_COLUMNS: tuple[Column, ...] = (
    ("method", "who drafts, and how many tokens a round (γ)", lambda r: r.name),
    ("γ", "drafted tokens a round", lambda r: number(r.gamma, "d")),
    ("rows", "prompts decoded together", lambda r: number(r.size, "d")),
    ("users", "who each wait for an answer and send the next request", lambda r: number(r.size, "d")),
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
        "shown, of an even number the mean of the middle two",
        lambda r: rate(r.tokens_per_second),
    ),
    (
        "tokens/s of all",
        "tokens of all answers / time from the first request to the last answer; slowest and fastest repeat",
        lambda r: spread(r.tokens_per_second, r.tokens_per_second_low, r.tokens_per_second_high, ".1f"),
    ),
    ("of one", f"tokens after the first / their time: {OVER}", lambda r: _ends(r.user_tokens_per_second, ".1f")),
    ("TTFT", f"request to first token, waits included: {OVER}", lambda r: _ends(r.ttft, ".0f", "\u00a0ms", 1000)),
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
    ("overhead", "time outside model forwards", lambda r: number(r.other_share, ".1%")),
    ("memory", "largest peak of its runs", lambda r: NOTHING if r.memory is None else f"{r.memory / 1e9:.2f} GB"),
    ("runs", "each on one prompt", lambda r: number(r.runs, "d")),
    ("seconds", "of the budget", lambda r: number(r.seconds, ".1f")),
    ("verdict", "and why it was dropped", lambda r: f"{r.verdict}: {r.dropped}" if r.dropped else r.verdict),
)
COLUMNS = {column[0]: column for column in _COLUMNS}
"""Of a ``Row``, by name."""
KIND_COLUMNS: tuple[Column, ...] = (
    ("kind", "of the prompts", lambda r: r.kind or ""),
    ("prompts", "of this kind that were decoded", lambda r: number(r.prompts, "d")),
    ("fastest", "on the prompts of this kind", lambda r: r.name),
    ("speed-up", "as in the table above, of these prompts", _speedup),
)
_SHOWN: dict[type[Report], str] = {
    SweepReport: "γ, speed-up, predicted, τ/(γc+v), tokens/s, plain tokens/s, accepted, τ, c, v(γ), o, rounds",
    AdviceReport: "method, speed-up, tokens/s, accepted, τ, c, v(γ), memory, runs, seconds, verdict",
    LoadReport: "users, method, speed-up, tokens/s of all, of one, TTFT, accepted, τ",
    SizeReport: "rows, speed-up, plain tokens/s, tokens/s, accepted, τ, overhead",
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
    methods: dict[str, dict[str | None, Row]] = {}
    for row in report.matrix:
        methods.setdefault(row.name, {})[row.kind] = row

    def cell(kind: str | None) -> Read:
        return lambda line: (
            f"{number(row.mean_acceptance_length, '.2f')} · {row.speedup:.2f}×"
            if (row := line[1].get(kind))
            else NOTHING
        )

    tip = "τ · speed-up, on the prompts of this kind that this method decoded"
    head = ("τ · speed-up", "the method, and how many tokens a round (γ)", lambda line: line[0])
    return [
        (KIND_COLUMNS, report.by_kind),
        ([head, *((row.kind or NOTHING, tip, cell(row.kind)) for row in report.by_kind)], [*methods.items()]),
    ]


Read = Callable[[Any], str]


def _number(name: str, form: str, unit: str = "", factor: float = 1) -> Read:
    """Reads a figure by its name."""

    def read(measured: Any) -> str:
        value = getattr(measured, name)
        return number(value if factor == 1 or value is None else factor * value, form, unit)

    return read


def _share(name: str) -> Read:
    return _number(name, ".1f", "\u00a0%", 100)


def _time(name: str) -> Read:
    def read(measured: Any) -> str:
        value = getattr(measured, name)
        long = value is not None and value >= 1
        return number(value, ".2f", "\u00a0s") if long else number(value and 1000 * value, ".1f", "\u00a0ms")

    return read


def _shares(name: str) -> Read:
    def read(measured: Any) -> str:
        values = getattr(measured, name) or ()
        return " · ".join(number(v and 100 * v, ".0f") for v in values) + "\u00a0%" if values else NOTHING

    return read


def _counts(m: Metrics) -> str:
    return " · ".join(map(str, m.accepted_histogram or ())) if m.proposed and m.accepted_histogram else NOTHING


def _tree(m: Metrics) -> str:
    return NOTHING if m.tree_nodes is None else f"{m.tree_nodes:.1f} tokens, depth {m.tree_depth:.1f}"


def _row_rates(batch: BatchMetrics) -> str:
    known = [v for v in batch.row_tokens_per_second if v is not None]
    return f"{min(known):.1f}–{max(known):.1f}" if known else NOTHING


ROUNDS = "rounds after the prefill"
ALPHA = (
    "mean of Σₓ min(p, q) where both distributions are known, else accepted / tested tokens; of draft trees "
    "accepted / tested positions"
)
TESTED = "of the rounds in which the 1st, 2nd, … drafted token was tested, the share that kept it"
SAVED = "rounds that kept a token which was not the first guess of its position"
WASTED = "drafted tokens thrown away, Σ (γᵢ − accepted)"
DRAFT_COST = "median draft step / median target step, over rounds of the usual length"
VERIFY_COST = "median forward over γ + 1 tokens / median target step, γ the length of most drafts"
BATCH_RATE = "tokens of all rows after the first / (seconds − TTFT)"
MEMORY = "the most bytes taken so far: by torch on a GPU, else by the whole process; all lanes share it"
SPENT = "(Σ draft + verify + other)"
FIGURES: tuple[Column, ...] = (
    ("tokens/s", "tokens after the first / (lane time − TTFT)", _number("tokens_per_second", ".1f")),
    ("tokens/s, end to end", "all tokens / lane time", _number("end_to_end_tokens_per_second", ".1f")),
    ("TTFT", "lane time until the first token: the prefill", _time("ttft")),
    ("TPOT", "(lane time − TTFT) / tokens after the first", _time("tpot")),
    ("rounds after the prefill", "target forwards without the prefill's", _number("rounds", ",")),
    ("tokens after the first", "tokens of the output without the prefill's", _number("emitted", ",")),
    ("τ, mean acceptance length", f"tokens after the first / {ROUNDS}", _number("mean_acceptance_length", ".2f")),
    ("tokens drafted", "Σ γᵢ over the rounds", lambda m: number(m.proposed or None, ",")),
    ("acceptance rate", "Σ accepted / Σ drafted", _share("acceptance_rate")),
    ("α, per tested token", ALPHA, _share("alpha")),
    ("kept by position", "share of rounds that kept the 1st, 2nd, … drafted token", _shares("per_position")),
    ("kept where tested", TESTED, _shares("conditional_per_position")),
    ("rounds by accepted tokens", "rounds with 0, 1, 2, … accepted tokens", _counts),
    ("tree", "drafted tokens a round, and how deep, where trees were drafted", _tree),
    ("rounds saved by a second guess", SAVED, _number("saved_rounds", ",")),
    ("wasted", WASTED, lambda m: number(m.wasted if m.proposed else None, ",")),
    ("c, draft cost", DRAFT_COST, _number("draft_cost", ".3f")),
    ("v(γ), verify cost", VERIFY_COST, _number("verify_cost", ".2f")),
    ("time drafting", f"Σ draft time / {SPENT}", _share("draft_share")),
    ("time verifying", f"Σ target forwards / {SPENT}", _share("verify_share")),
    ("overhead", f"Σ time outside model forwards / {SPENT}", _share("other_share")),
    ("peak memory", MEMORY, _number("peak_memory", ".2f", "\u00a0GB", 1e-9)),
)
"""Of a lane's ``Metrics``."""

BATCH_FIGURES: tuple[Column, ...] = (
    ("tokens/s of the batch", BATCH_RATE, _number("tokens_per_second", ".1f")),
    ("tokens/s of a row", "its own tokens over its own time, slowest to fastest row", _row_rates),
    ("time", "the clock at the end of the last row, which all rows share", _number("seconds", ".2f", "\u202fs")),
    ("TTFT", "time to the first tokens: the prefill of all rows", _number("ttft", ".3f", "\u202fs")),
    ("rounds", "forwards of the target after the prefill", _number("forwards", ",d")),
    *columns(["accepted", "τ"]),
    (
        "rows in a round",
        "rows that took part, on average; the batch shrinks as rows end",
        _number("mean_rows", ".1f"),
    ),
    *columns(["overhead"]),
)
"""Of a ``BatchMetrics``."""


def figure_rows(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """Label, formula and a text for every lane; a figure that no lane has is left out.

    Costs are relative to the first plain lane of the same weights in the same place.
    """
    rows = rows_of(FIGURES, [trace.metrics(plain_of(traces, trace)) for trace in traces])
    known = [row for row in rows if any(text != NOTHING for text in row["values"])]
    if any(engine_note(trace) is not None for trace in traces):
        formula = "what ran the models' layers, and why it is not what was asked for"
        known.append({"label": "engine", "formula": formula, "values": [t.engine or NOTHING for t in traces]})
    return known


def rows_of(figures: Iterable[Column], measured: Sequence[Any]) -> list[dict[str, Any]]:
    """Of lanes or of batches; see ``FIGURES`` and ``BATCH_FIGURES``."""
    return [
        {"label": label, "formula": formula, "values": [read(m) for m in measured]}
        for label, formula, read in figures
    ]
