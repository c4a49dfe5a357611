"""What the tabs that measure have in common: a line that says how far it is, and two buttons."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError
from specdemo.ui.lane_controls import whole

STOPPING = """
() => {
  const line = document.querySelector("#%s .job-state:has(.bar) p");
  if (line) line.textContent = "Stopping…";
  return [];
}
"""


def busy(running: bool, *starts: gr.Button) -> list[Any]:
    """Updates for the buttons that start something, one if none are named, and the one that stops it."""
    return [gr.update(interactive=not running) for _ in starts or (None,)] + [gr.update(interactive=running)]


def state_line(phase: str, message: str, fraction: float = 0.0) -> str:
    """The line under the buttons, with a bar while it moves; ``fraction`` from 0 to 1."""
    moving = phase in ("loading", "running")
    bar = f'<span class="bar"><b style="width:{100 * fraction:.0f}%"></b></span>' if moving else ""
    return f'<div class="job-state" data-phase="{phase}" role="status"><p>{escape(message)}</p>{bar}</div>'


def stopping(status: str) -> str:
    """Script that acknowledges Stop in the line with this id at once.

    Not an update by the server, which could arrive after the last one of what was stopped and stay.
    """
    return STOPPING % status


def bounded(field: str, value: float | None, most: int, *, least: int = 1) -> int:
    """
    Raises:
        SettingsError: no whole number from ``least`` to ``most``; names the field.
    """
    number = whole(field, value)
    if not isinstance(number, int) or not least <= number <= most:
        raise SettingsError(field, f"must be a whole number from {least} to {most:,}, not {number!r}.")
    return number
