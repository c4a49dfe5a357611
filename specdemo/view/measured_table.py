"""Measured figures as text, and tables of them; everything that shows figures writes them with these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

NOTHING = "–"
"""Stands where nothing was measured."""

Column = tuple[str, str, Callable[[Any], str]]
"""A figure's name, its formula, and its text for what was measured: a row of a report, a lane, a batch."""


def table_html(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """The table, with the column's formula as the tip of every cell."""
    head = "".join(f'<th scope="col" title="{escape(tip)}">{escape(name)}</th>' for name, tip, _ in columns)
    lines = (
        "".join(f'<td title="{escape(tip)}">{escape(read(row))}</td>' for _, tip, read in columns) for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def number(value: float | None, form: str, unit: str = "") -> str:
    """A figure, or a dash where nothing was measured."""
    return NOTHING if value is None else f"{value:{form}}{unit}"


def rate(value: float | None) -> str:
    """Tokens a second with four digits, so that two of them divide to the ratio that stands beside them."""
    return NOTHING if value is None else f"{value:.{1 if value >= 100 else 2 if value >= 10 else 3}f}"


def spread(value: float | None, low: float | None, high: float | None, form: str, unit: str = "") -> str:
    """A median with its lowest and highest, if they differ as written."""
    middle, ends = number(value, form, unit), [number(end, form) for end in (low, high)]
    return middle if ends[0] == ends[1] else f"{middle} ({ends[0]}–{ends[1]})"
