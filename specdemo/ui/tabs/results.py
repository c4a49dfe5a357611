"""What a measurement shows: one sentence, figures or a chart, a table, lines and files to take away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import gradio as gr

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_sizes import LoadReport, SizeReport
from specdemo.analysis.engine_lines import FRAMEWORKS
from specdemo.analysis.report import Report
from specdemo.analysis.sweep_report import SweepReport
from specdemo.drafters import DRAFTERS
from specdemo.files import slug, write_whole
from specdemo.ui.jobs.job import JobState
from specdemo.ui.tabs.tab_parts import Show, Updates, state_line
from specdemo.view import charts
from specdemo.view.assets import fill
from specdemo.view.tables import SHOWN, columns, report_table

FIGURE_SECONDS = 3.0
"""Figures are rebuilt whole, so seldom enough not to flicker."""
NAMES = {
    SweepReport: ("sweep-results", "sweep", "gamma-sweep"),
    AdviceReport: ("advice-results", "advice", "which-setting"),
    SizeReport: ("batch-sizes", "batch-sizes", "batch-sizes"),
    LoadReport: ("load-results", "load", "load-test"),
}
"""By kind of report the id of its area, what begins the other ids, and what begins the names of its files."""
FIGURES: Mapping[type[Report], Sequence[tuple[str, str, Callable[[Any], Any]]]] = {
    SweepReport: (
        ("speedup", "Speed-up, measured and predicted", charts.speedup_figure),
        ("speed", "Acceptance and speed", charts.speed_figure),
    ),
    AdviceReport: (),
    SizeReport: (("plot", "Speed-up by batch size", charts.size_figure),),
    LoadReport: (
        ("plot", "Speed-up by number of users", charts.size_figure),
        ("all", "Tokens/s of all users", partial(charts.load_figure, field="tokens_per_second", unit="tokens/s")),
        (
            "one",
            "Tokens/s of one user",
            partial(charts.load_figure, field="user_tokens_per_second", unit="tokens/s"),
        ),
        ("ttft", "Time to first token", partial(charts.load_figure, field="ttft", unit="s")),
        ("kept", "Acceptance", partial(charts.load_figure, field="acceptance_rate", unit="accepted / drafted")),
    ),
}


@dataclass(frozen=True, slots=True)
class Offer:
    """A button that sets what is recommended, and the ``Settings`` that it was measured with."""

    button: gr.Button
    settings: gr.State

    def shown(self, report: Report) -> Updates:
        """Both of them for a report; without the button where nothing pays, or a server has its own settings."""
        if isinstance(report, AdviceReport):
            text, settings, pays = "Use this setting", report.settings(), report.pays
        elif isinstance(report, SweepReport):
            gamma, pays = report.best_gamma or report.base.gamma, report.pays
            text, settings = f"Use γ = {gamma}", replace(report.base, gamma=gamma)
        visible = report.complete and bool(pays) and report.server is None
        return {self.settings: settings, self.button: gr.update(value=text, visible=visible, interactive=True)}


@dataclass(frozen=True, slots=True)
class Results:
    """The components that show one kind of report."""

    kind: type[Report]
    area: gr.Column
    headline: gr.HTML
    chart: gr.HTML
    figures: gr.Row
    plots: list[gr.Plot]
    table: gr.HTML
    code: dict[str, gr.Code]
    engines: gr.Tabs | None  # with the code
    files: gr.Row
    csv: gr.DownloadButton
    json: gr.DownloadButton

    def outputs(self) -> list[Any]:
        shown = [self.area, self.headline, self.chart, self.figures, *self.plots, self.table, *self.code.values()]
        shown += [self.engines] if self.engines else []
        return [*shown, self.files, self.csv, self.json]

    def shown(self, report: Any) -> Updates:
        """A report in its components, all but the files."""
        figure, slow, sentence = _headline(report)
        # Of a server's one γ there is no figure.
        over_gamma = report.server is None or isinstance(report, LoadReport)
        drawn = zip(self.plots, FIGURES[self.kind], strict=True) if over_gamma else ()
        lines = {engine: report.code(engine) for engine in self.code}
        able = [engine for engine, text in lines.items() if not all(t.startswith("#") for t in text.splitlines())]
        return {
            self.area: gr.update(visible=True),
            self.headline: fill("headline.html", figure=figure, slow=slow, sentence=sentence, noisy=report.noisy),
            self.table: report_table(report),
            self.files: gr.update(visible=False),
            self.figures: gr.update(visible=over_gamma and bool(self.plots)),
            **{plot: draw(report) for plot, (_, _, draw) in drawn},
            **({self.chart: charts.forest(report)} if self.code else {}),
            **{component: lines[engine] for engine, component in self.code.items()},
            **({self.engines: gr.Tabs(selected=able[0])} if self.engines and able else {}),
        }

    def saved(self, report: Report, folder: Path) -> Updates:
        """The report's files in ``folder``, which Gradio copies as it sends the update."""
        base = report.base
        drafter = f"{DRAFTERS[base.drafter].label} " if "drafter" in report.shared else ""
        how = f"{drafter}{base.acceptance} {base.max_new_tokens} tokens"
        name = "-".join(map(slug, ("specdemo", NAMES[self.kind][2], report.pair, how)))
        updates: Updates = {self.files: gr.update(visible=True)}
        files = ((self.csv, "csv", report.to_csv()), (self.json, "json", report.to_json()))
        for button, ending, text in files:
            write_whole(folder / f"{name}.{ending}", text)
            updates[button] = str(folder / f"{name}.{ending}")
        return updates


def _headline(report: SweepReport | AdviceReport | SizeReport) -> tuple[str, bool, str]:
    """The largest thing on the page, empty where nothing is sure; whether it is bad news; and the sentence."""
    if report.noisy:
        return f"≤ {report.most:.2f}×" if report.most else "", True, report.noise
    if isinstance(report, SizeReport):
        largest = report.known[-1].range[0] if report.known else 0.0
        return f"{largest:.2f}×" if largest else "", largest < 1, report.conclusion
    best, pays, advised = report.best, report.pays, isinstance(report, AdviceReport)
    if best is None or (pays is None and (advised or report.server is None)):
        return "", False, report.recommendation
    figure = f"{best.range[0]:.2f}×"
    if advised and not pays:
        figure = "plain"
    elif pays and not advised and report.server is None:
        figure = f"γ = {best.gamma}"
    return figure, not pays, report.recommendation


def create_results(kind: type[Report]) -> Results:
    """Build the results of a kind of report in the current layout; advice is hidden until there is any."""
    (area_id, prefix, _), advised = NAMES[kind], kind is AdviceReport
    with gr.Column(elem_id=area_id, visible=kind in (SweepReport, SizeReport)) as area:
        headline = gr.HTML(
            value=None, padding=False, elem_id=f"{prefix}-headline", elem_classes="measured-headline"
        )
        chart = gr.HTML(value=None, padding=False, elem_id=f"{prefix}-chart", visible=advised)
        plots = []
        with gr.Row(elem_classes="measured-figures", visible=not advised) as row:
            for name, title, _ in FIGURES[kind]:
                with gr.Column(min_width=300, elem_classes="measured-figure"):
                    gr.HTML(fill("figure-head.html", title=title), padding=False)
                    plots.append(gr.Plot(show_label=False, container=False, elem_id=f"{prefix}-{name}"))
                    gr.HTML(f"<p>{charts.CAPTION}{charts.MORE_ROWS * (name == 'plot')}</p>", padding=False)
        table = gr.HTML(value=None, padding=False, elem_id=f"{prefix}-table", elem_classes="measured-table")
        code, engines = _create_code(prefix) if advised else ({}, None)
        with gr.Row(visible=False, elem_classes="measured-files") as files:
            csv = gr.DownloadButton("Save as CSV", size="sm", min_width=120, elem_id=f"{prefix}-csv")
            json = gr.DownloadButton("Save as JSON", size="sm", min_width=120, elem_id=f"{prefix}-json")
        with gr.Accordion("What the columns mean", open=False, elem_id=f"{prefix}-columns"):
            meanings = (f"<dt>{escape(name)}</dt><dd>{escape(tip)}</dd>" for name, tip, _ in columns(SHOWN[kind]))
            gr.HTML(f"<dl>{''.join(meanings)}</dl>", padding=False)
    return Results(kind, area, headline, chart, row, plots, table, code, engines, files, csv, json)


def _create_code(prefix: str) -> tuple[dict[str, gr.Code], gr.Tabs]:
    """Lines to take away, by engine, and the tabs that hold them."""
    code = {}
    with gr.Accordion("Lines to take away", open=True, elem_id=f"{prefix}-code"), gr.Tabs() as engines:
        for engine, name in FRAMEWORKS.items():
            with gr.Tab(name, id=engine):
                language: Literal["python", "shell"] = "python" if engine == "transformers" else "shell"
                code[engine] = gr.Code(language=language, show_label=False, interactive=False, lines=3)
    return code, engines


def show_measurement(status: gr.HTML, several: Sequence[Results], offer: Offer | None = None) -> Show:
    """Progress in ``status`` at once, figures of one of ``several`` kinds now and then, files at the end."""
    by_kind = {results.kind: results for results in several}

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        drawn = time.monotonic()
        for state in states:
            report = state.result
            update: Updates = {status: state_line(state)}
            if state.phase == "running" and report is None:  # not before: a wrong value should hide nothing
                update |= {results.area: gr.update(visible=False) for results in several}
            if report is None or not (report.known or report.noisy):
                yield update
                continue
            if state.ended or time.monotonic() - drawn > FIGURE_SECONDS:
                update |= by_kind[type(report)].shown(report) | (offer.shown(report) if offer else {})
                drawn = time.monotonic()
            if not state.ended:
                yield update
                continue
            with TemporaryDirectory(prefix="specdemo-") as folder:
                yield update | by_kind[type(report)].saved(report, Path(folder))

    return show
