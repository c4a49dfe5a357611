"""The chunks of one streamed answer, read with suspicion: any field may be missing or of any type."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specdemo.servers.failures import Malformed


@dataclass(frozen=True, slots=True)
class Piece:
    """What came in one chunk.

    Attributes:
        ids: its token ids; None if the server gives none.
        text: its text, which may be empty.
        seconds: on the client's clock, from the request to its arrival.
    """

    ids: tuple[int, ...] | None
    text: str
    seconds: float


@dataclass(slots=True)
class Answer:
    """What was said so far besides the text.

    Attributes:
        pieces: of the output, in order.
        prompt_ids: of the prompt; empty if the server keeps them.
        finish: the reason it gave for the end; None before it.
        usage: prompt and completion tokens as it counted them.
        speculation: its record of the speculation as it came; None if there was none.
    """

    pieces: list[Piece] = field(default_factory=list)
    prompt_ids: tuple[int, ...] = ()
    finish: str | None = None
    usage: tuple[int | None, int | None] = (None, None)
    speculation: Any = None

    @property
    def has_ids(self) -> bool:
        """Whether every piece came with its token ids."""
        return bool(self.pieces) and all(p.ids is not None for p in self.pieces)

    def take(self, chunk: Any, seconds: float) -> Piece | None:
        """Read one chunk; gives the piece of output in it, if there is one.

        Raises:
            Malformed: it is no chunk of a completion.
        """
        choices = _field(chunk, "choices", list)
        self._read_root(chunk)
        if not choices:
            if choices is None and self.usage == (None, None) and self.speculation is None:
                raise Malformed("a chunk has no choices")
            return None
        choice = choices[0]
        self.prompt_ids = self.prompt_ids or _ids(choice, "prompt_token_ids") or ()
        self.finish = _field(choice, "finish_reason", str) or self.finish
        ids, text = _ids(choice, "token_ids"), _text(choice)
        if not text and not ids:
            return None  # the role of a chat, or the end alone
        piece = Piece(ids or (None if text else ()), text, seconds)
        self.pieces.append(piece)
        return piece

    def _read_root(self, chunk: Any) -> None:
        self.prompt_ids = self.prompt_ids or _ids(chunk, "prompt_token_ids") or ()
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self.usage = (_field(usage, "prompt_tokens", int), _field(usage, "completion_tokens", int))
        metrics = getattr(chunk, "metrics", None)
        if isinstance(metrics, dict) and metrics.get("speculative_decoding") is not None:
            self.speculation = metrics["speculative_decoding"]


def _text(choice: Any) -> str:
    """Of a completion, or of a chat's answer; a reasoning parser sends thoughts apart, which are output too."""
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
