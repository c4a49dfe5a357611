"""What a measurement of batch sizes shows: one sentence, one figure and a table."""

from __future__ import annotations

import plotly.graph_objects as go

from specdemo.analysis.batch_sizes import SizeReport
from specdemo.ui.tabs.measured import Results, create_results
from specdemo.ui.tabs.tab_parts import Updates
from specdemo.view.charts import HERO, PLAIN, bars, dress, line
from specdemo.view.measured_table import number, rate, spread, table_html

CAPTION = (
    "Speed-up: tokens a second of the drafted batch / those of the plain one, median of the repeats; bars from "
    "the worst to the best. Below the dashed line drafting is slower. A target step does more work the more rows "
    "it serves, so checking γ more tokens of each stops being nearly free."
)


def create_size_results() -> Results:
    """Build the results in the current layout."""
    figures = [("plot", "Speed-up by batch size", CAPTION)]
    return create_results("batch-sizes", "batch-sizes", "batch-sizes", figures)


def show_sizes(results: Results, report: SizeReport) -> Updates:
    """The report in its components, all but the files."""
    known = [row for row in report.rows if row.speedup is not None]
    figure = f"{known[-1].speedup:.2f}×" if known else ""
    slow = bool(known) and known[-1].speedup < 1
    (plot,) = results.plots
    return {
        **results.shown(figure, slow, report.conclusion, table_html(COLUMNS, report.rows)),
        plot: size_figure(report),
    }


def size_figure(report: SizeReport) -> go.Figure:
    """Speed-up by batch size; sizes stand apart evenly, since they double."""
    rows = [row for row in report.rows if row.speedup is not None]
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=[str(row.size) for row in rows],
            y=[row.speedup for row in rows],
            error_y=bars(rows, "speedup"),
            customdata=[
                [row.tokens_per_second, row.plain_tokens_per_second, row.speedup_low, row.speedup_high]
                for row in rows
            ],
            name="speed-up",
            hovertemplate="%{y:.2f}×, %{customdata[2]:.2f} to %{customdata[3]:.2f}: %{customdata[0]:.0f} drafted "
            "/ %{customdata[1]:.0f} plain tokens/s<extra></extra>",
            **line(HERO),
        )
    )
    figure.add_hline(1, line={"color": PLAIN, "dash": "dash", "width": 1.5})
    dress(figure)
    figure.update_layout(uirevision="sizes")
    figure.update_xaxes(
        title_text="rows decoded together",
        type="category",
        categoryorder="array",
        categoryarray=[str(size) for size in report.sizes],
        range=[-0.5, len(report.sizes) - 0.5],
    )
    figure.update_yaxes(title_text="speed-up", ticksuffix="×", rangemode="tozero")
    return figure


COLUMNS = (
    ("rows", "decoded together", lambda r: str(r.size)),
    (
        "speed-up",
        "drafted / plain tokens/s, median, worst and best repeat; the speeds beside it are of the same repeat",
        lambda r: spread(r.speedup, r.speedup_low, r.speedup_high, ".2f", "×"),
    ),
    ("plain tokens/s", "of the whole batch", lambda r: rate(r.plain_tokens_per_second)),
    ("drafted tokens/s", "of the whole batch", lambda r: rate(r.tokens_per_second)),
    ("accepted", "Σ accepted / Σ drafted", lambda r: number(r.acceptance_rate, ".1%")),
    ("τ", "tokens a row keeps of a round", lambda r: number(r.mean_acceptance_length, ".2f")),
    ("padding", "positions that only filled up shorter rows", lambda r: number(r.padding, ".1%")),
    ("idle cache", "cache slots read that held nothing of their row", lambda r: number(r.idle_slots, ".1%")),
    ("overhead", "time outside model forwards", lambda r: number(r.other_share, ".1%")),
)
