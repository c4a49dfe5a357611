"""What a measurement shows: one sentence, figures, a table, and files to take away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

from specdemo.files import write_whole
from specdemo.ui.jobs.job import JobState
from specdemo.ui.tabs.tab_parts import Show, Updates, state_line
from specdemo.view.charts import figure_head

FIGURE_SECONDS = 3.0
"""Figures are rebuilt whole, so seldom enough not to flicker."""


@dataclass(frozen=True, slots=True)
class Results:
    """The components that show a report, and the name of its files."""

    area: gr.Column
    headline: gr.HTML
    figures: gr.Row
    plots: list[gr.Plot]
    table: gr.HTML
    csv: gr.DownloadButton
    json: gr.DownloadButton
    file_name: str

    def outputs(self) -> list[Any]:
        """All of them, for an event."""
        return [self.area, self.headline, self.figures, *self.plots, self.table, self.csv, self.json]

    def shown(self, figure: str, slow: bool, sentence: str, table: str) -> Updates:
        """The area with its headline and table.

        Args:
            figure: the largest thing on the page.
            slow: whether it is bad news.
            sentence: beside it.
            table: as HTML.
        """
        headline = f"<strong{' data-slow' if slow else ''}>{figure}</strong><p>{escape(sentence)}</p>"
        return {self.area: gr.update(visible=True), self.headline: headline, self.table: table}

    def saved(self, report: Any, folder: Path) -> Updates:
        """The report's files in ``folder``, which Gradio copies as it sends the update."""
        files = {self.csv: ("csv", report.to_csv()), self.json: ("json", report.to_json())}
        updates = {}
        for button, (ending, text) in files.items():
            path = folder / f"{self.file_name}.{ending}"
            write_whole(path, text)
            updates[button] = str(path)
        return updates


def create_results(area_id: str, prefix: str, file_name: str, figures: Sequence[tuple[str, str, str]]) -> Results:
    """Build the results in the current layout, hidden until there are any.

    Args:
        area_id: the id of the area.
        prefix: begins the other ids.
        file_name: of the files, without its ending.
        figures: name, title and caption of each.
    """
    with gr.Column(visible=False, elem_id=area_id) as area:
        headline = gr.HTML(
            value=None, padding=False, elem_id=f"{prefix}-headline", elem_classes="measured-headline"
        )
        plots = []
        with gr.Row(elem_classes="measured-figures") as row:
            for name, title, caption in figures:
                with gr.Column(min_width=300, elem_classes="measured-figure"):
                    gr.HTML(figure_head(title), padding=False)
                    plots.append(gr.Plot(show_label=False, container=False, elem_id=f"{prefix}-{name}"))
                    gr.HTML(f"<p>{caption}</p>", padding=False)
        table = gr.HTML(value=None, padding=False, elem_id=f"{prefix}-table", elem_classes="measured-table")
        with gr.Row(elem_classes="measured-files"):
            csv = gr.DownloadButton("Save as CSV", size="sm", min_width=120, elem_id=f"{prefix}-csv")
            json = gr.DownloadButton("Save as JSON", size="sm", min_width=120, elem_id=f"{prefix}-json")
    return Results(area, headline, row, plots, table, csv, json, file_name)


def show_measurement(status: gr.HTML, results: Results, shown: Callable[[Results, Any], Updates]) -> Show:
    """Progress at once, figures now and then, files with them.

    Args:
        status: the line under the buttons.
        results: hidden from the beginning of a measurement to its first figures.
        shown: their values for a report, but for the files.
    """

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        drawn = time.monotonic()
        for state in states:
            report = state.result
            update: Updates = {status: state_line(state)}
            if state.phase == "running" and report is None:
                update[results.area] = gr.update(visible=False)  # not before: a wrong value should hide nothing
            measured = report is not None and any(row.speedup for row in report.rows)
            if measured and (state.ended or time.monotonic() - drawn > FIGURE_SECONDS):
                with TemporaryDirectory(prefix="specdemo-") as folder:
                    yield update | shown(results, report) | results.saved(report, Path(folder))
                drawn = time.monotonic()
            else:
                yield update

    return show
