"""All figures of a race as a table, each with the formula that people see when they point at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specdemo.metrics import Metrics
from specdemo.trace import Trace
from specdemo.view.lane_headers import engine_note

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what it is called, how it is computed, where it stands, and how it reads."""

    label: str
    formula: str
    value: Callable[[Metrics], Any]
    read: Callable[[Any], str]


def _share(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"


def _time(value: float) -> str:
    return f"{value:.2f}\u00a0s" if value >= 1 else f"{1000 * value:.1f}\u00a0ms"


def _shares(values: Sequence[float | None]) -> str:
    return " · ".join(NOTHING if v is None else f"{100 * v:.0f}" for v in values) + "\u00a0%"


FIGURES = (
    Figure(
        "tokens/s", "tokens after the first / (lane time − TTFT)", lambda m: m.tokens_per_second, "{:.1f}".format
    ),
    Figure(
        "tokens/s, end to end", "all tokens / lane time", lambda m: m.end_to_end_tokens_per_second, "{:.1f}".format
    ),
    Figure("TTFT", "lane time until the first token: the prefill", lambda m: m.ttft, _time),
    Figure("TPOT", "(lane time − TTFT) / tokens after the first", lambda m: m.tpot, _time),
    Figure("rounds", "target forwards after the prefill", lambda m: m.rounds, "{:,}".format),
    Figure("tokens emitted", "tokens after the first", lambda m: m.emitted, "{:,}".format),
    Figure(
        "τ, mean acceptance length", "tokens emitted / rounds", lambda m: m.mean_acceptance_length, "{:.2f}".format
    ),
    Figure("tokens drafted", "Σ γᵢ over the rounds", lambda m: m.proposed or None, "{:,}".format),
    Figure("acceptance rate", "Σ accepted / Σ drafted", lambda m: m.acceptance_rate, _share),
    Figure(
        "α, per tested token",
        "mean of Σₓ min(p, q) where both distributions are known, else accepted / tested",
        lambda m: m.alpha,
        _share,
    ),
    Figure(
        "kept by position",
        "share of rounds that kept the 1st, 2nd, … drafted token",
        lambda m: m.per_position or None,
        _shares,
    ),
    Figure(
        "kept where tested",
        "of the rounds in which the 1st, 2nd, … drafted token was tested, the share that kept it",
        lambda m: m.conditional_per_position or None,
        _shares,
    ),
    Figure(
        "rounds by accepted tokens",
        "rounds with 0, 1, 2, … accepted tokens",
        lambda m: (m.accepted_histogram or None) if m.proposed else None,
        lambda counts: " · ".join(map(str, counts)),
    ),
    Figure(
        "wasted",
        "drafted tokens thrown away, Σ (γᵢ − accepted)",
        lambda m: m.wasted if m.proposed else None,
        "{:,}".format,
    ),
    Figure("c, draft cost", "median draft step / median target step", lambda m: m.draft_cost, "{:.3f}".format),
    Figure(
        "v(γ), verify cost",
        "median forward over γ + 1 tokens / median target step",
        lambda m: m.verify_cost,
        "{:.2f}".format,
    ),
    Figure("time drafting", "Σ draft time / (Σ draft + verify + other)", lambda m: m.draft_share, _share),
    Figure("time verifying", "Σ target forwards / (Σ draft + verify + other)", lambda m: m.verify_share, _share),
    Figure(
        "overhead", "Σ time outside model forwards / (Σ draft + verify + other)", lambda m: m.other_share, _share
    ),
    Figure(
        "peak memory",
        "the most bytes taken so far: by torch on a GPU, else by the whole process; all lanes share it",
        lambda m: m.peak_memory,
        lambda count: f"{count / 1e9:.2f}\u00a0GB",
    ),
)


def figure_rows(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """Label, formula and a text for every lane; a figure that no lane has is left out.

    Costs are relative to the first plain lane of the same weights.
    """
    lanes = [trace.metrics(_baseline(traces, trace)) for trace in traces]
    rows = []
    for figure in FIGURES:
        values = [figure.value(metrics) for metrics in lanes]
        if any(value is not None for value in values):
            texts = [NOTHING if value is None else figure.read(value) for value in values]
            rows.append({"label": figure.label, "formula": figure.formula, "values": texts})
    return [*rows, *_engines(traces)]


def _engines(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """A row of what ran the lanes, if there is anything to say."""
    if all(engine_note(trace) is None for trace in traces):
        return []
    formula = "what ran the models' layers, and why it is not what was asked for"
    return [{"label": "engine", "formula": formula, "values": [trace.engine or NOTHING for trace in traces]}]


def _baseline(traces: Sequence[Trace], lane: Trace) -> Trace | None:
    alike = (t for t in traces if t.quantization == lane.quantization and t.settings.strategy == "autoregressive")
    return next(alike, None)
