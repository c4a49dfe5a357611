"""A lane on a server: its rounds while they come, and its trace once it is known what they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Empty
from threading import Event
from typing import Any

import httpx2

from specdemo.errors import ServerError
from specdemo.server_record import ServerRecord
from specdemo.servers.answer import Piece
from specdemo.servers.conclusion import conclude, so_far
from specdemo.servers.connection import Connection
from specdemo.servers.failures import explained
from specdemo.servers.pair import ServerPair
from specdemo.servers.reader import Question, Reader
from specdemo.servers.request import body_of, checked_prompt, extras_of, sampling_of, server_of, wants_chat
from specdemo.servers.rounds import streamed
from specdemo.settings import Settings
from specdemo.trace import Round, Trace

HEARD_SECONDS = 0.1
CLOSE_SECONDS = 2.0
"""How long closing waits for the reading thread, which a shut connection ends at once."""


class ServerLane(Iterator[Round]):
    """Rounds as the server sends them, one a chunk, their kinds unknown; :meth:`trace` has what they really were.

    The request is sent with the first round that is asked for, or by :meth:`start`; a thread reads from then on.

    Args:
        pair: the deployments; anything if the settings name a configured server.
        prompt: text, or token ids for plain completions.
        settings: of the lane; γ, drafter and rule are the server's own.

    Raises:
        SettingsError, PromptError: at once, what this server or any cannot do.
        ServerError: at once if nobody is there; else with the first round.
    """

    def __init__(self, pair: Any, prompt: str | Sequence[int], settings: Settings) -> None:
        self.pair: ServerPair = server_of(pair, settings)
        self.settings = settings
        self.chat = wants_chat(self.pair, prompt, settings)
        self.prompt = checked_prompt(prompt, self.chat)
        model = self.pair.model_of(settings.strategy)
        self._connection = Connection(self.pair, settings.strategy)
        try:
            self.network_seconds = self._connection.network_seconds()
        except httpx2.HTTPError as error:
            self._connection.close()
            raise explained(error, self.pair, model) from None
        question = Question(
            chat=self.chat,
            body=body_of(self.prompt, settings, model, self.chat, self.pair.stop),
            sampling=sampling_of(settings),
            extras=extras_of(self.chat),
        )
        self._reader = Reader(self._connection, self.pair, question, counted=settings.strategy == "speculative")
        self._pieces: list[Piece] = []
        self._coming: list[Round] = []
        self._rounds: list[Round] = []
        self._started = self._ended = False
        self._trace: Trace | None = None

    def start(self) -> None:
        """Send the request now. Once; later calls do nothing."""
        if not self._started and not self._ended:
            self._started = True
            self._reader.start()

    @property
    def elapsed(self) -> float:
        """Seconds on the lane's clock, which is the client's: since the request was sent."""
        return self._reader.elapsed

    def wait(self, seconds: float) -> bool:
        """Wait so long for a round, or for the end; whether ``next`` would give it without waiting."""
        if self._coming or self._ended:
            return True
        self.start()
        try:
            self._receive(
                self._reader.queue.get(timeout=seconds) if seconds > 0 else self._reader.queue.get_nowait()
            )
        except Empty:
            return False
        return self.wait(0) if not self._coming and not self._ended else True

    def until(self, stop: Event) -> Iterator[Round]:
        """Its rounds, until ``stop`` is set, which is heard while it waits for one too."""
        while not stop.is_set():
            if self.wait(HEARD_SECONDS):
                round_ = next(self, None)
                if round_ is None:
                    return
                yield round_

    def __next__(self) -> Round:
        self.start()
        while not self._coming and not self._ended:
            self._receive(self._reader.queue.get())
        if not self._coming:
            raise StopIteration
        return self._coming.pop(0)

    def _receive(self, item: Piece | ServerError | None) -> None:
        if isinstance(item, Piece):
            self._pieces.append(item)
            plain = self.settings.strategy == "autoregressive" and item.ids is not None
            rounds = streamed(item, len(self._rounds), "target" if plain else "streamed")
            self._rounds += rounds
            self._coming += rounds
            return
        self._finish()
        if item is not None:
            raise item

    def _finish(self) -> None:
        self._ended = True
        self._reader.join(CLOSE_SECONDS)
        self._connection.close()

    def close(self) -> None:
        """Break off: the connection is shut, and the thread that reads from it ends."""
        if self._ended:
            return
        self._ended = True
        self._coming.clear()
        self._reader.stop()
        if self._started:
            self._reader.join(CLOSE_SECONDS)
        self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_ended"):  # what was refused has nothing to close
            self.close()

    def trace(self) -> Trace:
        """The lane's record so far; after the end with the rounds that the server's own record makes of it."""
        if not self._ended:
            return self._concluded()
        if self._trace is None:
            self._trace = self._concluded()
        return self._trace

    def _concluded(self) -> Trace:
        answer = self._reader.answer
        if self._ended and not self._reader.stopped:
            found = conclude(self._reader, self.settings, self._pieces, self._rounds)
        else:
            found = so_far(self._rounds, self._reader.stopped)
        count = sum(len(p.ids or ()) for p in self._pieces) if answer.has_ids else None
        record = ServerRecord(
            name=self.pair.name,
            model=self.pair.model_of(self.settings.strategy),
            chat=self.chat,
            level=found.level,
            counts=found.counts,
            completion_tokens=count if count is not None else answer.usage[1],
            prompt_tokens=answer.usage[0],
            token_ids=count is not None,
            network_seconds=self.network_seconds,
            incomplete=found.incomplete,
            notes=found.notes,
        )
        given = tuple(self.prompt) if not isinstance(self.prompt, str) else ()
        return Trace(
            self.settings,
            answer.prompt_ids or given,
            found.rounds,
            pair=self.pair.name,
            dtype="unknown",
            engine="server",
            server=record,
        )
