"""One streamed response, parsed without trust: any field may be missing or of any type."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specdemo.servers.failures import Malformed


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the output, as it arrived.

    Attributes:
        ids: its token ids; None if the server sends none.
        text: its text, which may be empty.
        seconds: from the request to its arrival, on the client's clock.
    """

    ids: tuple[int, ...] | None
    text: str
    seconds: float


@dataclass(slots=True)
class Response:
    """What was received so far.

    Attributes:
        chunks: the output, in order.
        prompt_ids: token ids of the prompt; empty if the server does not send them.
        finish_reason: why the output ended; None before its end.
        usage: prompt and completion tokens as the server counted them.
        speculation: vLLM's record of the request's speculation as it came; None if there was none.
        token_texts: for each chunk the text of each of its tokens; None if the server cannot tell.
        metrics_pages: the server's ``/metrics`` before and after the request, where both were needed and read.
        incomplete: why the response broke off; None if it did not.
        notes: sentences for people on what the server does not know.
    """

    chunks: list[Chunk] = field(default_factory=list)
    prompt_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    usage: tuple[int | None, int | None] = (None, None)
    speculation: Any = None
    token_texts: list[tuple[str, ...]] | None = None
    metrics_pages: tuple[str, str] | None = None
    incomplete: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def has_ids(self) -> bool:
        """Whether every chunk came with its token ids."""
        return bool(self.chunks) and all(chunk.ids is not None for chunk in self.chunks)

    def add(self, event: Any, seconds: float) -> Chunk | None:
        """Read one event of the stream; returns the part of the output in it, if there is one.

        Raises:
            Malformed: it is no event of a completion.
        """
        choices = _field(event, "choices", list)
        self._read_root(event)
        if not choices:
            if choices is None and self.usage == (None, None) and self.speculation is None:
                raise Malformed("a chunk has no choices")
            return None
        choice = choices[0]
        self.prompt_ids = self.prompt_ids or _ids(choice, "prompt_token_ids") or ()
        self.finish_reason = _field(choice, "finish_reason", str) or self.finish_reason
        ids, text = _ids(choice, "token_ids"), _text(choice)
        if not text and not ids:
            return None  # the role of a chat, or only the end
        chunk = Chunk(ids or None, text, seconds)
        self.chunks.append(chunk)
        return chunk

    def _read_root(self, event: Any) -> None:
        self.prompt_ids = self.prompt_ids or _ids(event, "prompt_token_ids") or ()
        usage = getattr(event, "usage", None)
        if usage is not None:
            self.usage = (_field(usage, "prompt_tokens", int), _field(usage, "completion_tokens", int))
        metrics = getattr(event, "metrics", None)
        if isinstance(metrics, dict) and metrics.get("speculative_decoding") is not None:
            self.speculation = metrics["speculative_decoding"]


def _text(choice: Any) -> str:
    """The text of a completion or a chat; a reasoning parser sends thoughts apart, which are output too."""
    delta = getattr(choice, "delta", None)
    if delta is None:
        return _field(choice, "text", str) or ""
    names = ("reasoning_content", "reasoning", "content")
    return next((text for name in names if (text := _field(delta, name, str))), "")


def _ids(holder: Any, name: str) -> tuple[int, ...] | None:
    ids = _field(holder, name, list)
    if ids is None:
        return None
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise Malformed(f"{name} holds what is no token id")
    return tuple(ids)


def _field(holder: Any, name: str, kind: type) -> Any:
    value = getattr(holder, name, None)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise Malformed(f"{name} is of the wrong kind")
    return value
