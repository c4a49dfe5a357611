"""Any server with OpenAI's API: text and times, and nothing of its speculation."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import COUNT_USAGE, CompletionRequest, Engine, ServerPages, Wanted
from specdemo.servers.failures import Malformed
from specdemo.servers.response import Chunk, Response, count, entry

TEXTS = ("reasoning_content", "reasoning", "content")
"""Where the text of a chat is; a reasoning parser sends thoughts apart, which are output too."""


class OpenAI(Engine):
    """``/v1/completions`` and ``/v1/chat/completions``; other engines extend it."""

    name: ClassVar[str] = "OpenAI's API"
    repetition_penalty: ClassVar[str] = "repetition_penalty"

    @classmethod
    def recognized(cls, pages: ServerPages) -> Self | None:
        return cls()

    def request(self, connection: Connection, wanted: Wanted) -> CompletionRequest:
        settings = wanted.settings
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
        return CompletionRequest(path, body, optional, wanted.prompt_ids)

    def read(self, response: Response, event: dict[str, Any], seconds: float) -> list[Chunk]:
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
        return self.chunk(response, choice, _text(choice), seconds)

    def chunk(self, response: Response, choice: dict[str, Any], text: str, seconds: float) -> list[Chunk]:
        """The part of the output in a choice, if there is one; without ids it is a piece of text."""
        return [Chunk(None, (text,), seconds)] if text else []


def _text(choice: dict[str, Any]) -> str:
    delta = entry(choice, "delta", dict)
    if delta is None:
        return entry(choice, "text", str) or ""
    return next((text for name in TEXTS if (text := entry(delta, name, str))), "")
