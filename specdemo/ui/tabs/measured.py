"""What the page is told while a measurement goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

from specdemo.ui.jobs.measuring import MeasureState
from specdemo.ui.tabs.tab_parts import state_line

FIGURE_SECONDS = 3.0
"""Figures are rebuilt whole, so seldom enough not to flicker."""
Updates = dict[Any, Any]


def measured_updates(
    states: Iterator[MeasureState],
    status: gr.HTML,
    area: gr.Column,
    shown: Callable[[Any], Updates],
    saved: Callable[[Any, Path], Updates],
) -> Iterator[Updates]:
    """Progress at once, figures now and then, files at the end of each.

    Args:
        states: of the measurement.
        status: the line under the buttons.
        area: what holds the results; hidden from the beginning of a measurement to its first figures.
        shown: the components' values for a report.
        saved: the same for its files, which it writes into a folder.
    """
    drawn = time.monotonic()
    for state in states:
        update: Updates = {status: state_line(state.phase, state.message, state.fraction)}
        if state.phase == "running" and state.report is None:
            update[area] = gr.update(visible=False)  # not before: a slip of the pen should hide nothing
        ended = state.phase not in ("loading", "running")
        measured = state.report is not None and any(row.speedup for row in state.report.rows)
        if measured and (ended or time.monotonic() - drawn > FIGURE_SECONDS):
            with TemporaryDirectory(prefix="specdemo-") as folder:
                yield update | shown(state.report) | saved(state.report, Path(folder))
            drawn = time.monotonic()
        else:
            yield update
