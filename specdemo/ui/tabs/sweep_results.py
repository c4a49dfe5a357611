"""What a sweep shows: the recommendation, four figures, a table, and the files to take away."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.analysis.sweep_report import SweepReport
from specdemo.view.charts import CAPTIONS, accepted_figure, figure_head, speed_figure, speedup_figure, time_figure
from specdemo.view.measured_table import NOTHING, Column, number, spread, table_html

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
        "decoded tokens / decode time of all prompts; median, slowest and fastest repeat",
        lambda r: spread(r.tokens_per_second, r.tokens_per_second_low, r.tokens_per_second_high, ".1f"),
    ),
    ("accepted", "Σ accepted / Σ drafted", lambda r: number(r.acceptance_rate, ".1%")),
    (
        "τ",
        "tokens emitted / rounds, the target's own included",
        lambda r: number(r.mean_acceptance_length, ".2f"),
    ),
    ("c", "median draft step / median target step", lambda r: number(r.draft_cost, ".3f")),
    ("v(γ)", "median forward over γ + 1 tokens / median target step", lambda r: number(r.verify_cost, ".2f")),
    ("o", "median other time of a round / median target step", lambda r: number(r.overhead_cost, ".3f")),
    ("rounds", "target forwards after the prefills, over all runs", lambda r: number(r.rounds, ",")),
)


@dataclass(frozen=True, slots=True)
class Results:
    """The components that show a report."""

    area: gr.Column
    headline: gr.HTML
    figures: gr.Row
    plots: list[gr.Plot]
    table: gr.HTML
    csv: gr.DownloadButton
    json: gr.DownloadButton

    def outputs(self) -> list[Any]:
        """All of them, for an event."""
        return [self.area, self.headline, self.figures, *self.plots, self.table, self.csv, self.json]


def create_results() -> Results:
    """Build the results in the current layout, hidden until there are any."""
    with gr.Column(visible=False, elem_id="sweep-results") as area:
        headline = gr.HTML(value=None, padding=False, elem_id="sweep-headline", elem_classes="measured-headline")
        plots = []
        with gr.Row(elem_classes="measured-figures") as figures:
            for name, title, _ in FIGURES:
                with gr.Column(min_width=300, elem_classes="measured-figure"):
                    gr.HTML(figure_head(title), padding=False)
                    plots.append(gr.Plot(show_label=False, container=False, elem_id=f"sweep-{name}"))
                    gr.HTML(f"<p>{CAPTIONS[name]}</p>", padding=False)
        table = gr.HTML(value=None, padding=False, elem_id="sweep-table", elem_classes="measured-table")
        with gr.Row(elem_classes="measured-files"):
            csv = gr.DownloadButton("Save as CSV", size="sm", min_width=120, elem_id="sweep-csv")
            json = gr.DownloadButton("Save as JSON", size="sm", min_width=120, elem_id="sweep-json")
        with gr.Accordion("What the columns mean", open=False, elem_id="sweep-columns"):
            meanings = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text, _ in COLUMNS)
            gr.HTML(f"<dl>{meanings}</dl>", padding=False)
    return Results(area, headline, figures, plots, table, csv, json)


def shown(results: Results, report: SweepReport) -> dict[Any, Any]:
    """The report in its components, all but the files."""
    best, there = report.best, report.server is not None
    pays = best is not None and best.speedup >= 1
    figure = NOTHING if best is None else f"{best.speedup:.2f}×" if there or not pays else f"γ = {best.gamma}"
    slow = "" if pays or best is None else " data-slow"
    headline = f"<strong{slow}>{figure}</strong><p>{escape(report.recommendation)}</p>"
    return {
        results.area: gr.update(visible=True),
        results.headline: headline,
        results.figures: gr.update(visible=not there),  # they go over γ, and a server has one
        **{plot: draw(report) for plot, (_, _, draw) in zip(results.plots, FIGURES, strict=True) if not there},
        results.table: table_html(_columns(report), report.rows),
    }


def _columns(report: SweepReport) -> list[Column]:
    """All, or of a server's report those in which anything is known."""
    if report.server is None:
        return list(COLUMNS)
    return [column for column in COLUMNS if any(column[2](row) != NOTHING for row in report.rows)]


def saved(results: Results, report: SweepReport, folder: Path) -> dict[Any, Any]:
    """The report as files in ``folder``, which Gradio copies as it sends the update."""
    files = {
        results.csv: ("gamma-sweep.csv", report.to_csv()),
        results.json: ("gamma-sweep.json", report.to_json()),
    }
    for name, text in files.values():
        (folder / name).write_text(text, encoding="utf-8")
    return {button: str(folder / name) for button, (name, _) in files.items()}
