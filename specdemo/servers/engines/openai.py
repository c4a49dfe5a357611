"""Servers with OpenAI's API: text and times, and nothing of its speculation. LM Studio and SGLang add totals."""

from __future__ import annotations

from typing import Any, ClassVar

from specdemo.server_record import Counts
from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import COUNT_USAGE, CompletionRequest, Engine, Wanted
from specdemo.servers.failures import Malformed
from specdemo.servers.response import Chunk, count, entry, seconds, token_ids, totals

TEXTS = ("reasoning_content", "reasoning", "content")
"""Where the text of a chat is; a reasoning parser sends thoughts apart, which are output too."""
ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")  # the names of one figure, the newest first


class OpenAI(Engine):
    """``/v1/completions`` and ``/v1/chat/completions``; other engines extend it."""

    name: ClassVar[str] = "OpenAI's API"
    owner: ClassVar[str] = ""
    repetition_penalty: ClassVar[str] = "repetition_penalty"
    listed: ClassVar[int] = 5
    """The most likeliest tokens of a place that plain completions tell; chats tell 20."""

    def request(self) -> CompletionRequest:
        wanted, settings = self.wanted, self.wanted.settings
        text = {"prompt": wanted.prompt}
        body: dict[str, Any] = {
            "model": wanted.model,
            **({"messages": wanted.messages} if wanted.chat else text),
            "stream": True,
            COUNT_USAGE: {"include_usage": True},
            **self.sampling("max_tokens"),
        }
        # Not of OpenAI's API, but they change the output: a server that does not take them must refuse.
        if settings.top_k and not settings.greedy:
            body["top_k"] = settings.top_k
        if settings.repetition_penalty != 1:
            body[self.repetition_penalty] = settings.repetition_penalty
        if settings.ignore_eos:
            body["ignore_eos"] = True
        path = "/v1/chat/completions" if wanted.chat else "/v1/completions"
        # Local lanes switch the thinking of hybrid models off too.
        optional = {"chat_template_kwargs": {"enable_thinking": False}} if wanted.chat else {}
        return CompletionRequest(path, body, optional)

    def listing(self, path: str) -> dict[str, Any]:
        return {"logprobs": True, "top_logprobs": 20} if "chat" in path else {"logprobs": self.listed}

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


class SGLang(OpenAI):
    """Its native ``/generate``, each event of which holds the output so far; chats go to OpenAI's API.

    Fields: python/sglang/srt/managers/tokenizer_manager.py of sgl-project/sglang, 0.5.9 and later (the counts were
    renamed twice since).
    """

    name: ClassVar[str] = "SGLang"
    owner: ClassVar[str] = "sglang"
    about: ClassVar[str] = "/get_server_info"

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        super().__init__(connection, wanted)
        self._meta: dict[str, Any] = {}
        self._ids: tuple[int, ...] = ()
        self._text = ""

    def request(self) -> CompletionRequest:
        wanted, settings = self.wanted, self.wanted.settings
        if wanted.chat:
            return super().request()
        sampling: dict[str, Any] = {
            **self.sampling("max_new_tokens", "sampling_seed"),
            "top_k": settings.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": settings.repetition_penalty,
            "ignore_eos": settings.ignore_eos,
        }
        kind = "text" if isinstance(wanted.prompt, str) else "input_ids"
        body = {kind: wanted.prompt, "sampling_params": sampling, "stream": True}
        return CompletionRequest("/generate", body)

    def listing(self, path: str) -> dict[str, Any]:
        own = {"return_logprob": True, "top_logprobs_num": 20, "return_text_in_logprobs": True}
        return own if path == "/generate" else super().listing(path)

    def read(self, event: dict[str, Any], arrived: float) -> list[Chunk]:
        if "choices" in event:
            return super().read(event, arrived)
        response = self.response
        self._meta = entry(event, "meta_info", dict) or {}
        response.usage = (count(self._meta, "prompt_tokens"), count(self._meta, "completion_tokens"))
        reason = entry(self._meta, "finish_reason", dict)
        if reason is not None:
            response.finish_reason = entry(reason, "type", str)
        text, ids = entry(event, "text", str), token_ids(event, "output_ids")
        if text is None or ids is None:
            raise Malformed("an event has no text or no output_ids")
        if not text.startswith(self._text) or ids[: len(self._ids)] != self._ids:
            raise Malformed("an event does not begin with the output so far; start it without incremental output")
        new_ids, new_text = ids[len(self._ids) :], text[len(self._text) :]
        self._ids, self._text = ids, text
        return [Chunk(new_ids, (new_text,), arrived)] if new_ids or new_text else []

    def finish(self) -> None:
        if self.wanted.chat:
            self.response.notes.append("SGLang tells its speculation for plain prompts only, not for chats.")
            return
        steps, drafted, accepted = (self._figure(names) for names in (("spec_verify_ct",), DRAFTED, ACCEPTED))
        if steps is None or drafted is None or accepted is None:
            return
        histogram = next((h for name in HISTOGRAM if (h := token_ids(self._meta, name))), None)
        # Every step proposes equally many: the total is a product in its source.
        gamma = drafted // steps if steps else None
        self.response.speculation = totals(Counts(steps, drafted, accepted, gamma, histogram))

    def _figure(self, names: tuple[str, ...]) -> int | None:
        return next((n for name in names if (n := count(self._meta, name)) is not None), None)
