"""Ollama: its native API, which takes all sampling parameters and tells its own times; nothing of speculation.

Fields: docs/api.md of ollama/ollama. Its OpenAI API would drop ``top_k``, ``min_p`` and ``repeat_penalty`` unsaid.
"""

from __future__ import annotations

from typing import Any, ClassVar

from specdemo.errors import PromptError, SettingsError
from specdemo.servers.engines.base import CompletionRequest, Engine
from specdemo.servers.response import Chunk, count, entry, seconds

NANOSECOND = 1e-9


class Ollama(Engine):
    """``/api/generate`` without a template, ``/api/chat`` with the model's."""

    name: ClassVar[str] = "Ollama"
    owner: ClassVar[str] = "library"
    mark: ClassVar[str] = "/api/version"
    about: ClassVar[str] = mark

    def request(self) -> CompletionRequest:
        wanted, settings = self.wanted, self.wanted.settings
        if not isinstance(wanted.prompt, str):
            raise PromptError("Ollama takes no token ids; give text.")
        if settings.ignore_eos:
            raise SettingsError("ignore_eos", "Ollama always ends at the end of an answer; switch it off.")
        options: dict[str, Any] = {
            **self.sampling("num_predict"),
            "top_k": settings.top_k,
            "min_p": 0.0,
            "repeat_penalty": settings.repetition_penalty,
        }
        body: dict[str, Any] = {"model": wanted.model, "stream": True, "options": options}
        if wanted.chat:
            return CompletionRequest("/api/chat", {**body, "messages": wanted.messages}, {"think": False})
        return CompletionRequest("/api/generate", {**body, "prompt": wanted.prompt, "raw": True})

    def listing(self, path: str) -> dict[str, Any]:
        return {"logprobs": True, "top_logprobs": 20}  # from 0.12.11 on

    def read(self, event: dict[str, Any], arrived: float) -> list[Chunk]:
        response = self.response
        message = entry(event, "message", dict)
        text = entry(event, "response", str) if message is None else entry(message, "content", str)
        if entry(event, "done", bool):
            response.finish_reason = entry(event, "done_reason", str) or response.finish_reason
            response.usage = (count(event, "prompt_eval_count"), count(event, "eval_count"))
            response.prefill_seconds = seconds(event, "prompt_eval_duration", NANOSECOND)
            response.decode_seconds = seconds(event, "eval_duration", NANOSECOND)
        return [Chunk(None, (text,), arrived)] if text else []
