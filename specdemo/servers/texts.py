"""The text of each token of a chunk: a server sends the chunk's text whole, and cuts it only when asked."""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx2

from specdemo.servers.answer import Piece
from specdemo.servers.connection import Connection

MOST_REQUESTS = 1500
LONGEST_SECONDS = 5.0
CONTEXT = 6  # ids before a token that can change how it is written


def cut_texts(connection: Connection, model: str, pieces: Sequence[Piece]) -> list[tuple[str, ...]] | None:
    """For each piece with its ids a text for every token, which together are the piece's; None if nobody knows.

    Asks vLLM's ``/detokenize``, for single tokens first, which are often the same.
    """
    cutter = _Cutter(connection, model)
    before: list[int] = []
    cut = []
    try:
        for piece in pieces:
            cut.append(cutter.cut(before[-CONTEXT:], piece))
            before += piece.ids or ()
    except (httpx2.HTTPError, _Unknown):
        return None
    return cut


class _Unknown(Exception):
    """The server does not cut, or takes too long."""


class _Cutter:
    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model
        self._known: dict[tuple[int, ...], str] = {}
        self._until = time.monotonic() + LONGEST_SECONDS

    def cut(self, before: list[int], piece: Piece) -> tuple[str, ...]:
        ids = piece.ids or ()
        if len(ids) <= 1:
            return (piece.text,)
        alone = tuple(self._text((i,)) for i in ids)
        for texts in (alone, (*alone[:-1], "")):  # an end token is not shown
            if "".join(texts) == piece.text:
                return texts
        return self._in_place(before, ids, piece.text)

    def _in_place(self, before: list[int], ids: Sequence[int], text: str) -> tuple[str, ...]:
        """By what each token adds after those before; all to the last one if that does not give the text."""
        start = self._text(tuple(before)) if before else ""
        cuts, done = [], ""
        for count in range(1, len(ids) + 1):
            so_far = self._text((*before, *ids[:count]))
            whole = so_far[len(start) :] if so_far.startswith(start) else ""
            if whole.endswith("�") or not whole.startswith(done):  # inside a character
                cuts.append("")
                continue
            cuts.append(whole[len(done) :])
            done = whole
        for texts in (cuts, [*cuts[:-1], ""]):
            if "".join(texts) == text:
                return tuple(texts)
        return (*[""] * (len(ids) - 1), text)

    def _text(self, ids: tuple[int, ...]) -> str:
        if ids not in self._known:
            if len(self._known) >= MOST_REQUESTS or time.monotonic() > self._until:
                raise _Unknown
            answer = self._connection.post("/detokenize", {"model": self._model, "tokens": list(ids)})
            try:
                found = answer.json()["prompt"] if answer.is_success else None
            except (ValueError, KeyError, TypeError):
                found = None
            if not isinstance(found, str):
                raise _Unknown
            self._known[ids] = found
        return self._known[ids]
