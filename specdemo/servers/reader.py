"""The thread that asks one server and notes when each piece came, whatever else this program does meanwhile."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any

import httpx2
import openai
import pydantic

from specdemo.errors import ServerError
from specdemo.servers.answer import Answer, Piece
from specdemo.servers.connection import Connection
from specdemo.servers.counters import settled
from specdemo.servers.failures import Malformed, explained
from specdemo.servers.pair import ServerPair
from specdemo.servers.speculation import has_steps, read_speculation
from specdemo.servers.texts import cut_texts

TROUBLE = (
    openai.OpenAIError,
    httpx2.HTTPError,
    Malformed,
    json.JSONDecodeError,
    UnicodeDecodeError,
    pydantic.ValidationError,
)
"""What asking and reading can end with."""
REFUSED_PARAMETERS = (400, 422)
COUNTER_TRIES, COUNTER_SECONDS = 10, 0.05
PIECES = 8  # a token, at most
SLACK = 8  # tokens more than were asked for, after which a server is taken to ignore the limit


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        chat: of the chat API, or of plain completions.
        body: the parameters that OpenAI's own API knows.
        sampling: vLLM's parameters of sampling, without which the output would be another.
        extras: what the server may do without.
    """

    chat: bool
    body: dict[str, Any]
    sampling: dict[str, Any]
    extras: dict[str, Any]


class Reader:
    """Reads one answer in a thread of its own.

    Attributes:
        queue: pieces as they come, and last None, or the ServerError with which nothing came at all.
        answer: what was read; complete once the last item is in the queue.
        incomplete: why the answer broke off; None if it did not.
        notes: what the server did not know.
        texts: for each piece a text for every token; None where the server does not cut them.
        counters: its page of metrics before and after the answer, where it has one and they are wanted.
        stopped: whether it was broken off from here.
    """

    def __init__(self, connection: Connection, pair: ServerPair, question: Question, counted: bool) -> None:
        self.queue: SimpleQueue[Piece | ServerError | None] = SimpleQueue()
        self.answer = Answer()
        self.incomplete: str | None = None
        self.notes: list[str] = []
        self.counters: tuple[str | None, str | None] = (None, None)
        self.texts: list[tuple[str, ...]] | None = None
        self._connection, self._pair, self._question, self._counted = connection, pair, question, counted
        self._began: float | None = None
        self._thread = Thread(target=self._work, name=f"reader of {pair.name}", daemon=True)

    @property
    def elapsed(self) -> float:
        """Seconds since the request was sent; 0 before."""
        return 0.0 if self._began is None else time.perf_counter() - self._began

    @property
    def stopped(self) -> bool:
        return self._connection.aborted

    def start(self) -> None:
        """Ask."""
        self._thread.start()

    def stop(self) -> None:
        """Break off at once; the thread ends by itself."""
        self._connection.abort()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(seconds)

    def _work(self) -> None:
        trouble: ServerError | None = None
        try:
            before = self._metrics()
            self._read()
            # Nobody's clock runs any more.
            if self.answer.has_ids and has_steps(self.answer.speculation):
                self.texts = cut_texts(self._connection, self._question.body["model"], self.answer.pieces)
            if before is not None and read_speculation(self.answer.speculation).counts is None:
                self.counters = (before, self._later_metrics(before))
        except TROUBLE as error:
            if not self._connection.aborted:
                trouble = explained(error, self._pair, self._question.body["model"])
        except Exception as error:  # whoever waits for this thread must hear of it
            trouble = ServerError(
                f"{self._pair.name!r} sent what cannot be read ({type(error).__name__}); see its log."
            )
        finally:
            if trouble is not None and self.answer.pieces:
                self.incomplete, trouble = str(trouble).removeprefix("server: "), None
            self.queue.put(trouble)

    def _read(self) -> None:
        most = self._question.body["max_tokens"] + SLACK
        count, stream = 0, self._ask()
        try:
            for chunk in stream:
                piece = self.answer.take(chunk, self.elapsed)
                if piece is not None:
                    self.queue.put(piece)
                count += len(piece.ids) if piece is not None and piece.ids else 0
                if count > most or len(self.answer.pieces) > PIECES * most:
                    raise Malformed("it sends more tokens than were asked for")
        finally:
            stream.close()
        if not self.answer.finish and not self._connection.aborted:
            raise httpx2.RemoteProtocolError("the stream ended without a reason")
        if not self.answer.pieces:
            raise Malformed("the answer is empty")

    def _ask(self) -> Any:
        """Open the stream; a server that refuses what it does not know is asked again without it."""
        question = self._question
        plain = {name: value for name, value in question.body.items() if name != "stream_options"}
        attempts = [
            (question.body, question.extras),
            (question.body, {}),
            (plain, {}),
        ]
        for number, (body, extras) in enumerate(attempts):
            self._began = time.perf_counter()
            try:
                stream = self._connection.answer(question.chat, body, {**extras, **question.sampling})
            except openai.APIStatusError as error:
                if error.status_code not in REFUSED_PARAMETERS or number + 1 == len(attempts):
                    raise
                continue
            if number:
                left = [*question.extras, *(["stream_options"] if number > 1 else [])]
                self.notes.append(f"the server does not take all of {', '.join(left)}, so none was sent.")
            return stream
        raise AssertionError("the last attempt returns or raises")

    def _metrics(self) -> str | None:
        """The page of metrics; None where there is none."""
        if not self._counted:
            return None
        try:
            page = self._connection.get("/metrics")
        except httpx2.HTTPError:
            return None  # another port, or none: then the answer says by itself whether anybody is there
        return page.text if page.is_success else None

    def _later_metrics(self, before: str) -> str | None:
        """The page after the run: the counters follow the answer by a moment."""
        page = self._metrics()
        for _ in range(COUNTER_TRIES):
            if page is None or self.stopped or settled(before, page):
                break
            time.sleep(COUNTER_SECONDS)
            page = self._metrics()
        return page
