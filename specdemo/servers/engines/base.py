"""What an engine has to provide, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from specdemo.prompt import messages_of
from specdemo.servers.connection import Connection
from specdemo.servers.response import Chunk, Response
from specdemo.settings import Settings

COUNT_USAGE = "stream_options"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lane wants, whatever the engine."""

    model: str  # its name in requests
    prompt: str | list[int]  # text, or token ids
    chat: bool  # whether a text is to be put into the chat template
    settings: Settings  # of the lane
    alone: bool = True  # whether no other request runs meanwhile that further questions would disturb

    @property
    def messages(self) -> list[dict[str, str]]:
        assert isinstance(self.prompt, str), "token ids are no chat"
        return messages_of(self.prompt)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request for a streamed completion."""

    path: str  # below the server's root
    body: dict[str, Any]  # the parameters on which the output depends
    # parameters that are left out if the server refuses them
    optional: dict[str, Any] = field(default_factory=dict)

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
    """One kind of server, as one lane asks it: an object is made for each lane, and fills ``response``."""

    name: ClassVar[str]  # for people
    owner: ClassVar[str]  # what it writes as ``owned_by`` into its list of models; empty for any
    mark: ClassVar[str] = ""  # a page that only it has, if others write the same
    about: ClassVar[str] = ""  # a page with its version

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        self.connection, self.wanted = connection, wanted
        prompt = wanted.prompt
        self.response = Response(prompt_ids=() if isinstance(prompt, str) else tuple(prompt))

    def sampling(self, length: str, seed: str = "seed") -> dict[str, Any]:
        """The parameters that all engines take, the length and the seed under the names of this one."""
        settings = self.wanted.settings
        common = {length: settings.max_new_tokens, seed: settings.seed, "temperature": settings.temperature}
        return {**common, "top_p": settings.top_p}

    @abstractmethod
    def request(self) -> CompletionRequest:
        """What to send, or one of ``FAILURES``. May ask the server small things first: no clock runs yet."""

    def listing(self, path: str) -> dict[str, Any]:
        """Parameters with which a whole answer at ``path`` has the likeliest tokens at every place."""
        return {}

    @abstractmethod
    def read(self, event: dict[str, Any], arrived: float) -> list[Chunk]:
        """The parts of the output in one event of the stream; what else it tells goes into ``response``."""

    def rest(self) -> list[Chunk]:
        """What was held back until now, at the end of the stream or where it broke off."""
        return []

    def finish(self) -> None:  # noqa: B027
        """What can be known once the output has ended, when no clock runs: above all ``response.speculation``."""
