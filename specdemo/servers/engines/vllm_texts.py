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
    """
    detokenizer = _Detokenizer(connection, model)
    before: list[int] = []
    texts = []
    try:
        for chunk in chunks:
            texts.append(_split(detokenizer, before[-CONTEXT:], chunk))
            before += chunk.ids or ()
    except (httpx2.HTTPError, Refused, _Unavailable):
        return None
    return texts


def _split(detokenizer: _Detokenizer, before: list[int], chunk: Chunk) -> tuple[str, ...]:
    ids = chunk.ids or ()
    if len(ids) <= 1:
        return (chunk.text,)
    single = [detokenizer.text((i,)) for i in ids]
    return (
        _adding_up(single, chunk.text)
        or _adding_up(_split_in_place(detokenizer, before, ids), chunk.text)
        or (*[""] * (len(ids) - 1), chunk.text)
    )


def _split_in_place(detokenizer: _Detokenizer, before: list[int], ids: Sequence[int]) -> list[str]:
    """What each token adds to the text of those before it."""
    start = detokenizer.text(tuple(before)) if before else ""
    added, done = [], ""
    for count in range(1, len(ids) + 1):
        text = detokenizer.text((*before, *ids[:count]))
        text = text[len(start) :] if text.startswith(start) else ""
        if text.endswith("�") or not text.startswith(done):  # inside a multi-byte character
            added.append("")
            continue
        added.append(text[len(done) :])
        done = text
    return added


def _adding_up(texts: list[str], whole: str) -> tuple[str, ...] | None:
    """The texts if together they are the whole one, perhaps without the last: an end token is not shown."""
    return next((found for found in (tuple(texts), (*texts[:-1], "")) if "".join(found) == whole), None)


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
            found = self._connection.post("/detokenize", {"model": self._model, "tokens": list(ids)})
            text = found.get("prompt") if isinstance(found, dict) else None
            if not isinstance(text, str):
                raise _Unavailable
            self._known[ids] = text
        return self._known[ids]
