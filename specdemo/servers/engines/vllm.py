"""vLLM: OpenAI's API with token ids, sampling parameters of its own, and a record of every request's speculation.

The record is ``metrics.speculative_decoding`` of the last event, from 0.29 on. Without one, ``/metrics`` before
and after the request tells its totals, if nothing else ran.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import httpx2
from prometheus_client.parser import text_string_to_metric_families
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
COUNTER_TRIES, COUNTER_SECONDS = 10, 0.05
TOTALS = tuple(f"vllm:spec_decode_num_{what}_total" for what in ("drafts", "draft_tokens", "accepted_tokens"))
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"  # accepted tokens with a label ``position``
FINISHED = "vllm:request_success_total"
GENERATED = "vllm:generation_tokens_total"  # tokens of all outputs
BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")
READ = (*TOTALS, BY_POSITION, FINISHED, GENERATED, *BUSY)


class VLLM(OpenAI):
    """Asks for ids, and overrules what a model's own generation config would set."""

    name: ClassVar[str] = "vLLM"
    owner: ClassVar[str] = "vllm"
    about: ClassVar[str] = "/version"
    listed: ClassVar[int] = 20

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        super().__init__(connection, wanted)
        self._record: Any = None
        self._before: str | None = None  # its page of counters

    def request(self) -> CompletionRequest:
        made = super().request()
        # Sampling parameters that are not sent come from the model's own generation config, so all are sent.
        defaults = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        own = {name: value for name, value in defaults.items() if name not in made.body}
        return replace(made, optional={"return_token_ids": True, **own, **made.optional})

    def listing(self, path: str) -> dict[str, Any]:
        return {**super().listing(path), "return_tokens_as_token_ids": True}

    def begin(self) -> None:
        if self.wanted.alone and self.wanted.settings.strategy == "speculative":
            self._before = _counters(self.connection)

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
        response, found = self.response, read_record(self._record)
        if found.counts is None and self._before is not None:
            counted = _difference(self.connection, self._before, response.usage[1])
            found = replace(counted, complaints=(*found.complaints, *counted.complaints))
        response.speculation = found
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

    Single tokens are decoded first: their text is mostly the same everywhere, so few requests are needed. Where
    the texts do not add up to the chunk's, that stands with its last token.

    Raises:
        Refused, httpx2.HTTPError: the server does not detokenize, or takes too long.
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

    def texts_of(before: tuple[int, ...], ids: tuple[int, ...], text: str) -> tuple[str, ...]:
        if len(ids) > 1:
            for read in (lambda: [text_of((i,)) for i in ids], lambda: in_place(before, ids)):
                texts = read()
                for found in (tuple(texts), (*texts[:-1], "")):  # an end token is not shown
                    if "".join(found) == text:
                        return found
        return (*[""] * (len(ids) - 1), text)

    found: list[Chunk] = []
    before: tuple[int, ...] = ()
    for chunk in chunks:
        ids = tuple(i for i in chunk.ids or () if i is not None)
        found.append(replace(chunk, texts=texts_of(before, ids, chunk.text)))
        before = (before + ids)[-CONTEXT:]
    return found


def _counters(connection: Connection) -> str | None:
    """vLLM's page of counters, ``/metrics``; None without one."""
    try:
        found = connection.get("/metrics")
    except httpx2.HTTPError:
        return None  # if nobody is there at all, the request itself will say so
    return found.text if found.is_success else None


def _difference(connection: Connection, before: str, completion_tokens: int | None) -> Speculation:
    """The request's totals by the counters before it and after, or why they are not the request's alone.

    They may follow the end of the response with a short delay, which is waited for.
    """
    try:
        first = _sums(before)
        for _ in range(COUNTER_TRIES):
            after = _counters(connection)
            if after is None:
                return Speculation()
            last = _sums(after)
            if last.get(FINISHED, 0) > first.get(FINISHED, 0) and not _busy(last):
                break
            time.sleep(COUNTER_SECONDS)
        if any(name not in sums for sums in (first, last) for name in TOTALS):
            return Speculation()
        grown = {name: int(value - first.get(name, 0)) for name, value in last.items()}
    except (ValueError, OverflowError):  # the second: an infinite number
        return Speculation(complaints=("the server's page of metrics cannot be read",))
    steps, drafted, accepted = (grown[name] for name in TOTALS)
    by_position = {int(place): n for name, n in grown.items() if (place := name.partition("/")[2])}
    positions = tuple(by_position[place] for place in sorted(by_position))
    finished, generated = grown.get(FINISHED, 0), grown.get(GENERATED, 0)
    for wrong, reason in (
        (_busy(first), "it was busy with other requests when this one began"),
        (_busy(last), "it is busy with other requests"),
        (finished != 1, f"{finished} requests ended while this one ran, so they are not of this one alone"),
        (
            completion_tokens not in (None, generated),
            f"they count {generated} tokens, but the answer has {completion_tokens}",
        ),
        (
            not 0 <= accepted <= drafted or steps < 0 or (positions and sum(positions) != accepted),
            "they do not add up",
        ),
    ):
        if wrong:
            return Speculation(complaints=(f"the server's counters are not used: {reason}",))
    counts = Counts(steps, drafted, accepted, len(positions) or None, per_position=positions or None)
    return Speculation(counts, by_counters=True)


def _sums(text: str) -> dict[str, float]:
    """Sums over all engines of a deployment by name; those of accepted tokens by name and draft position.

    Raises:
        ValueError: it is no page of metrics.
    """
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in READ:
                place = f"/{int(sample.labels.get('position', -1))}" if sample.name == BY_POSITION else ""
                sums[sample.name + place] = sums.get(sample.name + place, 0.0) + sample.value
    return sums


def _busy(sums: dict[str, float]) -> bool:
    return any(sums.get(name) for name in BUSY)
