"""Servers with OpenAI's API: text and times, and nothing of its speculation; and LM Studio, which adds totals."""

from __future__ import annotations

from typing import Any, ClassVar

from specdemo.server_record import Counts
from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import COUNT_USAGE, CompletionRequest, Engine, Wanted
from specdemo.servers.failures import Malformed
from specdemo.servers.response import Chunk, count, entry, seconds, totals

TEXTS = ("reasoning_content", "reasoning", "content")
"""Where the text of a chat is; a reasoning parser sends thoughts apart, which are output too."""


class OpenAI(Engine):
    """``/v1/completions`` and ``/v1/chat/completions``; other engines extend it."""

    name: ClassVar[str] = "OpenAI's API"
    owner: ClassVar[str] = ""
    repetition_penalty: ClassVar[str] = "repetition_penalty"

    def request(self) -> CompletionRequest:
        wanted, settings = self.wanted, self.wanted.settings
        text = {"prompt": wanted.prompt}
        body: dict[str, Any] = {
            "model": wanted.model,
            **({"messages": [{"role": "user", "content": wanted.prompt}]} if wanted.chat else text),
            "stream": True,
            COUNT_USAGE: {"include_usage": True},
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
        }
        # Not of OpenAI's API, but they change the output: a server that does not take them must refuse.
        if settings.top_k and not settings.greedy:
            body["top_k"] = settings.top_k
        if settings.repetition_penalty != 1:
            body[self.repetition_penalty] = settings.repetition_penalty
        if settings.ignore_eos:
            body["ignore_eos"] = True
        if wanted.stop:
            body["stop"] = list(wanted.stop)
        path = "/v1/chat/completions" if wanted.chat else "/v1/completions"
        # Local lanes switch the thinking of hybrid models off too.
        optional = {"chat_template_kwargs": {"enable_thinking": False}} if wanted.chat else {}
        return CompletionRequest(path, body, optional)

    def read(self, event: dict[str, Any], arrived: float) -> list[Chunk]:
        response = self.response
        usage = entry(event, "usage", dict)
        if usage is not None:
            response.usage = (count(usage, "prompt_tokens"), count(usage, "completion_tokens"))
        choices = entry(event, "choices", list)
        if choices is None and usage is None:
            raise Malformed("a chunk has no choices")
        if not choices:
            return []
        choice = choices[0]
        response.finish_reason = entry(choice, "finish_reason", str) or response.finish_reason
        return self.chunk(choice, _text(choice), arrived)

    def chunk(self, choice: dict[str, Any], text: str, arrived: float) -> list[Chunk]:
        """The part of the output in a choice, if there is one; without ids it is a piece of text."""
        return [Chunk(None, (text,), arrived)] if text else []


def _text(choice: dict[str, Any]) -> str:
    delta = entry(choice, "delta", dict)
    if delta is None:
        return entry(choice, "text", str) or ""
    return next((text for name in TEXTS if (text := entry(delta, name, str))), "")


class LMStudio(OpenAI):
    """Its last event has ``stats``: how many tokens were drafted and accepted, but neither ids nor verify steps.

    Field names: lmstudio.ai/docs/developer/api-changelog, LM Studio 0.3.10, and docs/developer/rest/endpoints.
    """

    name: ClassVar[str] = "LM Studio"
    owner: ClassVar[str] = "organization_owner"
    mark: ClassVar[str] = "/api/v0/models"
    repetition_penalty: ClassVar[str] = "repeat_penalty"

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        super().__init__(connection, wanted)
        self._stats: dict[str, Any] = {}

    def read(self, event: dict[str, Any], arrived: float) -> list[Chunk]:
        self._stats = entry(event, "stats", dict) or self._stats
        return super().read(event, arrived)

    def finish(self) -> None:
        response = self.response
        response.prefill_seconds = seconds(self._stats, "time_to_first_token", 1)
        response.decode_seconds = seconds(self._stats, "generation_time", 1)
        names = ("total_draft_tokens_count", "accepted_draft_tokens_count")
        drafted, accepted = (count(self._stats, name) for name in names)
        if drafted is not None and accepted is not None:
            response.speculation = totals(Counts(None, drafted, accepted))
