"""What the advisor shows: its recommendation, a chart of intervals, a table, lines to take away, and what-if."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.engine_lines import ENGINES
from specdemo.files import slug, write_whole
from specdemo.ui.event_options import QUIET
from specdemo.ui.tabs.measured import headline_html
from specdemo.ui.tabs.sweep_results import Offer
from specdemo.ui.tabs.tab_parts import Updates
from specdemo.view.advice_view import advice_html, advice_tables, forest, markdown, predictions_html

FILES = {"csv": AdviceReport.to_csv, "json": AdviceReport.to_json, "md": markdown, "html": advice_html}
LABELS = {"csv": "CSV", "json": "JSON", "md": "Markdown", "html": "HTML"}
COSTS = (0.05, 1.02)
"""c and v with which the prediction begins: a large target on a GPU."""
SLIDERS = (
    ("c", "A draft step costs c target steps", 0, 1, COSTS[0]),
    ("v", "A verify costs v target steps", 1, 3, COSTS[1]),
)


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
        with gr.Accordion("What if the costs were others?", open=False, elem_id="advice-what-if"):
            draft, verify = (
                gr.Slider(low, high, value, step=0.01, label=label, elem_id=f"what-if-{name}")
                for name, label, low, high, value in SLIDERS
            )
            prediction = gr.HTML(padding=False, elem_id="advice-prediction")
        with gr.Row(visible=False, elem_classes="measured-files") as row:
            files = {
                ending: gr.DownloadButton(f"Save as {name}", size="sm", min_width=110, elem_id=f"advice-{ending}")
                for ending, name in LABELS.items()
            }
    known = gr.State(())
    changes = [known.change, draft.change, verify.change]
    gr.on(changes, predictions_html, [known, draft, verify], prediction, trigger_mode="always_last", **QUIET)
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
        results.known: report.acceptance,
        results.row: gr.update(visible=False),
        offer.settings: report.settings(),
        offer.button: gr.update(
            value="Use this setting",
            visible=report.complete and bool(pays) and report.server is None,
            interactive=True,
        ),
        **{component: report.code(engine) for engine, component in results.code.items()},
    }
