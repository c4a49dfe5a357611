"""SGLang: its native ``/generate``, whose ``meta_info`` has the totals of a request's speculation.

Fields: python/sglang/srt/managers/tokenizer_manager.py of sgl-project/sglang, 0.5.9 and later (the counts were
renamed twice since). Chats go to its OpenAI API, which does not tell them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from specdemo.server_record import Counts
from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import CompletionRequest, Wanted
from specdemo.servers.engines.openai import OpenAI
from specdemo.servers.failures import Malformed
from specdemo.servers.response import Chunk, count, entry, token_ids, totals

ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")  # the names of one figure, the newest first


class SGLang(OpenAI):
    """Every event holds the whole output so far."""

    name: ClassVar[str] = "SGLang"
    owner: ClassVar[str] = "sglang"

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
            "max_new_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
            "top_k": settings.top_k or -1,
            "top_p": settings.top_p,
            "min_p": 0.0,
            "repetition_penalty": settings.repetition_penalty,
            "sampling_seed": settings.seed,
            "ignore_eos": settings.ignore_eos,
        }
        if wanted.stop:
            sampling["stop"] = list(wanted.stop)
        kind = "text" if isinstance(wanted.prompt, str) else "input_ids"
        body = {kind: wanted.prompt, "sampling_params": sampling, "stream": True}
        return CompletionRequest("/generate", body)

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
