"""The thread that reads one response: each chunk gets the time of its arrival, whatever this program does then."""

from __future__ import annotations

import time
from queue import SimpleQueue
from threading import Thread

import httpx2

from specdemo.errors import ServerError
from specdemo.servers.connection import events
from specdemo.servers.engines.base import CompletionRequest, Engine
from specdemo.servers.failures import FAILURES, Malformed, Refused, explained
from specdemo.servers.pair import ServerPair
from specdemo.servers.response import Chunk

REFUSED_PARAMETERS = (400, 422)
CHUNKS_A_TOKEN = 8  # at most
CHARACTERS_A_TOKEN = 256  # on average, at most
SECONDS_A_TOKEN = 10.0  # on average, at most, beside one timeout for the first
EXTRA_TOKENS = 8  # beyond this many too many, a server is taken to ignore the limit


class Reader(Thread):
    """Sends one request and reads its response, once it is started.

    Attributes:
        queue: chunks as they come; at last None, or the ServerError if not even one chunk came.
        response: what was read, of the engine; complete once the last item is in the queue.
    """

    def __init__(self, pair: ServerPair, engine: Engine, request: CompletionRequest) -> None:
        super().__init__(name=f"reader of {pair.name}", daemon=True)
        self.queue: SimpleQueue[Chunk | ServerError | None] = SimpleQueue()
        self.response = engine.response
        self._connection, self._settings = engine.connection, engine.wanted.settings
        self._pair, self._engine, self._request = pair, engine, request
        self._began: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the request was sent; 0 before."""
        return 0.0 if self._began is None else time.perf_counter() - self._began

    def run(self) -> None:
        response, error = self.response, None
        try:
            self._engine.begin()
            self._read_stream()
            self._engine.finish()  # no clock runs any more
        except FAILURES as failure:
            if not self._connection.aborted:
                error = explained(failure, self._pair, self._settings.strategy)
        except Exception as failure:  # whatever ends this thread, the lane that waits for it must go on
            kind = type(failure).__name__
            error = ServerError(f"{self._pair.name!r} sent what cannot be read ({kind}); see its log.")
        finally:
            if error is not None and response.chunks:
                response.incomplete, error = str(error).removeprefix("server: "), None
            self.queue.put(error)

    def _read_stream(self) -> None:
        limit = self._settings.max_new_tokens + EXTRA_TOKENS
        tokens = characters = 0
        seconds = self._pair.timeout + SECONDS_A_TOKEN * self._settings.max_new_tokens
        response, stream = self.response, self._open_stream()
        try:
            for event in events(stream, self._pair.timeout, seconds):
                chunks = self._engine.read(event, self.elapsed)
                tokens += sum(len(chunk.ids or ()) for chunk in chunks)
                characters += sum(len(chunk.text) for chunk in chunks)
                pieces = len(response.chunks) + len(chunks)
                if max(tokens, pieces / CHUNKS_A_TOKEN, characters / CHARACTERS_A_TOKEN) > limit:
                    raise Malformed("it sends more tokens than were asked for")
                self._give(chunks)
        finally:
            stream.close()
            self._give(self._engine.rest())
        if not response.finish_reason and not self._connection.aborted:
            raise httpx2.RemoteProtocolError("the stream ended without a reason")
        if not response.chunks:
            raise Malformed("the answer is empty")

    def _give(self, chunks: list[Chunk]) -> None:
        self.response.chunks += chunks
        for chunk in chunks:
            self.queue.put(chunk)

    def _open_stream(self) -> httpx2.Response:
        """The stream of the first attempt that the server does not refuse for its parameters."""
        attempts = [*self._request.attempts()]
        while True:
            body, left_out = attempts.pop(0)
            self._began = time.perf_counter()
            try:
                stream = self._connection.stream(self._request.path, body)
            except Refused as error:
                if error.status not in REFUSED_PARAMETERS or not attempts:
                    raise
                continue
            if left_out:
                note = f"the server does not take all of {', '.join(left_out)}, so none was sent."
                self.response.notes.append(note)
            return stream
