"""One streamed response, and what its server tells of its speculation, in the terms that all engines share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any

from specdemo.rounds import Kind
from specdemo.server_record import Counts
from specdemo.servers.failures import Malformed


@dataclass(frozen=True, slots=True)
class Step:
    """A verify step in which something was drafted: how many tokens, and how many of them were accepted."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the server says."""

    counts: Counts | None = None  # its totals; None if it says nothing, or nothing that can be used
    steps: tuple[Step, ...] | None = None  # every verify step in order; None if only totals are known
    complaints: tuple[str, ...] = ()  # what in its report contradicts itself


def totals(counts: Counts) -> Speculation:
    """What is known if only totals are; if they contradict each other, that alone."""
    histogram, wrong = counts.histogram, counts.accepted > counts.drafted
    if histogram is not None:
        wrong |= sum(histogram) != counts.steps
        wrong |= sum(i * count for i, count in enumerate(histogram)) != counts.accepted
    return Speculation(complaints=("the server's totals contradict each other",)) if wrong else Speculation(counts)


def summed(steps: Sequence[Step], gamma: int | None) -> Counts:
    """The totals of known steps; ``gamma`` is the most that one may draft, None if that is unknown."""
    most = max((s.drafted for s in steps), default=gamma or 0)
    accepted = Counter(s.accepted for s in steps)
    return Counts(
        steps=len(steps),
        drafted=sum(s.drafted for s in steps),
        accepted=sum(s.accepted for s in steps),
        gamma=gamma,
        histogram=tuple(accepted[i] for i in range(most + 1)),
    )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the output, as it arrived."""

    # its token ids, None in place of one that the server left out; None if the server sends no ids at all
    ids: tuple[int | None, ...] | None
    texts: tuple[str, ...]  # the text of each token where that is known, else the whole text in one piece
    seconds: float  # from the request to its arrival, on the client's clock
    # the verify step that made exactly this chunk, or the kind of its tokens; None if unknown
    made_by: Step | Kind | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def token_texts(self) -> Sequence[str]:
        """The text of each of its tokens; that of a chunk that came whole stands with its last."""
        count = len(self.ids or (None,))
        return self.texts if len(self.texts) == count else [*[""] * (count - 1), self.text]


def unstreamed(body: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request, for an answer that comes whole."""
    of_streams = ("stream_options", "timings_per_token")
    return {name: value for name, value in body.items() if name not in of_streams} | {"stream": False}


@dataclass(slots=True)
class Response:
    """What was received so far."""

    chunks: list[Chunk] = field(default_factory=list)  # the output, in order
    prompt_ids: tuple[int, ...] = ()  # token ids of the prompt; empty if the server does not send them
    slots: int | None = None  # requests that the server answers at the same time; None if it does not say
    finish_reason: str | None = None  # why the output ended, in the words of OpenAI's API; None before its end
    usage: tuple[int | None, int | None] = (None, None)  # prompt and completion tokens as the server counted them
    speculation: Speculation = field(default_factory=Speculation)  # what the server told of it
    prefill_seconds: float | None = None  # as the server's own clock measured them; None if it does not say
    decode_seconds: float | None = None
    incomplete: str | None = None  # why the response broke off; None if it did not
    sent: tuple[str, dict[str, Any]] = ("", {})  # path and body of the request that was answered
    notes: list[str] = field(default_factory=list)  # sentences for people on what the server does not know

    @property
    def received(self) -> int:
        return sum(len(chunk.ids or ()) for chunk in self.chunks)

    @property
    def has_ids(self) -> bool:
        """Whether every token came with its id."""
        return bool(self.chunks) and all(c.ids is not None and None not in c.ids for c in self.chunks)

    @property
    def whole(self) -> tuple[str, dict[str, Any]]:
        """The request, as it would be sent for an answer that comes whole."""
        return self.sent[0], unstreamed(self.sent[1])

    @property
    def ids(self) -> list[int]:
        """Its token ids; none unless every token came with one."""
        return [i for chunk in self.chunks for i in chunk.ids or () if i is not None] if self.has_ids else []

    @property
    def token_texts(self) -> list[str]:
        """The text of each of :attr:`ids`."""
        return [text for chunk in self.chunks for text in chunk.token_texts]

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def counts_tokens(self) -> bool:
        """Whether every chunk tells how many tokens it holds."""
        return bool(self.chunks) and all(c.ids is not None for c in self.chunks)

    @property
    def has_rounds(self) -> bool:
        """Whether the stream itself told what made each chunk."""
        return bool(self.chunks) and all(c.made_by is not None for c in self.chunks)


# Fields of what a server sent: None if missing. No field is trusted: what is of another kind is Malformed.


def entry(holder: Any, name: str, kind: type | UnionType) -> Any:
    """A field of this type of an object."""
    if not isinstance(holder, dict):
        raise Malformed("it is no object")
    value = holder.get(name)
    if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise Malformed(f"{name} is of the wrong kind")
    return value


def count(holder: Any, name: str) -> int | None:
    value = entry(holder, name, int)
    if value is not None and value < 0:
        raise Malformed(f"{name} is negative")
    return value


def seconds(holder: Any, name: str, unit: float) -> float | None:
    """A duration given in ``unit`` seconds; None also if it is no time at all."""
    value = entry(holder, name, int | float)
    return value * unit if value is not None and value > 0 else None


def token_ids(holder: Any, name: str) -> tuple[int, ...] | None:
    ids = entry(holder, name, list)
    if ids is None:
        return None
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise Malformed(f"{name} holds what is no token id")
    return tuple(ids)
