"""One deployment outside a race: it writes, and says which tokens are the likeliest behind what is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any, TypeVar

from specdemo.errors import LoadCancelled, ServerError
from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import Engine
from specdemo.servers.engines.table import detected
from specdemo.servers.failures import FAILURES, Malformed, Refused, explained
from specdemo.servers.lane import STOP_SECONDS, Reader
from specdemo.servers.logprobs import Place, places_of
from specdemo.servers.pair import ServerPair
from specdemo.servers.request import wanted_of
from specdemo.servers.response import Response, unstreamed
from specdemo.settings import Settings

T = TypeVar("T")
COMPANY = 4
"""Requests that run together, where one shall run beside others."""


class Deployment:
    """Requests to one deployment, from several threads at a time; a ServerError if nobody is there.

    ``stop`` ends whatever is under way, which then raises LoadCancelled.
    """

    def __init__(self, pair: ServerPair, strategy: str, stop: Event) -> None:
        self.pair, self.strategy, self._stop = pair, strategy, stop
        self._connection = Connection(pair, strategy)
        with self._explained():
            self._kind = detected(self._connection)
            about = self._connection.page(self._kind.about) if self._kind.about else None
        told = about if isinstance(about, dict) else {}
        known = (told.get("version") or told.get("build_info"), told.get("model_ftype"))
        # A build that does not know its own version calls it b0-unknown.
        said = [text for text in known if isinstance(text, str) and text and "unknown" not in text]
        self.about = ", ".join((self._kind.name, *said))
        """Engine, version and type of the weights, as far as it says."""
        self.asked: tuple[str, dict[str, Any]] = ("", {})  # what :meth:`ask` sent last

    @property
    def root(self) -> str:
        """Its address, without a path."""
        return self.pair.url_of(self.strategy).removesuffix("/v1")

    def write(self, prompt: str | Sequence[int], settings: Settings) -> Response:
        """Its whole output, which may have ended at once; a ServerError if it breaks off."""
        with self._explained():
            engine = self._engine(prompt, settings)
            reader = Reader(self.pair, engine, engine.request(), None)
        reader.run()
        while (item := reader.queue.get()) is not None:
            if isinstance(item, ServerError):
                if engine.response.finish_reason:
                    break  # it ended before a first token; nothing follows in the queue
                raise item
        if engine.response.incomplete:
            raise ServerError(engine.response.incomplete)
        return engine.response

    def ask(self, prompt: str | Sequence[int], settings: Settings) -> list[Place]:
        """The likeliest tokens at every place of its output; none where it does not tell them."""
        with self._explained():
            engine = self._engine(prompt, settings)
            made = engine.request()
            for body, _ in made.attempts():
                self.asked = made.path, {**unstreamed(body), **engine.listing(made.path)}
                try:
                    return places_of(self._connection.post(*self.asked, self.pair.timeout))
                except (Refused, Malformed):
                    continue
        return []

    def together(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """What all of them return, :data:`COMPANY` at a time; LoadCancelled once ``stop`` is set."""
        with ThreadPoolExecutor(COMPANY, self.pair.name) as threads:
            waiting = [threads.submit(work) for work in works]
            while wait(waiting, STOP_SECONDS).not_done:
                if self._stop.is_set():
                    self._connection.abort()
                    threads.shutdown(cancel_futures=True)
            if self._stop.is_set():
                raise LoadCancelled("Stopped.")
            return [each.result() for each in waiting]

    def close(self) -> None:
        self._connection.close()

    def _engine(self, prompt: str | Sequence[int], settings: Settings) -> Engine:
        chat = settings.chat if isinstance(prompt, str) else None
        wanted = wanted_of(self.pair, prompt, replace(settings, strategy=self.strategy, chat=chat))
        return self._kind(self._connection, wanted)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            raise explained(error, self.pair, self.strategy) from None
