"""vLLM: OpenAI's API with token ids, sampling parameters of its own, and a record of every request's speculation.

The record is ``metrics.speculative_decoding`` of the last event, from 0.29 on; older servers tell speed only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import httpx2
from pydantic import BaseModel, NonNegativeInt, ValidationError

from specdemo.server_record import Counts
from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import CompletionRequest, Wanted
from specdemo.servers.engines.openai import OpenAI
from specdemo.servers.failures import Malformed, Refused
from specdemo.servers.response import Chunk, Speculation, Step, summed, token_ids, totals

UNREADABLE = Speculation(complaints=("the server's record of its speculation cannot be read",))
MOST_REQUESTS, LONGEST_SECONDS = 1500, 5.0  # of ``/detokenize``, for one output
CONTEXT = 6
"""Ids before a token that can change how it is written."""


class VLLM(OpenAI):
    """Asks for ids, and overrules what a model's own generation config would set."""

    name: ClassVar[str] = "vLLM"
    owner: ClassVar[str] = "vllm"
    about: ClassVar[str] = "/version"
    listed: ClassVar[int] = 20

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        super().__init__(connection, wanted)
        self._record: Any = None

    def request(self) -> CompletionRequest:
        made = super().request()
        # Sampling parameters that are not sent come from the model's own generation config, so all are sent.
        defaults = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        own = {name: value for name, value in defaults.items() if name not in made.body}
        return replace(made, optional={"return_token_ids": True, **own, **made.optional})

    def listing(self, path: str) -> dict[str, Any]:
        return {**super().listing(path), "return_tokens_as_token_ids": True}

    def read(self, event: dict[str, Any], arrived: float) -> list[Chunk]:
        response = self.response
        response.prompt_ids = response.prompt_ids or token_ids(event, "prompt_token_ids") or ()
        metrics = event.get("metrics")
        if isinstance(metrics, dict) and metrics.get("speculative_decoding") is not None:
            self._record = metrics["speculative_decoding"]
        return super().read(event, arrived)

    def chunk(self, choice: dict[str, Any], text: str, arrived: float) -> list[Chunk]:
        response = self.response
        response.prompt_ids = response.prompt_ids or token_ids(choice, "prompt_token_ids") or ()
        ids = token_ids(choice, "token_ids")
        return [Chunk(ids or None, (text,), arrived)] if ids or text else []

    def finish(self) -> None:
        response = self.response
        response.speculation = found = read_record(self._record)
        if self.wanted.alone and response.has_ids and found.steps:
            try:
                response.chunks = _with_token_texts(response.chunks, self.connection, self.wanted.model)
            except (httpx2.HTTPError, Refused):
                return  # the text of each chunk then stands with its last token


class _Record(BaseModel, strict=True):
    num_spec_steps: NonNegativeInt | None = None
    num_draft_tokens: NonNegativeInt | None = None
    num_accepted_draft_tokens: NonNegativeInt | None = None
    num_spec_tokens: NonNegativeInt | None = None
    acceptance_histogram: list[NonNegativeInt] | None = None
    per_step_drafted: list[NonNegativeInt] | None = None
    per_step_accepted: list[NonNegativeInt] | None = None


def read_record(record: Any) -> Speculation:
    """Read a record; what does not add up is reported and not used."""
    if record is None:
        return Speculation()
    try:
        read = _Record.model_validate(record)
    except ValidationError:
        return UNREADABLE
    sums = read.num_spec_steps, read.num_draft_tokens, read.num_accepted_draft_tokens
    of_totals, drafted, accepted = UNREADABLE, read.per_step_drafted, read.per_step_accepted
    known = None not in sums
    if known:
        histogram = None if read.acceptance_histogram is None else tuple(read.acceptance_histogram)
        of_totals = totals(Counts(*sums, read.num_spec_tokens, histogram))  # type: ignore[arg-type]
    if drafted is None and accepted is None:
        return replace(of_totals, steps=()) if of_totals.counts and not of_totals.counts.steps else of_totals
    drafted, accepted = drafted or [], accepted or []
    if len(drafted) != len(accepted) or any(a > d for d, a in zip(drafted, accepted, strict=True)):
        complaint = "the server's arrays of steps do not fit each other"
        return replace(of_totals, complaints=(*of_totals.complaints, complaint))
    steps = tuple(map(Step, drafted, accepted))
    found = summed(steps, read.num_spec_tokens)
    made = found.steps, found.drafted, found.accepted
    if known and sums != made:
        complaint = f"the server's totals (steps, drafted, accepted: {sums}) are not those of its steps {made}"
        return Speculation(complaints=(complaint,))
    return Speculation(found, steps)


def _with_token_texts(chunks: Sequence[Chunk], connection: Connection, model: str) -> list[Chunk]:
    """The chunks with the text of every single token, from ``/detokenize``: the stream has that of whole chunks.

    Where the texts do not add up to the chunk's, that stands with its last token. Refused, or an httpx2.HTTPError,
    where the server does not detokenize, or takes too long.
    """
    until = time.monotonic() + LONGEST_SECONDS

    @cache
    def text_of(ids: tuple[int, ...]) -> str:
        if text_of.cache_info().misses > MOST_REQUESTS or time.monotonic() > until:
            raise Malformed("it takes too long")
        match connection.post("/detokenize", {"model": model, "tokens": list(ids)}):
            case {"prompt": str(text)}:
                return text
        raise Malformed("it is no text")

    def in_place(before: tuple[int, ...], ids: tuple[int, ...]) -> list[str]:
        """What each token adds to the text of those before it."""
        done, added = text_of(before) if before else "", []
        for count in range(1, len(ids) + 1):
            text = text_of(before + ids[:count])
            whole = text.startswith(done) and not text.endswith("�")  # not inside a multi-byte character
            added.append(text[len(done) :] if whole else "")
            done = text if whole else done
        return added

    found: list[Chunk] = []
    before: tuple[int, ...] = ()
    for chunk in chunks:
        ids = tuple(i for i in chunk.ids or () if i is not None)
        texts = in_place(before, ids) if len(ids) > 1 else [chunk.text]
        if "".join(texts[:-1]) == chunk.text:  # an end token is not shown
            texts[-1] = ""
        found.append(replace(chunk, texts=tuple(texts) if "".join(texts) == chunk.text else (chunk.text,)))
        before = (before + ids)[-CONTEXT:]
    return found
