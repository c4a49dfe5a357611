"""The figures of a race's lanes and of batches: rows with the formula that people see when they point at one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.speedup import plain_of
from specdemo.metrics import Metrics
from specdemo.trace import Trace
from specdemo.view.lane_headers import engine_note
from specdemo.view.tables import NOTHING, Column, number

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
ROWS = "rows that took part, on average; the batch shrinks as rows end"
PADDING = "positions computed only to fill up shorter rows / all positions computed"
IDLE = "KV cache slots read that held nothing of their row / all slots read"
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
    ("rounds", "forwards of the target after the prefill", _number("rounds", ",d")),
    ("τ", "tokens that a row keeps of a round it takes part in", _number("mean_acceptance_length", ".2f")),
    ("accepted", "Σ accepted / Σ drafted, all rows", _number("acceptance_rate", ".1%")),
    ("rows in a round", ROWS, _number("mean_rows", ".1f")),
    ("padding", PADDING, _number("padding", ".1%")),
    ("idle cache", IDLE, _number("idle_slots", ".1%")),
    ("overhead", "time outside model forwards / time after the prefill", _number("other_share", ".1%")),
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
