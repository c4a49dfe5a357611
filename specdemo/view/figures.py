"""The figures of a race's lanes and of batches: rows with the formula that people see when they point at one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.lanes import plain_of
from specdemo.trace import Trace
from specdemo.view.lane_headers import engine_note
from specdemo.view.measured_table import NOTHING, Column, number


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}\u00a0%"


def _time(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.2f}\u00a0s" if value >= 1 else f"{1000 * value:.1f}\u00a0ms"


def _shares(values: Sequence[float | None]) -> str:
    texts = " · ".join(NOTHING if v is None else f"{100 * v:.0f}" for v in values)
    return f"{texts}\u00a0%" if values else NOTHING


def _counts(values: Iterable[int]) -> str:
    return " · ".join(map(str, values)) or NOTHING


def _gigabytes(count: int | None) -> str:
    return NOTHING if count is None else f"{count / 1e9:.2f}\u00a0GB"


def _range(values: Iterable[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{min(known):.1f}–{max(known):.1f}" if known else NOTHING


FIGURES: tuple[Column, ...] = (
    ("tokens/s", "tokens after the first / (lane time − TTFT)", lambda m: number(m.tokens_per_second, ".1f")),
    ("tokens/s, end to end", "all tokens / lane time", lambda m: number(m.end_to_end_tokens_per_second, ".1f")),
    ("TTFT", "lane time until the first token: the prefill", lambda m: _time(m.ttft)),
    ("TPOT", "(lane time − TTFT) / tokens after the first", lambda m: _time(m.tpot)),
    ("rounds after the prefill", "target forwards without the prefill's", lambda m: number(m.rounds, ",")),
    ("tokens after the first", "tokens of the output without the prefill's", lambda m: number(m.emitted, ",")),
    (
        "τ, mean acceptance length",
        "tokens after the first / rounds after the prefill",
        lambda m: number(m.mean_acceptance_length, ".2f"),
    ),
    ("tokens drafted", "Σ γᵢ over the rounds", lambda m: number(m.proposed or None, ",")),
    ("acceptance rate", "Σ accepted / Σ drafted", lambda m: _share(m.acceptance_rate)),
    (
        "α, per tested token",
        "mean of Σₓ min(p, q) where both distributions are known, else accepted / tested tokens; of draft trees "
        "accepted / tested positions",
        lambda m: _share(m.alpha),
    ),
    (
        "kept by position",
        "share of rounds that kept the 1st, 2nd, … drafted token",
        lambda m: _shares(m.per_position or ()),
    ),
    (
        "kept where tested",
        "of the rounds in which the 1st, 2nd, … drafted token was tested, the share that kept it",
        lambda m: _shares(m.conditional_per_position or ()),
    ),
    (
        "rounds by accepted tokens",
        "rounds with 0, 1, 2, … accepted tokens",
        lambda m: _counts((m.accepted_histogram or ()) if m.proposed else ()),
    ),
    (
        "tree",
        "drafted tokens a round, and how deep, where trees were drafted",
        lambda m: NOTHING if m.tree_nodes is None else f"{m.tree_nodes:.1f} tokens, depth {m.tree_depth:.1f}",
    ),
    (
        "rounds saved by a second guess",
        "rounds that kept a token which was not the first guess of its position",
        lambda m: number(m.saved_rounds, ","),
    ),
    (
        "wasted",
        "drafted tokens thrown away, Σ (γᵢ − accepted)",
        lambda m: number(m.wasted if m.proposed else None, ","),
    ),
    (
        "c, draft cost",
        "median draft step / median target step, over rounds of the usual length",
        lambda m: number(m.draft_cost, ".3f"),
    ),
    (
        "v(γ), verify cost",
        "median forward over γ + 1 tokens / median target step, γ the length of most drafts",
        lambda m: number(m.verify_cost, ".2f"),
    ),
    ("time drafting", "Σ draft time / (Σ draft + verify + other)", lambda m: _share(m.draft_share)),
    ("time verifying", "Σ target forwards / (Σ draft + verify + other)", lambda m: _share(m.verify_share)),
    ("overhead", "Σ time outside model forwards / (Σ draft + verify + other)", lambda m: _share(m.other_share)),
    (
        "peak memory",
        "the most bytes taken so far: by torch on a GPU, else by the whole process; all lanes share it",
        lambda m: _gigabytes(m.peak_memory),
    ),
)
"""Of a lane's ``Metrics``."""

BATCH_FIGURES: tuple[Column, ...] = (
    (
        "tokens/s of the batch",
        "tokens of all rows after the first / (seconds − TTFT)",
        lambda b: number(b.tokens_per_second, ".1f"),
    ),
    (
        "tokens/s of a row",
        "its own tokens over its own time, slowest to fastest row",
        lambda b: _range(b.row_tokens_per_second),
    ),
    (
        "time",
        "the clock at the end of the last row, which all rows share",
        lambda b: number(b.seconds, ".2f", "\u202fs"),
    ),
    ("TTFT", "time to the first tokens: the prefill of all rows", lambda b: number(b.ttft, ".3f", "\u202fs")),
    ("rounds", "forwards of the target after the prefill", lambda b: number(b.rounds, ",d")),
    (
        "τ",
        "tokens that a row keeps of a round it takes part in",
        lambda b: number(b.mean_acceptance_length, ".2f"),
    ),
    ("accepted", "Σ accepted / Σ drafted, all rows", lambda b: number(b.acceptance_rate, ".1%")),
    (
        "rows in a round",
        "rows that took part, on average; the batch shrinks as rows end",
        lambda b: number(b.mean_rows, ".1f"),
    ),
    (
        "padding",
        "positions computed only to fill up shorter rows / all positions computed",
        lambda b: number(b.padding, ".1%"),
    ),
    (
        "idle cache",
        "KV cache slots read that held nothing of their row / all slots read",
        lambda b: number(b.idle_slots, ".1%"),
    ),
    ("overhead", "time outside model forwards / time after the prefill", lambda b: number(b.other_share, ".1%")),
)
"""Of a ``BatchMetrics``."""


def figure_rows(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """Label, formula and a text for every lane; a figure that no lane has is left out.

    Costs are relative to the first plain lane of the same weights in the same place.
    """
    rows = _rows(FIGURES, [trace.metrics(plain_of(traces, trace)) for trace in traces])
    known = [row for row in rows if any(text != NOTHING for text in row["values"])]
    if any(engine_note(trace) is not None for trace in traces):
        formula = "what ran the models' layers, and why it is not what was asked for"
        known.append({"label": "engine", "formula": formula, "values": [t.engine or NOTHING for t in traces]})
    return known


def batch_figures(batches: Sequence[BatchMetrics]) -> list[dict[str, Any]]:
    """Label, formula and a text for every batch."""
    return _rows(BATCH_FIGURES, batches)


def _rows(figures: Iterable[Column], measured: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"label": label, "formula": formula, "values": [read(m) for m in measured]}
        for label, formula, read in figures
    ]
