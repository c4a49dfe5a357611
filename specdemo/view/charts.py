"""The figures of a γ sweep and of batch sizes.

Colours read on light and dark ground; text and grid are coloured by page.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.rows import Row
from specdemo.analysis.sweep_report import SweepReport

HERO = "#7468ee"
PLAIN = "#858593"
PHASES = (("draft", "#d08a1e"), ("verify", "#7468ee"), ("other", "#858593"))
HEIGHT = 330
EDGE = "rgba(133,133,147,.45)"
BASELINE = {"color": PLAIN, "dash": "dash", "width": 1.5}

CAPTIONS = {
    "speed": "Acceptance rate: Σ accepted / Σ drafted. Tokens/s: decoded tokens / decode time, in the repeat "
    "of the middle speed-up; bars from the slowest to the fastest. Dashed: plain decoding.",
    "speedup": "Measured: plain seconds a token / speculative seconds a token, median of the repeats, of an even "
    "number the lower middle; bars from the worst to the best. Predicted: Σ τ(d) / Σ (d·c + v(d) + o) over the "
    "rounds’ drafted lengths d, from acceptance by position and median costs c, v and o.",
    "accepted": "The number in a bar is how many drafted tokens were kept; its height is the share of rounds "
    "that kept so many: rounds with i kept / rounds.",
    "plot": "Speed-up: tokens a second of the drafted batch / those of the plain one, median of the repeats; bars "
    "from the worst to the best. Below the dashed line drafting is slower. A target step does more work the "
    "more rows it serves, so checking γ more tokens of each stops being nearly free.",
    "time": "Mean time of a round: γ draft steps, one target forward over γ + 1 tokens, and everything else.",
}


def speed_figure(report: SweepReport) -> go.Figure:
    """Acceptance rate and tokens a second by γ, one above the other."""
    rows = [row for row in report.rows if row.rounds]
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.1)
    accepted = _by_gamma(
        rows,
        "acceptance_rate",
        name="acceptance rate",
        customdata=[[row.accepted, row.proposed] for row in rows],
        hovertemplate="%{y:.1%} = %{customdata[0]:,} accepted / %{customdata[1]:,} drafted<extra></extra>",
    )
    speed = _by_gamma(
        rows,
        "tokens_per_second",
        error_y=bars(rows, "tokens_per_second"),
        name="tokens/s",
        hovertemplate="%{y:.1f} tokens/s<extra></extra>",
    )
    figure.add_traces([accepted, speed], rows=[1, 2], cols=[1, 1])
    plain = report.plain_tokens_per_second
    if plain:
        figure.add_hline(plain, row=2, line=BASELINE)
        figure.add_annotation(
            x=1,
            xref="x2 domain",
            y=plain,
            yref="y2",
            text=f"plain, {plain:.0f}",
            showarrow=False,
            xanchor="right",
            yanchor="bottom",
        )
    _dress(figure, report)
    figure.update_yaxes(title_text="acceptance rate", tickformat=".0%", range=[0, 1.05], row=1)
    figure.update_yaxes(title_text="tokens/s", rangemode="tozero", row=2)
    figure.update_xaxes(title_text=None, row=1)
    return figure


def speedup_figure(report: SweepReport) -> go.Figure:
    """Speed-up measured and predicted, by γ; the recommended one is ringed."""
    rows = [row for row in report.rows if row.speedup is not None]
    predicted = _by_gamma(
        rows,
        "predicted_speedup",
        name="predicted",
        customdata=[_costs(row) for row in rows],
        hovertemplate="predicted %{y:.2f}×: %{customdata}<extra></extra>",
        line={"color": PLAIN, "dash": "dot", "width": 2},
        marker={"color": PLAIN, "size": 6, "symbol": "diamond"},
    )
    measured = _by_gamma(
        rows,
        "speedup",
        error_y=bars(rows, "speedup"),
        name="measured",
        customdata=[[row.speedup_low, row.speedup_high] for row in rows],
        hovertemplate="measured %{y:.2f}×, %{customdata[0]:.2f} to %{customdata[1]:.2f}<extra></extra>",
    )
    figure = go.Figure([predicted, measured])
    if report.best is not None:
        ring = {"size": 17, "color": "rgba(0,0,0,0)", "line": {"color": HERO, "width": 2}}
        look = {"mode": "markers", "line": None, "marker": ring, "hoverinfo": "skip"}
        figure.add_trace(
            _by_gamma([report.best], "speedup", name="recommended" if report.pays else "best of these", **look)
        )
    figure.add_hline(1, line=BASELINE)
    _dress(figure, report, legend=True)
    figure.update_yaxes(title_text="speed-up", ticksuffix="×", rangemode="tozero")
    return figure


def accepted_figure(report: SweepReport) -> go.Figure:
    """Share of rounds by accepted tokens, stacked, by γ."""
    rows = [row for row in report.rows if row.rounds]
    longest = max((row.gamma or 0 for row in rows), default=0)
    figure = go.Figure()
    for accepted in range(longest + 1):
        able = [row for row in rows if (row.gamma or 0) >= accepted]
        figure.add_trace(
            go.Bar(
                x=[row.gamma for row in able],
                y=[row.accepted_histogram[accepted] / (row.rounds or 1) for row in able],
                customdata=[[row.accepted_histogram[accepted], row.rounds] for row in able],
                name=str(accepted),
                marker={"color": _deeper(accepted / max(longest, 1)), "line": {"width": 1, "color": EDGE}},
                text=str(accepted),
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                hovertemplate=f"{accepted} kept in %{{y:.0%}}: %{{customdata[0]:,}} of %{{customdata[1]:,}} rounds"
                "<extra></extra>",
            )
        )
    _dress(figure, report)
    figure.update_layout(barmode="stack", bargap=0.3, uniformtext={"minsize": 10, "mode": "hide"})
    figure.update_yaxes(title_text="share of rounds", tickformat=".0%", range=[0, 1], showgrid=False)
    return figure


def size_figure(report: SizeReport) -> go.Figure:
    """Speed-up by batch size; sizes stand apart evenly, since they double."""
    rows = report.known
    figure = go.Figure(
        go.Scatter(
            x=[str(row.size) for row in rows],
            y=[row.speedup for row in rows],
            error_y=bars(rows, "speedup"),
            customdata=[[row.tokens_per_second, row.plain_tokens_per_second, *row.range[1:]] for row in rows],
            name="speed-up",
            hovertemplate="%{y:.2f}×, %{customdata[2]:.2f} to %{customdata[3]:.2f}: %{customdata[0]:.0f} drafted "
            "/ %{customdata[1]:.0f} plain tokens/s<extra></extra>",
            **line(HERO),
        )
    )
    figure.add_hline(1, line=BASELINE)
    dress(figure)
    sizes = [str(size) for size in report.sizes]
    ends = [-0.5, len(sizes) - 0.5]
    figure.update_layout(uirevision="sizes")
    figure.update_xaxes(
        title_text="rows decoded together", type="category", categoryorder="array", categoryarray=sizes, range=ends
    )
    figure.update_yaxes(title_text="speed-up", ticksuffix="×", rangemode="tozero")
    return figure


def time_figure(report: SweepReport) -> go.Figure:
    """Milliseconds of a round by phase, stacked, by γ."""
    rows = [row for row in report.rows if row.rounds]
    figure = go.Figure()
    for phase, colour in PHASES:
        figure.add_trace(
            go.Bar(
                x=[row.gamma for row in rows],
                y=[1000 * getattr(row, f"{phase}_seconds") for row in rows],
                name=phase,
                marker={"color": colour, "line": {"width": 0}},
                hovertemplate=f"{phase} %{{y:.1f}} ms<extra></extra>",
            )
        )
    _dress(figure, report, legend=True)
    figure.update_layout(barmode="stack", bargap=0.3)
    figure.update_yaxes(title_text="ms a round", rangemode="tozero")
    return figure


def figure_head(title: str) -> str:
    """A figure's heading, with the button that saves it: see race-png.js."""
    button = '<button type="button" class="chart-png" title="Save this chart as an image">PNG</button>'
    return f'<div class="measured-head"><h3>{escape(title)}</h3>{button}</div>'


def _by_gamma(rows: Sequence[Row], field: str, **look: Any) -> go.Scatter:
    """A line with a point for each γ."""
    return go.Scatter(
        x=[row.gamma for row in rows], y=[getattr(row, field) for row in rows], **{**line(HERO), **look}
    )


def line(colour: str) -> dict[str, Any]:
    """A line with points."""
    return {
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2.5},
        "marker": {"color": colour, "size": 7},
    }


def bars(rows: Sequence[Any], name: str) -> dict[str, Any]:
    """From the lowest to the highest repeat: of rows with ``name``, ``name_low`` and ``name_high``."""
    middle, low, high = ([getattr(row, name + end) for row in rows] for end in ("", "_low", "_high"))
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if m is None else h - m for m, h in zip(middle, high, strict=True)],
        "arrayminus": [None if m is None else m - low_ for m, low_ in zip(middle, low, strict=True)],
        "thickness": 1.5,
        "width": 4,
    }


def _costs(row: Row) -> str:
    if row.draft_cost is None:
        return "nothing of full length was drafted"
    tau, c, v, o = row.mean_acceptance_length, row.draft_cost, row.verify_cost, row.overhead_cost
    return f"τ {tau:.2f}, c {c:.3f}, v {v:.2f}, o {o:.3f}"


def _deeper(share: float) -> str:
    """From a tint of the accent to nearly all of it: one hue reads as an order."""
    return f"rgba(116,104,238,{0.12 + 0.7 * share:.2f})"


def _dress(figure: go.Figure, report: SweepReport, *, legend: bool = False) -> None:
    """The page's look, with γ along the bottom."""
    gammas = [gamma or 0 for gamma in report.gammas]
    dress(figure, legend=legend)
    figure.update_layout(uirevision="sweep")
    figure.update_xaxes(
        title_text="γ, drafted tokens a round",
        unifiedhovertitle={"text": "γ = %{x}"},
        tickvals=list(gammas),
        range=[gammas[0] - 0.5, gammas[-1] + 0.5],
    )


def dress(figure: go.Figure, *, legend: bool = False) -> None:
    """The page's look: no ground of its own, thin lines, nothing that catches a finger on a phone."""
    figure.update_layout(
        template="none",
        height=HEIGHT,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12, "color": PLAIN},
        margin={"l": 52, "r": 10, "t": 34 if legend else 12, "b": 40},
        showlegend=legend,
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        hovermode="x unified",
        dragmode=False,
    )
    spike = {"spikethickness": 1, "spikedash": "dot", "spikecolor": PLAIN}
    figure.update_xaxes(showgrid=False, zeroline=False, fixedrange=True, title_standoff=8, **spike)
    figure.update_yaxes(gridcolor="rgba(133,133,147,.22)", zeroline=False, fixedrange=True, title_standoff=8)
