"""Tokens, lanes and tables in a terminal; control characters in a model's text are shown, not executed."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from specdemo.rounds import Round, Token
from specdemo.trace import Trace
from specdemo.view.lane_headers import complete_header, trace_headers
from specdemo.view.tables import figure_rows

STYLES = {
    "target": "",
    "accepted": "green underline",
    "corrected": "bold yellow",
    "bonus": "italic blue",
    "rejected": "red strike",
    "streamed": "dim",
}
"""By kind of token; they differ by more than colour, as on the page."""
REJECTED = "[-{}-]"  # around a rejected token where there are no styles, as ``wdiff`` writes it
UNKNOWN = "▒"  # stands for a rejected token whose text the server does not report
STEERING = ("Cc", "Cf", "Cs")  # unicode categories of characters that control a terminal or the direction of text
HARMLESS = "\n\t\u200c\u200d"  # line break, tab, and the joiners of letters and emoji


def shown(text: str) -> str:
    """The text with a visible symbol in place of every control character but line breaks and tabs."""
    return "".join(_picture(c) if unicodedata.category(c) in STEERING and c not in HARMLESS else c for c in text)


def _picture(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


def token_text(token: Token, marked: bool = False) -> Text:
    """A token in its kind's style, without style on surrounding whitespace; a rejected token breaks no line.

    ``marked``: a rejected token stands in brackets, for a pipe or a file, which have no styles.
    """
    text = UNKNOWN if token.id is None and token.kind == "rejected" else shown(token.text)
    if token.kind == "rejected":
        text = text.replace("\n", "↵").replace("\t", " ")
    body = text.strip()
    start = text.index(body)
    shown_body = REJECTED.format(body) if marked and token.kind == "rejected" else body
    return Text.assemble(text[:start], (shown_body, STYLES[token.kind]), text[start + len(body) :])


def rounds_text(rounds: Iterable[Round], marked: bool = False) -> Text:
    """The tokens of some rounds; of draft trees no second guesses. ``marked`` as in :func:`token_text`."""
    return Text.assemble(*(token_text(token, marked) for round_ in rounds for token in round_.reading))


def legend(marked: bool = False) -> Text:
    """The kinds of tokens, each in its style; where rejected ones are marked, how."""
    if marked:
        return Text(f"{REJECTED.format('rejected')} tokens were drafted and dropped")
    kinds = [Text(kind, style=style) for kind, style in STYLES.items() if kind not in ("target", "streamed")]
    return Text("  ").join(kinds)


def lane_panels(titles: Sequence[str], lanes: Sequence[Sequence[Round]], marked: bool = False) -> Table:
    """Lanes side by side, each under its title and its clock. ``marked`` as in :func:`token_text`."""
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in titles:
        grid.add_column(ratio=1, vertical="top")
    panels = []
    for title, rounds in zip(titles, lanes, strict=True):
        clock = f" {rounds[-1].seconds:.2f} s " if rounds else " … "
        text = rounds_text(rounds, marked)
        panels.append(Panel(text, title=Text(title), subtitle=Text(clock), title_align="left"))
    grid.add_row(*panels)
    return grid


def figures_table(traces: Sequence[Trace]) -> Table:
    titles = [header["title"] for header in trace_headers(traces)]
    return rows_table(["", *titles], [[row["label"], *row["values"]] for row in figure_rows(traces)])


def server_lines(traces: Sequence[Trace]) -> list[str]:
    lines = []
    for number, (trace, header) in enumerate(zip(traces, trace_headers(traces), strict=True), start=1):
        if trace.server is not None:
            complete_header(header, trace, trace.server)
            facts = " ".join((f"{header['server']['line']}.", *header["server"]["notes"]))
            lines.append(f"Lane {number}, {trace.server.model} on {trace.server.name}: {facts}")
    return lines


def rows_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    headers = [Column(name, overflow="fold") for name in columns]  # what is cut off cannot be read
    table = Table(*headers, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        table.add_row(*(Text(shown(str(cell))) for cell in row))
    return table
