"""A lane on a server: its rounds while they arrive, and its trace once it is known what they were.

A thread reads the response: each chunk gets the time of its arrival, whatever this program does then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

import httpx2

from specdemo.errors import ServerError
from specdemo.rounds import Round
from specdemo.server_record import IN_TURN, ServerRecord
from specdemo.servers.connection import Connection, events
from specdemo.servers.engines.base import CompletionRequest, Engine
from specdemo.servers.engines.table import detected
from specdemo.servers.failures import FAILURES, Malformed, Refused, explained
from specdemo.servers.pair import ServerPair
from specdemo.servers.request import server_of, wanted_of
from specdemo.servers.response import Chunk, Response
from specdemo.servers.rounds import conclude, streamed
from specdemo.settings import Settings
from specdemo.trace import Trace

STOP_SECONDS = 0.1  # how often a lane that waits for a round looks whether it is to stop
CLOSE_SECONDS = 2.0  # the longest wait for the reading thread to end; an aborted connection ends it at once
REFUSED_PARAMETERS = (400, 422)
CHUNKS_A_TOKEN = 8  # at most
CHARACTERS_A_TOKEN = 256  # on average, at most
SECONDS_A_TOKEN = 10.0  # on average, at most, beside one timeout for the first
EXTRA_TOKENS = 8  # beyond this many too many, a server is taken to ignore the limit


class ServerLane(Iterator[Round]):
    """Rounds as the server sends them, one a chunk, of unknown kinds; :meth:`trace` has what they really were.

    The request is sent by :meth:`start`, or when the first round is taken; from then on a thread reads.

    Args:
        pair: the deployments; anything if the settings name a configured server.
        prompt: text, or token ids for plain completions.
        settings: of the lane; γ, drafter and acceptance rule are the server's own unless it was started for them.
        stop: ends the waiting for a server that is started for this lane; at once, or on a public page as its
            first round is taken.
        like: a lane on the same deployment, beside which this one runs: its server is not examined again.

    Raises:
        SettingsError, PromptError: at once, what this server or any server cannot do.
        ServerError: at once if nobody is there; a refused request when the first round is taken.
    """

    def __init__(
        self,
        pair: Any,
        prompt: str | Sequence[int],
        settings: Settings,
        stop: Event | None = None,
        like: ServerLane | None = None,
    ) -> None:
        self._served = server_of(pair, settings)
        self.settings, self._stop, self._known = settings, stop, like and like._reader
        self._wanted = replace(wanted_of(self._served, prompt, settings), alone=like is None)
        self._deployment = ExitStack()
        self._reader: Reader | None = None
        if not self._served.one_at_a_time:
            self._open()
        self._rounds: list[Round] = []
        self._waiting: deque[Round] = deque()  # those of the rounds that were not taken yet
        self._started = self._ended = False
        self._trace: Trace | None = None
        self.in_turn = False  # set by a race in which this lane runs alone; the trace says so

    def _open(self) -> Reader:
        """Wait for the deployment, and make the request."""
        pair = self._deployment.enter_context(self._served.deployed(self.settings, self._stop))
        connection = Connection(pair, self.settings.strategy)
        self._deployment.callback(connection.close)
        try:
            seconds = self._known.network_seconds if self._known else connection.network_seconds()
            kind = type(self._known.engine) if self._known else detected(connection)
            engine = kind(connection, self._wanted)
            self._reader = Reader(pair, engine, engine.request(), seconds)
        except BaseException as error:
            self._deployment.close()
            if isinstance(error, FAILURES):
                raise explained(error, pair, self.settings.strategy) from None
            raise
        return self._reader

    @property
    def shares_machine(self) -> bool:
        """Whether it takes computing time from the lanes that run here."""
        return self._served.shares_machine(self.settings.strategy)

    def start(self) -> None:
        """Send the request now. Later calls do nothing."""
        if not self._started and not self._ended:
            reader = self._reader or self._open()
            self._started = True
            reader.start()

    @property
    def elapsed(self) -> float:
        """The lane's clock, which is the client's: seconds since the request was sent."""
        return self._reader.elapsed if self._reader else 0.0

    def wait(self, seconds: float | None) -> bool:
        """Wait so long for a round or the end; whether ``next`` would now return without waiting."""
        self.start()
        while self._reader and not self._waiting and not self._ended:
            try:
                self._receive(self._reader.queue.get(timeout=seconds))
            except Empty:
                return False
        return True

    def until(self, stop: Event) -> Iterator[Round]:
        """Its rounds until ``stop`` is set, which ends the waiting for a round too."""
        while not stop.is_set():
            if self.wait(STOP_SECONDS):
                round_ = next(self, None)
                if round_ is None:
                    return
                yield round_

    def __next__(self) -> Round:
        self.wait(None)
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def _receive(self, item: Chunk | ServerError | None) -> None:
        if isinstance(item, Chunk):
            plain = self.settings.strategy == "autoregressive" and item.ids is not None
            rounds = streamed(item, len(self._rounds), "target" if plain else "streamed")
            self._rounds += rounds
            self._waiting += rounds
            return
        self._finish()
        if item is not None:
            raise item

    def close(self) -> None:
        """Break off: the connection is shut, and the thread that reads from it ends."""
        if not self._ended:
            self._waiting.clear()
            if self._reader:
                self._reader.connection.abort()
            self._finish()

    def _finish(self) -> None:
        self._ended = True
        if self._reader and self._started:
            self._reader.join(CLOSE_SECONDS)
        self._deployment.close()

    def __del__(self) -> None:
        if hasattr(self, "_ended"):  # what was refused has nothing to close
            self.close()

    def trace(self) -> Trace:
        """The lane's record so far; after the end with the rounds that the server's own record makes of it."""
        if not self._ended:
            return self._recorded()
        self._trace = self._trace or self._recorded()
        return self._trace

    def _recorded(self) -> Trace:
        reader, rounds = self._reader, tuple(self._rounds)
        response = reader.response if reader else Response()
        counted = sum(len(r.emitted) for r in rounds) if response.counts_tokens else response.usage[1]
        record = ServerRecord(
            name=self._served.name,
            model=self._wanted.model,
            engine=reader.engine.name if reader else "",
            chat=self._wanted.chat,
            completion_tokens=counted,
            prompt_tokens=response.usage[0],
            token_ids=response.has_ids,
            prefill_seconds=response.prefill_seconds,
            decode_seconds=response.decode_seconds,
            network_seconds=reader.network_seconds if reader else None,
            slots=response.slots,
            obeyed=self._served.obeys,
        )
        if reader.connection.aborted if reader else self._ended:
            record = replace(record, incomplete="it was stopped here")
        elif not self._ended:
            record = replace(record, incomplete="it has not ended yet")
        else:
            rounds, record = conclude(response, self.settings, rounds, record)
        if self.in_turn:
            record = replace(record, notes=(*record.notes, IN_TURN))
        return Trace(
            self.settings,
            response.prompt_ids,
            rounds,
            pair=self._served.name,
            dtype="unknown",
            engine="server",
            server=record,
        )


class Reader(Thread):
    """Sends one request and reads its response, once it is started."""

    def __init__(
        self, pair: ServerPair, engine: Engine, request: CompletionRequest, network_seconds: float | None
    ) -> None:
        super().__init__(name=f"reader of {pair.name}", daemon=True)
        # chunks as they come; at last None, or the ServerError if not even one chunk came
        self.queue: SimpleQueue[Chunk | ServerError | None] = SimpleQueue()
        # response: what was read, of the engine; complete once the last item is in the queue
        # network_seconds: the median time of a few empty requests; None if none succeeded
        self.response, self.network_seconds = engine.response, network_seconds
        self.engine, self.connection = engine, engine.connection
        self._pair, self._settings, self._request = pair, engine.wanted.settings, request
        self._began: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the request was sent; 0 before."""
        return 0.0 if self._began is None else time.perf_counter() - self._began

    def run(self) -> None:
        response, error = self.response, None
        try:
            self._read_stream()
            self.engine.finish()  # no clock runs any more
        except FAILURES as failure:
            if not self.connection.aborted:
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
                chunks = self.engine.read(event, self.elapsed)
                tokens += sum(len(chunk.ids or ()) for chunk in chunks)
                characters += sum(len(chunk.text) for chunk in chunks)
                pieces = len(response.chunks) + len(chunks)
                if max(tokens, pieces / CHUNKS_A_TOKEN, characters / CHARACTERS_A_TOKEN) > limit:
                    raise Malformed("it sends more tokens than were asked for")
                self._give(chunks)
        finally:
            stream.close()
            self._give(self.engine.rest())
        if not response.finish_reason and not self.connection.aborted:
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
                stream = self.connection.stream(self._request.path, body)
            except Refused as error:
                if error.status not in REFUSED_PARAMETERS or not attempts:
                    raise
                continue
            self.response.sent = self._request.path, body
            if left_out:
                note = f"the server does not take all of {', '.join(left_out)}, so none was sent."
                self.response.notes.append(note)
            return stream
