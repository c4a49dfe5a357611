"""llama.cpp's server: its native ``/completion``, which tells every token's id and, from its timings, every round.

With ``timings_per_token`` each event says how many tokens were drafted and accepted up to the step that made its
token. All tokens of a step carry the same numbers, so the differences between them are the steps. Tested with the
server of build 11549.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from specdemo.rounds import Kind
from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import CompletionRequest, Engine, Wanted
from specdemo.servers.failures import Malformed
from specdemo.servers.response import Chunk, Speculation, Step, count, entry, seconds, summed, token_ids

MILLISECOND = 1e-3
LISTED = 20  # likeliest tokens of a place
QUEUED_SECONDS = 0.25  # a longer wait than this before the prompt is read was for a free slot
STOPS = {"eos": "stop", "limit": "length"}  # its reasons for an end, in the words of OpenAI's API
OWN_DEFAULTS = {"min_p": 0.0, "top_n_sigma": -1.0, "typical_p": 1.0, "presence_penalty": 0, "frequency_penalty": 0}
"""Sampling that a server applies, or can be started with, unless a request overrules it."""


class _Progress(NamedTuple):
    """The server's cumulative numbers at a token."""

    predicted: int = 0
    milliseconds: float = 0.0
    drafted: int = 0
    accepted: int = 0


class LlamaCpp(Engine):
    """Holds a step's tokens back until the last of them is there, which takes no time: they come together."""

    name: ClassVar[str] = "llama.cpp"
    owner: ClassVar[str] = "llamacpp"
    about: ClassVar[str] = "/props"

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        super().__init__(connection, wanted)
        self._done = _Progress()  # at the end of the last step that was given on
        self._step = _Progress()  # of the step whose tokens are pending
        self._pending: list[tuple[int | None, str]] = []
        self._unsure = 0  # of the pending, the first that were not sent: a plain step before may have made them
        self._seconds = 0.0
        self._kind = ""

    def request(self) -> CompletionRequest:
        settings = self.wanted.settings
        ids = list(self.response.prompt_ids) or self._encoded()
        self.response.prompt_ids = tuple(ids)
        context = settings.max_new_tokens + len(ids)
        match self.connection.page("/props"):
            case {"default_generation_settings": {"n_ctx": int(known)}, **more}:
                context, self.response.slots = known or context, count(more, "total_slots")
        body = {
            **OWN_DEFAULTS,
            **self.sampling("n_predict"),
            "prompt": ids,
            "ignore_eos": settings.ignore_eos,
            "top_k": settings.top_k,
            "repeat_penalty": settings.repetition_penalty,
            "repeat_last_n": context,
            "seed": settings.seed % 2**32,
            "stream": True,
            "timings_per_token": True,
            "return_tokens": True,  # of a whole answer; a stream has them anyway
            "cache_prompt": False,  # a prompt that was read before would have no prefill
        }
        return CompletionRequest("/completion", body)

    def listing(self, path: str) -> dict[str, Any]:
        return {"n_probs": LISTED, "cache_prompt": True, "response_fields": ["completion_probabilities"]}

    def read(self, event: dict[str, Any], arrived: float) -> list[Chunk]:
        timings = entry(event, "timings", dict) or {}
        text, ids = entry(event, "content", str), token_ids(event, "tokens")
        if text is None or ids is None or not timings:
            raise Malformed("an event has no content, tokens or timings")
        now = _Progress(
            count(timings, "predicted_n") or 0,
            entry(timings, "predicted_ms", int | float) or 0.0,
            count(timings, "draft_n") or 0,
            count(timings, "draft_n_accepted") or 0,
        )
        if entry(event, "stop", bool):
            self._end(event, timings)
            return self._give(now.predicted)
        given = []
        if now[1:] != self._step[1:]:
            given = self._give(now.predicted - len(ids)) if self._pending else []
            self._step, self._unsure = now, now.predicted - len(ids) - self._done.predicted
        self._add_unsent(now.predicted - len(ids))
        self._pending += [(i, "") for i in ids[:-1]] + [(i, text) for i in ids[-1:]]
        self._seconds = arrived
        if len(self._pending) > self._step.accepted - self._done.accepted + self._unsure:
            given += self._give(now.predicted)
        return given

    def rest(self) -> list[Chunk]:
        return self._give(self._done.predicted + len(self._pending))

    def finish(self) -> None:
        response = self.response
        made_by = [c.made_by for c in response.chunks]
        steps = [m for m in made_by if isinstance(m, Step)]
        counts = summed(steps, max((s.drafted for s in steps), default=None))
        if "streamed" not in made_by:
            response.speculation = Speculation(counts)
        if self._kind == "none" and self.wanted.settings.strategy == "speculative":
            response.notes.append("this server was started without speculation (its flag is --spec-type).")
        waited = response.chunks[0].seconds - (response.prefill_seconds or 0.0)
        if response.prefill_seconds is not None and waited > QUEUED_SECONDS:
            response.notes.append(f"the request waited {waited:.1f} s for a free slot, which its times include.")

    def _give(self, predicted: int) -> list[Chunk]:
        """The pending tokens as chunks; ``predicted`` tokens are known to have been made up to their end."""
        drafted, accepted = self._step.drafted - self._done.drafted, self._step.accepted - self._done.accepted
        self._add_unsent(predicted, most=accepted + 1)
        plain = max(0, len(self._pending) - accepted - 1) if drafted else len(self._pending)
        parts: list[tuple[list[tuple[int | None, str]], Step | Kind]] = [(self._pending, "streamed")]
        if not drafted or (0 <= accepted <= drafted and plain <= self._unsure):
            parts = [(self._pending[:plain], "target"), (self._pending[plain:], Step(drafted, accepted))]
        self._done = self._step._replace(predicted=self._done.predicted + len(self._pending))
        self._pending = []
        cut = [(tuple(zip(*part, strict=True)), made_by) for part, made_by in parts if part]
        return [Chunk(ids, texts, self._seconds, made_by) for (ids, texts), made_by in cut]

    def _add_unsent(self, predicted: int, most: int | None = None) -> None:
        """Add the tokens that were made but not sent: those inside a character of several tokens."""
        missing = predicted - self._done.predicted - len(self._pending)
        if most is not None:
            missing = min(missing, most - len(self._pending))
        self._pending += [(None, "")] * missing

    def _end(self, event: dict[str, Any], timings: dict[str, Any]) -> None:
        response = self.response
        predicted, requested = count(event, "tokens_predicted"), entry(event, "generation_settings", dict) or {}
        response.usage = (count(event, "tokens_evaluated"), predicted)
        stop = entry(event, "stop_type", str) or ""
        response.finish_reason = STOPS.get(stop, stop or None)
        response.prefill_seconds = seconds(timings, "prompt_ms", MILLISECOND)
        response.decode_seconds = seconds(timings, "predicted_ms", MILLISECOND)
        self._kind = entry(requested, "speculative.types", str) or ""

    def _encoded(self) -> list[int]:
        """The prompt's token ids, by the server's own tokenizer and chat template."""
        text = self.wanted.prompt
        if self.wanted.chat:
            # Local lanes switch the thinking of hybrid models off too.
            body = {"messages": self.wanted.messages, "chat_template_kwargs": {"enable_thinking": False}}
            text = entry(self.connection.post("/apply-template", body), "prompt", str)
        ids = token_ids(self.connection.post("/tokenize", {"content": text, "add_special": True}), "tokens")
        if not ids:
            raise Malformed("it made no tokens of the prompt")
        return list(ids)
