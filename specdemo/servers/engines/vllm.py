"""vLLM: OpenAI's API with token ids, sampling parameters of its own, and a record of every request's speculation.

The record is ``metrics.speculative_decoding`` of the last event, from 0.29 on; `vllm_record` reads it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from specdemo.servers.connection import Connection
from specdemo.servers.counters import CounterNames
from specdemo.servers.engines.base import CompletionRequest, ServerPages, Wanted
from specdemo.servers.engines.openai import OpenAI
from specdemo.servers.engines.vllm_record import read_record
from specdemo.servers.engines.vllm_texts import token_texts
from specdemo.servers.response import Chunk, Response, token_ids


class VLLM(OpenAI):
    """Asks for ids, and overrules what a model's own generation config would set."""

    name: ClassVar[str] = "vLLM"
    counters: ClassVar[CounterNames | None] = CounterNames(
        steps="vllm:spec_decode_num_drafts_total",
        drafted="vllm:spec_decode_num_draft_tokens_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        accepted_by_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
        finished="vllm:request_success_total",
        generated="vllm:generation_tokens_total",
        busy=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    )

    def __init__(self) -> None:
        self._record: Any = None

    @classmethod
    def recognized(cls, pages: ServerPages) -> Self | None:
        return cls() if pages.owner == "vllm" else None

    def request(self, connection: Connection, wanted: Wanted) -> CompletionRequest:
        made = super().request(connection, wanted)
        # Sampling parameters that are not sent come from the model's own generation config, so all are sent.
        defaults = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        own = {name: value for name, value in defaults.items() if name not in made.body}
        return replace(made, optional={"return_token_ids": True, **own, **made.optional})

    def read(self, response: Response, event: dict[str, Any], seconds: float) -> list[Chunk]:
        response.prompt_ids = response.prompt_ids or token_ids(event, "prompt_token_ids") or ()
        metrics = event.get("metrics")
        if isinstance(metrics, dict) and metrics.get("speculative_decoding") is not None:
            self._record = metrics["speculative_decoding"]
        return super().read(response, event, seconds)

    def chunk(self, response: Response, choice: dict[str, Any], text: str, seconds: float) -> list[Chunk]:
        response.prompt_ids = response.prompt_ids or token_ids(choice, "prompt_token_ids") or ()
        ids = token_ids(choice, "token_ids")
        return [Chunk(ids or None, (text,), seconds)] if ids or text else []

    def finish(self, connection: Connection, wanted: Wanted, response: Response) -> None:
        response.speculation = read_record(self._record)
        if response.has_ids and response.speculation.steps:
            response.token_texts = token_texts(connection, wanted.model, response.chunks)
