"""The text of every single token, from vLLM's ``/detokenize``: the stream has only the text of whole chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx2

from specdemo.servers.connection import Connection
from specdemo.servers.failures import Refused
from specdemo.servers.response import Chunk

MOST_REQUESTS = 1500
LONGEST_SECONDS = 5.0
CONTEXT = 6  # ids before a token that can change how it is written


def token_texts(connection: Connection, model: str, chunks: Sequence[Chunk]) -> list[tuple[str, ...]] | None:
    """For each chunk the text of each token, which together are the chunk's; None if the server cannot tell.

    Single tokens are decoded first: a token's text is mostly the same everywhere, so few requests are needed.
    Every chunk has its ids.
    """
    detokenizer = _Detokenizer(connection, model)
    before: tuple[int, ...] = ()
    texts = []
    try:
        for chunk in chunks:
            ids = tuple(i for i in chunk.ids or () if i is not None)
            texts.append(_split(detokenizer, before, ids, chunk.text))
            before = (before + ids)[-CONTEXT:]
    except (httpx2.HTTPError, Refused, _Unavailable):
        return None
    return texts


def _split(
    detokenizer: _Detokenizer, before: tuple[int, ...], ids: tuple[int, ...], whole: str
) -> tuple[str, ...]:
    """The text of each token; where they do not add up to the whole text, that stands with the last one."""
    if len(ids) <= 1:
        return (whole,)
    for read in (lambda: [detokenizer.text((i,)) for i in ids], lambda: _split_in_place(detokenizer, before, ids)):
        texts = read()
        for found in (tuple(texts), (*texts[:-1], "")):  # an end token is not shown
            if "".join(found) == whole:
                return found
    return (*[""] * (len(ids) - 1), whole)


def _split_in_place(detokenizer: _Detokenizer, before: tuple[int, ...], ids: tuple[int, ...]) -> list[str]:
    """What each token adds to the text of those before it."""
    start = detokenizer.text(before) if before else ""
    added, done = [], start
    for count in range(1, len(ids) + 1):
        text = detokenizer.text(before + ids[:count])
        whole = text.startswith(done) and not text.endswith("�")  # not inside a multi-byte character
        added.append(text[len(done) :] if whole else "")
        done = text if whole else done
    return added


class _Unavailable(Exception):
    """The server does not detokenize, or takes too long."""


class _Detokenizer:
    """The server's ``/detokenize``, with a memory and a limit of time and requests."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model
        self._known: dict[tuple[int, ...], str] = {}
        self._until = time.monotonic() + LONGEST_SECONDS

    def text(self, ids: tuple[int, ...]) -> str:
        if ids not in self._known:
            if len(self._known) >= MOST_REQUESTS or time.monotonic() > self._until:
                raise _Unavailable
            match self._connection.post("/detokenize", {"model": self._model, "tokens": list(ids)}):
                case {"prompt": str(text)}:
                    self._known[ids] = text
                case _:
                    raise _Unavailable
        return self._known[ids]
