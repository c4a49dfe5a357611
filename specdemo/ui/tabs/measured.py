"""What a measurement shows: one sentence, figures, a table, and files to take away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
    """The components that show a report, the name of its files, and whether a report was shown."""

    area: gr.Column
    headline: gr.HTML
    chart: gr.HTML
    figures: gr.Row
    plots: list[gr.Plot]
    table: gr.HTML
    code: dict[str, gr.Code]
    known: gr.State
    files: gr.Row
    csv: gr.DownloadButton
    json: gr.DownloadButton
    file_name: str

    def outputs(self) -> list[Any]:
        """All of them, for an event."""
        shown = [self.area, self.headline, self.chart, self.figures, *self.plots, self.table, *self.code.values()]
        return [*shown, self.known, self.files, self.csv, self.json]

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
            self.known: True,
            self.files: gr.update(visible=False),
        }

    def saved(self, report: Any, folder: Path) -> Updates:
        """The report's files in ``folder``, which Gradio copies as it sends the update."""
        files = {self.csv: ("csv", report.to_csv()), self.json: ("json", report.to_json())}
        settings = report.base
        drafter = "" if "drafter" in report.left_out else f"{DRAFTERS[settings.drafter].label} "
        how = f"{drafter}{settings.acceptance} {settings.max_new_tokens} tokens"
        name = "-".join(map(slug, ("specdemo", self.file_name, report.pair, how)))
        updates: Updates = {self.files: gr.update(visible=True)}
        for button, (ending, text) in files.items():
            path = folder / f"{name}.{ending}"
            write_whole(path, text)
            updates[button] = str(path)
        return updates


def create_results(
    area_id: str,
    prefix: str,
    file_name: str,
    figures: Sequence[tuple[str, str, str]] = (),
    engines: Mapping[str, str] | None = None,
) -> Results:
    """Build the results in the current layout.

    Args:
        area_id: the id of the area.
        prefix: begins the other ids.
        file_name: begins the names of the files; the pair and the settings follow.
        figures: name, title and caption of each.
        engines: that take what was found over, by their names for programs; the area is hidden until there is any.
    """
    with gr.Column(elem_id=area_id, visible=not engines) as area:
        headline = gr.HTML(
            value=None, padding=False, elem_id=f"{prefix}-headline", elem_classes="measured-headline"
        )
        chart = gr.HTML(value=None, padding=False, elem_id=f"{prefix}-chart", visible=bool(engines))
        plots = []
        with gr.Row(elem_classes="measured-figures", visible=bool(figures)) as row:
            for name, title, caption in figures:
                with gr.Column(min_width=300, elem_classes="measured-figure"):
                    gr.HTML(figure_head(title), padding=False)
                    plots.append(gr.Plot(show_label=False, container=False, elem_id=f"{prefix}-{name}"))
                    gr.HTML(f"<p>{caption}</p>", padding=False)
        table = gr.HTML(value=None, padding=False, elem_id=f"{prefix}-table", elem_classes="measured-table")
        code = _create_code(prefix, engines) if engines else {}
        with gr.Row(visible=False, elem_classes="measured-files") as files:
            csv = gr.DownloadButton("Save as CSV", size="sm", min_width=120, elem_id=f"{prefix}-csv")
            json = gr.DownloadButton("Save as JSON", size="sm", min_width=120, elem_id=f"{prefix}-json")
    return Results(area, headline, chart, row, plots, table, code, gr.State(False), files, csv, json, file_name)


def _create_code(prefix: str, engines: Mapping[str, str]) -> dict[str, gr.Code]:
    """Lines to take away, by engine."""
    code = {}
    with gr.Accordion("Lines to take away", open=True, elem_id=f"{prefix}-code"), gr.Tabs():
        for engine, name in engines.items():
            with gr.Tab(name):
                language = "python" if engine == "transformers" else "shell"
                code[engine] = gr.Code(language=language, show_label=False, interactive=False, lines=3)
    return code


def show_measurement(
    status: gr.HTML,
    results: Results,
    shown: Callable[[Any, Any], Updates],
    others: Mapping[type, tuple[Results, Callable[[Any, Any], Updates]]] | None = None,
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
