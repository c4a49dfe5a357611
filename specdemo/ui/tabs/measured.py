"""What a measurement shows: one sentence, figures, a table, and files to take away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import gradio as gr

from specdemo.drafters import DRAFTERS
from specdemo.files import slug, write_whole
from specdemo.ui.jobs.job import JobState
from specdemo.ui.tabs.tab_parts import Show, Updates, state_line
from specdemo.view.charts import figure_head

FIGURE_SECONDS = 3.0
"""Figures are rebuilt whole, so seldom enough not to flicker."""


def headline_html(figure: str, slow: bool, sentence: str) -> str:
    """What was found, before all details.

    Args:
        figure: the largest thing on the page; empty where nothing is sure.
        slow: whether it is bad news.
        sentence: beside it.
    """
    large = f"<strong{' data-slow' if slow else ''}>{figure}</strong>" if figure else ""
    return f"{large}<p>{escape(sentence)}</p>"


@dataclass(frozen=True, slots=True)
class Results:
    """The components that show a report, and the name of its files."""

    area: gr.Column
    headline: gr.HTML
    figures: gr.Row
    plots: list[gr.Plot]
    table: gr.HTML
    files: gr.Row
    csv: gr.DownloadButton
    json: gr.DownloadButton
    file_name: str

    def outputs(self) -> list[Any]:
        """All of them, for an event."""
        return [self.area, self.headline, self.figures, *self.plots, self.table, self.files, self.csv, self.json]

    def shown(self, figure: str, slow: bool, sentence: str, table: str) -> Updates:
        """The area with its headline and table.

        Args:
            figure, slow, sentence: as of :func:`headline_html`.
            table: as HTML.
        """
        return {
            self.area: gr.update(visible=True),
            self.headline: headline_html(figure, slow, sentence),
            self.table: table,
            self.files: gr.update(visible=False),
        }

    def saved(self, report: Any, folder: Path) -> Updates:
        """The report's files in ``folder``, which Gradio copies as it sends the update."""
        files = {self.csv: ("csv", report.to_csv()), self.json: ("json", report.to_json())}
        settings = report.settings
        how = f"{DRAFTERS[settings.drafter].label} {settings.acceptance} {settings.max_new_tokens} tokens"
        name = "-".join(map(slug, ("specdemo", self.file_name, report.pair, how)))
        updates: Updates = {self.files: gr.update(visible=True)}
        for button, (ending, text) in files.items():
            path = folder / f"{name}.{ending}"
            write_whole(path, text)
            updates[button] = str(path)
        return updates


def create_results(area_id: str, prefix: str, file_name: str, figures: Sequence[tuple[str, str, str]]) -> Results:
    """Build the results in the current layout.

    Args:
        area_id: the id of the area.
        prefix: begins the other ids.
        file_name: begins the names of the files; the pair and the settings follow.
        figures: name, title and caption of each.
    """
    with gr.Column(elem_id=area_id) as area:
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
        with gr.Row(visible=False, elem_classes="measured-files") as files:
            csv = gr.DownloadButton("Save as CSV", size="sm", min_width=120, elem_id=f"{prefix}-csv")
            json = gr.DownloadButton("Save as JSON", size="sm", min_width=120, elem_id=f"{prefix}-json")
    return Results(area, headline, row, plots, table, files, csv, json, file_name)


class Shown(Protocol):
    """Where reports of one kind are shown."""

    area: gr.Column

    def saved(self, report: Any, folder: Path) -> Updates:
        """The report's files."""


def show_measurement(
    status: gr.HTML,
    results: Shown,
    shown: Callable[[Any, Any], Updates],
    others: Mapping[type, tuple[Shown, Callable[[Any, Any], Updates]]] | None = None,
) -> Show:
    """Progress at once, figures now and then, files at the end.

    Args:
        status: the line under the buttons.
        results: hidden from the beginning of a measurement to its first figures.
        shown: their values for a report, but for the files.
        others: the same for reports of other kinds, of tabs that measure several things.
    """
    others = others or {}

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        drawn = time.monotonic()
        for state in states:
            report = state.result
            update: Updates = {status: state_line(state)}
            if state.phase == "running" and report is None:
                for each in (results, *(other for other, _ in others.values())):
                    update[each.area] = gr.update(visible=False)  # not before: a wrong value should hide nothing
            measured = report is not None and any(row.speedup for row in report.rows)
            if measured and (state.ended or time.monotonic() - drawn > FIGURE_SECONDS):
                place, view = others.get(type(report), (results, shown))
                update |= view(place, report)
                drawn = time.monotonic()
            if measured and state.ended:
                with TemporaryDirectory(prefix="specdemo-") as folder:
                    yield update | place.saved(report, Path(folder))
            else:
                yield update

    return show
