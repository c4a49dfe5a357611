"""What the advisor shows: its recommendation, a chart of intervals, a table, and lines to take away."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.engine_lines import ENGINES
from specdemo.files import slug, write_whole
from specdemo.ui.tabs.measured import headline_html
from specdemo.ui.tabs.sweep_results import Offer
from specdemo.ui.tabs.tab_parts import Updates
from specdemo.view.advice_view import advice_tables, forest

FILES = {"csv": AdviceReport.to_csv, "json": AdviceReport.to_json}


@dataclass(frozen=True, slots=True)
class AdviceResults:
    """The components that show a report of the advisor."""

    area: gr.Column
    headline: gr.HTML
    chart: gr.HTML
    table: gr.HTML
    code: dict[str, gr.Code]
    known: gr.State
    row: gr.Row
    files: dict[str, gr.DownloadButton]

    def outputs(self) -> list[Any]:
        """All that an event changes."""
        shown = [self.area, self.headline, self.chart, self.table, self.known, self.row]
        return [*shown, *self.code.values(), *self.files.values()]

    def saved(self, report: AdviceReport, folder: Path) -> Updates:
        """The report's files in ``folder``, which Gradio copies as it sends the update."""
        updates: Updates = {self.row: gr.update(visible=True)}
        for ending, button in self.files.items():
            path = folder / f"specdemo-which-setting-{slug(report.pair)}.{ending}"
            write_whole(path, FILES[ending](report))
            updates[button] = str(path)
        return updates


def create_advice_results() -> AdviceResults:
    """Build the results in the current layout, hidden until there are any."""
    with gr.Column(visible=False, elem_id="advice-results") as area:
        headline = gr.HTML(padding=False, elem_id="advice-headline", elem_classes="measured-headline")
        chart = gr.HTML(padding=False, elem_id="advice-chart")
        table = gr.HTML(padding=False, elem_id="advice-table", elem_classes="measured-table")
        with gr.Accordion("Lines to take away", open=True, elem_id="advice-code"), gr.Tabs():
            code = {}
            for engine, name in ENGINES.items():
                with gr.Tab(name):
                    language = "python" if engine == "transformers" else "shell"
                    code[engine] = gr.Code(language=language, show_label=False, interactive=False, lines=3)
        with gr.Row(visible=False, elem_classes="measured-files") as row:
            files = {
                ending: gr.DownloadButton(
                    f"Save as {ending.upper()}", size="sm", min_width=110, elem_id=f"advice-{ending}"
                )
                for ending in FILES
            }
    known = gr.State(False)
    return AdviceResults(area, headline, chart, table, code, known, row, files)


def show_advice(offer: Offer, results: AdviceResults, report: AdviceReport) -> Updates:
    """The report in its components, all but the files; ``offer`` has the recommended settings."""
    best, pays = report.best, report.pays
    figure = "" if best is None or pays is None else f"{best.speedup:.2f}×" if pays else "plain"
    return {
        results.area: gr.update(visible=True),
        results.headline: headline_html(figure, not pays, report.recommendation),
        results.chart: forest(report),
        results.table: advice_tables(report),
        results.known: True,
        results.row: gr.update(visible=False),
        offer.settings: report.settings(),
        offer.button: gr.update(
            value="Use this setting",
            visible=report.complete and bool(pays) and report.server is None,
            interactive=True,
        ),
        **{component: report.code(engine) for engine, component in results.code.items()},
    }
