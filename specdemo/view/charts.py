"""The charts of measurements: of a γ sweep, of batch sizes, and of advice.

Colours read on light and dark ground; text and grid are coloured by page.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_sizes import LoadReport, SizeReport
from specdemo.analysis.rows import Row
from specdemo.analysis.sweep_report import SweepReport
from specdemo.analysis.wording import counted
from specdemo.view.assets import fill

HERO = "#7468ee"
PLAIN = "#858593"
HEIGHT = 330
BASELINE = {"color": PLAIN, "dash": "dash", "width": 1.5}
MOST_IN_FOREST = 16
DASHED = "Dashed: over the runs on these prompts; there are too few prompts to speak of others."
NOTHING_DRAWN = "No speed-up is drawn: the machine was busy, so none can be told."

CAPTION = "Bars: from the worst repeat to the best; a dashed line is plain decoding. Formulas: under the table."
MORE_ROWS = (
    " The more rows or users one step of the target serves, the less free it is to check γ more tokens of each."
)


def speed_figure(report: SweepReport) -> go.Figure:
    """Acceptance rate and tokens a second by γ, one above the other."""
    rows = [row for row in report.rows if row.rounds]
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.1)
    counts = [[row.accepted, row.proposed] for row in rows]
    hover = "%{y:.1%} = %{customdata[0]:,} accepted / %{customdata[1]:,} drafted<extra></extra>"
    accepted = _line(rows, "acceptance_rate", "acceptance rate", hover, customdata=counts)
    speed = _line(rows, "tokens_per_second", "tokens/s", "%{y:.1f} tokens/s<extra></extra>", ends=True)
    figure.add_traces([accepted, speed], rows=[1, 2], cols=[1, 1])
    plain = report.plain_tokens_per_second
    if plain:
        figure.add_hline(plain, row=2, line=BASELINE, annotation_text=f"plain, {plain:.0f}")
    _dress_by_gamma(figure, report)
    figure.update_yaxes(title_text="acceptance rate", tickformat=".0%", range=[0, 1.05], row=1)
    figure.update_yaxes(title_text="tokens/s", rangemode="tozero", row=2)
    figure.update_xaxes(title_text=None, row=1)
    return figure


def speedup_figure(report: SweepReport) -> go.Figure:
    """Speed-up measured and predicted, by γ, the recommended one ringed; of a noisy sweep what none can pass."""
    rows = report.known
    look: dict[str, Any] = {
        "customdata": [_costs(row) for row in rows],
        "line": {"color": PLAIN, "dash": "dot", "width": 2},
        "marker": {"color": PLAIN, "size": 6, "symbol": "diamond"},
    }
    hover = "predicted %{y:.2f}×: %{customdata}<extra></extra>"
    predicted = _line(rows, "predicted_speedup", "predicted", hover, **look)
    ranges = [[row.speedup_low, row.speedup_high] for row in rows]
    hover = "measured %{y:.2f}×, %{customdata[0]:.2f} to %{customdata[1]:.2f}<extra></extra>"
    measured = _line(rows, "speedup", "measured", hover, ends=True, customdata=ranges)
    figure = go.Figure([predicted, measured])
    if report.noisy:
        bounded = [row for row in report.rows if row.most]
        look = {"mode": "markers", "marker": {"color": HERO, "size": 10, "symbol": "triangle-down-open"}}
        figure.add_trace(_line(bounded, "most", "at most τ", "at most %{y:.2f}×<extra></extra>", **look))
    if report.best is not None:
        ring = {"size": 17, "color": "rgba(0,0,0,0)", "line": {"color": HERO, "width": 2}}
        look = {"mode": "markers", "line": None, "marker": ring, "hoverinfo": "skip"}
        name = "recommended" if report.pays else "best of these"
        figure.add_trace(_line([report.best], "speedup", name, None, **look))
    figure.add_hline(1, line=BASELINE)
    _dress_by_gamma(figure, report, legend=True)
    figure.update_yaxes(title_text="speed-up", ticksuffix="×", rangemode="tozero")
    return figure


def size_figure(report: SizeReport) -> go.Figure:
    """Speed-up by batch size, or by users."""
    rows = report.known
    hover = (
        "%{y:.2f}×, %{customdata[0]:.2f} to %{customdata[1]:.2f}: %{customdata[2]:.0f} drafted "
        "/ %{customdata[3]:.0f} plain tokens/s<extra></extra>"
    )
    data = [[r.speedup_low, r.speedup_high, r.tokens_per_second, r.plain_tokens_per_second] for r in rows]
    figure = go.Figure(
        _line(rows, "speedup", "speed-up", hover, ends=True, x=[f"{row.size}" for row in rows], customdata=data)
    )
    figure.add_hline(1, line=BASELINE)
    if report.noisy:
        figure.add_annotation(text=NOTHING_DRAWN, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5)
    return _dressed_by_size(figure, report, "speed-up", ticksuffix="×")


def load_figure(report: LoadReport, field: str, unit: str) -> go.Figure:
    """A figure of rows by number of users, of plain and of speculative decoding where both have it."""
    figure = go.Figure()
    for name, colour in (("plain", PLAIN), ("speculative", HERO)):
        plain = name == "plain"
        rows = [r for r in report.measured if (r.settings.strategy == "autoregressive") == plain]
        if any(getattr(row, field) is not None for row in rows):
            look: dict[str, Any] = {
                "line": {"color": colour, "width": 2.5},
                "marker": {"color": colour, "size": 7},
            }
            hover = f"{name} %{{y:.3~g}} {unit}<extra></extra>"
            figure.add_trace(_line(rows, field, name, hover, ends=True, x=[f"{row.size}" for row in rows], **look))
    return _dressed_by_size(figure, report, unit)


def _dressed_by_size(figure: go.Figure, report: SizeReport, title: str, **look: Any) -> go.Figure:
    """The page's look, with rows or users along the bottom, evenly apart, since they double."""
    sizes = [str(size) for size in report.sizes]
    _dress(figure, "sizes", legend=len(figure.data) > 1)
    ends = [-0.5, len(sizes) - 0.5]
    order = {"type": "category", "categoryorder": "array", "categoryarray": sizes, "range": ends}
    figure.update_xaxes(title_text=report.along, **order)
    figure.update_yaxes(title_text=title, rangemode="tozero", **look)
    return figure


def forest(report: AdviceReport) -> str:
    """A chart of speed-ups with their intervals, one line a contender, as HTML without scripts.

    Intervals that are of these prompts alone are dashed, with a line that says so. Plain decoding, which the
    others are held against, is shown wherever it ranks.
    """
    known = [
        (row, row.speedup, row.interval or [row.speedup] * 2) for row in report.shown if row.speedup is not None
    ]
    shown = [
        each for n, each in enumerate(known) if n < MOST_IN_FOREST or each[0].settings.strategy == "autoregressive"
    ]
    top = 1.08 * max([1.0, *(min(ends[1], 2.5 * speedup) for _, speedup, ends in shown)])
    lines = []
    for row, speedup, ends in shown:
        low, place, high = (100 * min(value, top) / top for value in (ends[0], speedup, ends[1]))
        state = row.verdict.split(",")[0].replace(" ", "-")
        places = {"low": low, "place": place, "high": max(low, high)}  # in per cent of the width
        lines.append({"state": state, "name": row.name, "over": row.interval_over, "speedup": speedup, **places})
    notes = [NOTHING_DRAWN] if report.noisy else [DASHED] if any(line["over"] == "runs" for line in lines) else []
    if more := len(known) - len(shown):
        notes.append(f"{counted(more, 'more setting stands', 'more settings stand')} in the table.")
    return fill("advice-forest.html", lines=lines, one=100 / top, notes=notes)


def _line(
    rows: Sequence[Row], field: str, name: str, hover: str | None, *, ends: bool = False, **look: Any
) -> go.Scatter:
    three = [_three(row, field) for row in rows]
    values = [value for value, _, _ in three]
    usual = {
        "mode": "lines+markers",
        "line": {"color": HERO, "width": 2.5},
        "marker": {"color": HERO, "size": 7},
        "x": [row.gamma for row in rows],
    }
    if ends:
        usual["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [v if v is None else high - v for v, _, high in three],
            "arrayminus": [v if v is None else v - low for v, low, _ in three],
            "thickness": 1.5,
            "width": 4,
        }
    return go.Scatter(y=values, name=name, hovertemplate=hover, **(usual | look))


def _three(row: Row, field: str) -> Sequence[Any]:
    """A figure, its lowest and its highest repeat, where these are known."""
    value = getattr(row, field)
    ends = value, getattr(row, f"{field}_low", value), getattr(row, f"{field}_high", value)
    return value if isinstance(value, list) else ends


def _costs(row: Row) -> str:
    if row.draft_cost is None:
        return "nothing of full length was drafted"
    tau, c, v, o = row.mean_acceptance_length, row.draft_cost, row.verify_cost, row.overhead_cost
    return f"τ {tau:.2f}, c {c:.3f}, v {v:.2f}, o {o:.3f}"


def _dress_by_gamma(figure: go.Figure, report: SweepReport, *, legend: bool = False) -> None:
    gammas = [gamma or 0 for gamma in report.gammas]
    _dress(figure, "sweep", legend=legend)
    figure.update_xaxes(
        title_text="γ, drafted tokens a round",
        unifiedhovertitle={"text": "γ = %{x}"},
        tickvals=list(gammas),
        range=[gammas[0] - 0.5, gammas[-1] + 0.5],
    )


def _dress(figure: go.Figure, revision: str, *, legend: bool = False) -> None:
    """The page's look: no ground of its own, thin lines, nothing that catches a finger on a phone."""
    above = {"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom", "traceorder": "normal"}
    figure.update_layout(
        template="none",
        uirevision=revision,
        height=HEIGHT,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12, "color": PLAIN},
        margin={"l": 52, "r": 10, "t": 34 if legend else 12, "b": 40},
        showlegend=legend,
        legend=above,
        hovermode="x unified",
        dragmode=False,
    )
    spike = {"spikethickness": 1, "spikedash": "dot", "spikecolor": PLAIN}
    figure.update_xaxes(showgrid=False, zeroline=False, fixedrange=True, title_standoff=8, **spike)
    figure.update_yaxes(gridcolor="rgba(133,133,147,.22)", zeroline=False, fixedrange=True, title_standoff=8)
