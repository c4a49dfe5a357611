"""What a sweep and what advice show: the recommendation, figures or a chart, a table, and lines to take away."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import gradio as gr

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.engine_lines import ENGINES
from specdemo.analysis.sweep_report import SweepReport
from specdemo.ui.tabs.measured import Results, create_results
from specdemo.ui.tabs.tab_parts import Updates
from specdemo.view.advice_view import advice_tables, forest
from specdemo.view.charts import CAPTIONS, accepted_figure, speed_figure, speedup_figure, time_figure
from specdemo.view.measured_table import NOTHING, Column, number, rate, spread, table_html

FIGURES = (
    ("speedup", "Speed-up, measured and predicted", speedup_figure),
    ("speed", "Acceptance and speed", speed_figure),
    ("accepted", "Drafted tokens kept in a round", accepted_figure),
    ("time", "Time of a round", time_figure),
)
COLUMNS = (
    ("γ", "drafted tokens a round", lambda r: number(r.gamma, "d")),
    (
        "speed-up",
        "plain seconds a token / speculative seconds a token, each repeat against its own plain runs; median, "
        "and from the worst repeat to the best",
        lambda r: spread(r.speedup, r.speedup_low, r.speedup_high, ".2f", "×"),
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
        "decoded tokens / decode time of all prompts, in the repeat whose speed-up is shown",
        lambda r: rate(r.tokens_per_second),
    ),
    (
        "plain tokens/s",
        "the same of plain decoding, in the same repeat",
        lambda r: rate(r.plain_tokens_per_second),
    ),
    ("accepted", "Σ accepted / Σ drafted", lambda r: number(r.acceptance_rate, ".1%")),
    (
        "τ",
        "tokens after the first / rounds, the target's own included",
        lambda r: number(r.mean_acceptance_length, ".2f"),
    ),
    ("c", "median draft step / median target step", lambda r: number(r.draft_cost, ".3f")),
    ("v(γ)", "median forward over γ + 1 tokens / median target step", lambda r: number(r.verify_cost, ".2f")),
    ("o", "median other time of a round / median target step", lambda r: number(r.overhead_cost, ".3f")),
    ("rounds", "target forwards after the prefills, over all runs", lambda r: number(r.rounds, ",")),
)


def create_sweep_results() -> Results:
    """Build the results in the current layout."""
    figures = [(name, title, CAPTIONS[name]) for name, title, _ in FIGURES]
    results = create_results("sweep-results", "sweep", "gamma-sweep", figures)
    with results.area, gr.Accordion("What the columns mean", open=False, elem_id="sweep-columns"):
        meanings = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text, _ in COLUMNS)
        gr.HTML(f"<dl>{meanings}</dl>", padding=False)
    return results


@dataclass(frozen=True, slots=True)
class Offer:
    """A button that sets the recommended γ, and the ``Settings`` that it was measured with."""

    button: gr.Button
    settings: gr.State

    def outputs(self) -> list[Any]:
        """Both of them, for an event."""
        return [self.button, self.settings]


def show_sweep(offer: Offer, results: Results, report: SweepReport) -> Updates:
    """The report in its components, all but the files; ``offer`` has the recommended γ."""
    best, on_server = report.best, report.server is not None
    pays = bool(report.pays)
    known = best is not None and (on_server or report.pays is not None)  # what is open is not said in large type
    figure = "" if not known else f"{best.speedup:.2f}×" if on_server or not pays else f"γ = {best.gamma}"
    table = table_html(_columns(report), report.rows)
    drawn = () if on_server else zip(results.plots, FIGURES, strict=True)
    return {
        **results.shown(figure, best is not None and not pays, report.recommendation, table),
        offer.settings: replace(report.settings, gamma=report.best_gamma or report.settings.gamma),
        offer.button: gr.update(
            value=f"Use γ = {report.best_gamma}",
            visible=report.complete and pays and not on_server,
            interactive=True,
        ),
        results.figures: gr.update(visible=not on_server),  # they go over γ, and a server has one
        **{plot: draw(report) for plot, (_, _, draw) in drawn},
    }


def create_advice_results() -> Results:
    """Build the results of advice in the current layout, hidden until there are any."""
    return create_results("advice-results", "advice", "which-setting", engines=ENGINES)


def show_advice(offer: Offer, results: Results, report: AdviceReport) -> Updates:
    """The report in its components, all but the files; ``offer`` has the recommended settings."""
    best, pays = report.best, report.pays
    figure = "" if best is None or pays is None else f"{best.speedup:.2f}×" if pays else "plain"
    return {
        **results.shown(figure, not pays, report.recommendation, advice_tables(report)),
        results.chart: forest(report),
        offer.settings: report.settings(),
        offer.button: gr.update(
            value="Use this setting",
            visible=report.complete and bool(pays) and report.server is None,
            interactive=True,
        ),
        **{component: report.code(engine) for engine, component in results.code.items()},
    }


def _columns(report: SweepReport) -> list[Column]:
    """All, or of a server's report those in which anything is known."""
    if report.server is None:
        return list(COLUMNS)
    return [column for column in COLUMNS if any(column[2](row) != NOTHING for row in report.rows)]
