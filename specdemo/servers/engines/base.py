"""What a module of an engine has to provide, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from specdemo.servers.connection import Connection
from specdemo.servers.counters import CounterNames
from specdemo.servers.failures import Malformed, parsed
from specdemo.servers.response import Chunk, Response
from specdemo.settings import Settings

COUNT_USAGE = "stream_options"


class ServerPages:
    """The pages on which a deployment describes itself; each is requested once, and only if an engine reads it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pages: dict[str, Any] = {}

    def json(self, path: str) -> Any:
        """The JSON at a path; None if there is none.

        Raises:
            httpx2.HTTPError: nobody is there.
        """
        if path not in self._pages:
            response = self._connection.get(path, alone=True)
            try:
                self._pages[path] = parsed(response.content) if response.is_success else None
            except Malformed:
                self._pages[path] = None
        return self._pages[path]

    @cached_property
    def owner(self) -> str:
        """``owned_by`` of the first model in its list; empty without one. Most engines write their name there."""
        match self.json("/v1/models"):
            case {"data": [{"owned_by": str(owner)}, *_]}:
                return owner
        return ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lane wants, whatever the engine."""

    model: str  # its name in requests
    prompt: str | list[int]  # text, or token ids
    chat: bool  # whether a text is to be put into the chat template
    settings: Settings  # of the lane
    stop: tuple[str, ...] = ()  # texts that end the output

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """Of the prompt; empty if it is a text."""
        return () if isinstance(self.prompt, str) else tuple(self.prompt)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request for a streamed completion."""

    path: str  # below the server's root
    body: dict[str, Any]  # the parameters on which the output depends
    # parameters that are left out if the server refuses them
    optional: dict[str, Any] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] = ()  # of the prompt, if they are known before; else empty

    def attempts(self) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
        """What to send after each refusal, and the names of the parameters that were left out."""
        yield {**self.body, **self.optional}, ()
        left_out = tuple(self.optional)
        if left_out:
            yield self.body, left_out
        if COUNT_USAGE in self.body:
            body = {name: value for name, value in self.body.items() if name != COUNT_USAGE}
            yield body, (*left_out, COUNT_USAGE)


class Engine(ABC):
    """One kind of server, as one lane asks it: an object is made for each lane."""

    name: ClassVar[str]  # for people
    owner: ClassVar[str]  # what it writes as ``owned_by`` into its list of models; empty for any
    # the names of its counters, if the speculation of a request can be read from them
    counters: ClassVar[CounterNames | None] = None

    def __init__(self, pages: ServerPages) -> None:  # noqa: B027
        """The pages are there to be read, such as for the length of the context."""

    @classmethod
    def recognized(cls, pages: ServerPages) -> bool:
        """Whether the deployment is one of this engine."""
        return cls.owner in ("", pages.owner)

    @abstractmethod
    def request(self, connection: Connection, wanted: Wanted) -> CompletionRequest:
        """What to send for a lane. May ask the server small things first, since no clock runs yet.

        Raises:
            Refused, Malformed, httpx2.HTTPError: the server does not answer these.
        """

    @abstractmethod
    def read(self, response: Response, event: dict[str, Any], seconds: float) -> list[Chunk]:
        """The parts of the output in one event of the stream; what else it tells goes into ``response``.

        Raises:
            Malformed: it is no event of a completion.
        """

    def rest(self) -> list[Chunk]:
        """What was held back until now, at the end of the stream or where it broke off."""
        return []

    def finish(self, connection: Connection, wanted: Wanted, response: Response) -> None:  # noqa: B027
        """What can be known once the output has ended, when no clock runs: above all ``response.speculation``."""
