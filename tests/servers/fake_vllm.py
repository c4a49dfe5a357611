"""A server that speaks vLLM's protocol and really decodes, with this project's own code.

It reports the true arrays of its verify steps as vLLM does (``--per-request-spec-decode-metrics``): a step in
which nothing was drafted is left out, and what the last step accepted is counted whole, even behind an end.
``FakeVLLM.traces`` holds the local trace of every request, by its seed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from scripted import Exchange, ScriptedServer

from specdemo import ModelPair, Round, Settings, Token, Trace
from specdemo.decoding.drafters.registry import open_drafter
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.lane import new_lane
from specdemo.decoding.speculative import autoregressive, speculative
from specdemo.runs.encode import encode
from specdemo.runs.single import LaneRecord
from specdemo.settings import MAX_GAMMA

CRASHED = "crashed"
"""No request is answered any more."""
ENDLESS_PAGE = "endless page"
"""The list of models never ends."""
REFUSALS = {"429": "too many requests", "500": "the engine died"}
ODD_EVENTS = {
    "no json": b'{"choices": [',
    "no chunk": b'{"choices": "none"}',
    "wrong ids": b'{"choices": [{"index": 0, "text": "x", "token_ids": ["a"]}]}',
    "error event": b'{"error": {"message": "EngineDeadError", "code": 500}}',
    "long token": b'{"choices": [{"index": 0, "token_ids": [12], "text": "' + b"x" * 10_000 + b'"}]}',
    "long line": b" " * 2**18,
    "too much": b'{"choices": [{"index": 0, "text": "x", "token_ids": [' + b"12, " * 500 + b"12]}]}",
}
BROKEN_STREAMS = ("cut", "quiet end", "hang", "comments", "abort", *ODD_EVENTS)
"""Faults in the middle of a response."""


class FakeVLLM(ScriptedServer):
    """One deployment on loopback, for use in a ``with`` statement."""

    def __init__(
        self,
        pair: ModelPair,
        deployed: Settings
        | None = None,  # how it speculates (γ, drafter, adaptive γ); None is a baseline deployment
        *,
        level: str = "detailed",  # of its record; or ``summary`` or ``none``
        model: str = "toy",
        key: str | None = None,  # that requests need
        ids: bool = True,  # whether it knows ``return_token_ids``
        listing: bool = False,  # whether it tells the likeliest tokens
        strict: bool = False,  # refuse parameters it does not know (400), as some servers do
        merge: float = 0.0,  # the chance that a chunk waits for the next, as under load
        pause: float = 0.0,  # seconds between chunks
        fault: str | None = None,  # one of the names above, or of a wrong report
        fault_after: int = 3,  # chunks, where the fault breaks a stream
    ) -> None:
        self.pair, self.deployed, self.level, self.model, self.key = pair, deployed, level, model, key
        self.ids, self.strict, self.merge, self.pause, self.listing = ids, strict, merge, pause, listing
        self.fault, self.fault_after = fault, fault_after
        self.going_on = threading.Event()  # answers wait for it after ``fault_after`` chunks
        self.going_on.set()
        self.traces: dict[int, Trace] = {}
        self.requests: list[dict[str, Any]] = []
        super().__init__()

    @property
    def crashed(self) -> bool:
        return self.fault == CRASHED

    def settings(self, request: dict[str, Any]) -> Settings:
        """The settings to decode with: the request's sampling, the deployment's speculation."""
        greedy = request["temperature"] == 0
        common = {
            "temperature": request["temperature"],
            "top_p": request["top_p"],
            "top_k": max(request.get("top_k", 0), 0),
            "repetition_penalty": request.get("repetition_penalty", 1.0),
            "max_new_tokens": request["max_tokens"],
            "seed": request["seed"],
        }
        if self.deployed is None:
            return Settings(strategy="autoregressive", **common)
        return replace(self.deployed, acceptance="exact" if greedy else "sampling", **common)

    def decode(self, record: LaneRecord, steps: list[tuple[int, int]]) -> Iterator[Round]:
        """The rounds as decoded here; ``steps`` fills with what vLLM would record: tokens drafted and passed."""
        lane = new_lane(self.pair, record.ids, record.settings)
        target = EagerRunner(self.pair.target)
        if self.deployed is None:
            decoding = autoregressive(lane, target)
        else:
            decoding = speculative(lane, target, open_drafter(self.pair, target, lane))
        for raw in decoding:
            if raw.drafted:
                steps.append((len(raw.drafted), raw.passed))
            yield record.add(raw)

    def record(self, steps: list[tuple[int, int]]) -> dict[str, Any] | None:
        """``metrics.speculative_decoding`` of one request."""
        if self.deployed is None or self.level == "none":
            return None
        gamma = MAX_GAMMA if self.deployed.adaptive_gamma else self.deployed.gamma
        drafted, accepted = [d for d, _ in steps], [a for _, a in steps]
        record: dict[str, Any] = {
            "mean_acceptance_length": 1 + sum(accepted) / len(steps) if steps else 1.0,
            "draft_acceptance_rate": sum(accepted) / sum(drafted) if steps else 0.0,
            "acceptance_histogram": [accepted.count(i) for i in range(gamma + 1)],
            "num_spec_steps": len(steps),
            "num_accepted_draft_tokens": sum(accepted),
            "num_draft_tokens": sum(drafted) + (self.fault == "wrong totals"),
            "num_spec_tokens": gamma,
        }
        if self.level == "detailed" and steps:
            record |= {"per_step_accepted": accepted, "per_step_drafted": drafted}
        if self.fault == "wrong steps":  # they agree with each other, but not with the output
            too_many = drafted + [gamma] * 40
            return {"num_spec_tokens": gamma, "per_step_accepted": too_many, "per_step_drafted": too_many}
        return {"per_step_accepted": "all"} if self.fault == "unreadable record" else record

    def detokenize(self, ids: list[int]) -> str:
        if self.pair.tokenizer is None:
            return "".join(f"⟨{i}⟩" for i in ids)
        return self.pair.tokenizer.decode(ids)

    def answer(self, exchange: Exchange) -> None:
        if exchange.command == "POST":
            self._answer_post(exchange)
        elif exchange.path == "/health":
            exchange.reply(b"")
        elif exchange.path == "/v1/models" and self.fault == ENDLESS_PAGE:
            exchange.head(200, {})
            while not self.gone.wait(0.02):
                exchange.wfile.write(b" ")
        elif exchange.path == "/v1/models":
            exchange.reply({"data": [{"id": self.model, "object": "model", "owned_by": "vllm"}]})
        else:
            exchange.reply({"detail": "Not Found"}, 404)

    def _answer_post(self, exchange: Exchange) -> None:
        request, sent = exchange.json, exchange.headers.get("Authorization", "")
        if self.key is not None and sent != f"Bearer {self.key}":
            return _refuse(exchange, 401, f"Unauthorized: {sent}")
        if exchange.path == "/detokenize":
            return exchange.reply({"prompt": self.detokenize(request["tokens"])})
        self.requests.append({"path": exchange.path, **request})
        unknown = {"return_token_ids", "chat_template_kwargs", "min_p"} & set(request)
        if self.fault in REFUSALS:
            return _refuse(exchange, int(self.fault), REFUSALS[self.fault])
        if request["model"] != self.model:
            return _refuse(exchange, 404, f"The model `{request['model']}` does not exist.")
        if self.strict and unknown:
            return _refuse(exchange, 400, f"unexpected parameters: {sorted(unknown)}")
        if not request["stream"] and self.listing:
            return exchange.reply({"choices": [{"logprobs": {"top_logprobs": self.likeliest(request)}}]})
        return self._stream(exchange, request)

    @torch.no_grad()
    def likeliest(self, request: dict[str, Any]) -> list[dict[str, float]]:
        """Of each token of a greedy output the likeliest, as vLLM names them."""
        ids, found = list(request["prompt"]), []
        for _ in range(request["max_tokens"]):
            top = self.pair.target(torch.tensor([ids])).logits[0, -1].log_softmax(-1).topk(request["logprobs"])
            found.append({f"token_id:{i}": p for p, i in zip(top[0].tolist(), top[1].tolist(), strict=True)})
            ids.append(int(top[1][0]))
        return found

    def _stream(self, exchange: Exchange, request: dict[str, Any]) -> None:
        chat = "messages" in request
        prompt = request["messages"][-1]["content"] if chat else request["prompt"]
        ids = encode(self.pair, prompt, chat) if isinstance(prompt, str) else list(prompt)
        settings, steps = self.settings(request), []
        exchange.stream()
        wants_ids = self.ids and bool(request.get("return_token_ids"))
        if chat:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            exchange.event({"choices": [role], **({"prompt_token_ids": ids} if wants_ids else {})})
        record = LaneRecord(self.pair, ids, settings)
        held: list[Round] = []
        chunks, dice = 0, Random(settings.seed)
        for round_ in self.decode(record, steps):
            held.append(round_)
            if round_.stop is None and dice.random() < self.merge:
                continue
            if self.fault == "empty":
                continue
            if self._broke_off(exchange, chunks):
                return
            chunk = _chunk([t for r in held for t in r.emitted], held[-1].stop, chat, wants_ids)
            if wants_ids and not chat and not chunks:
                chunk["prompt_token_ids"] = ids
            exchange.event({"choices": [chunk]})
            held, chunks = [], chunks + 1
            time.sleep(self.pause)
            if chunks == self.fault_after:
                self.going_on.wait(60)
        self.traces[settings.seed] = record.trace("eager")
        emitted = len(self.traces[settings.seed].output)
        if self.fault == "empty":
            exchange.event({"choices": [_chunk([], "eos", chat)]})
        if self.fault != "no usage" and request.get("stream_options", {}).get("include_usage"):
            spoken = self.record(steps)
            metrics = {} if spoken is None else {"metrics": {"speculative_decoding": spoken}}
            usage = {"prompt_tokens": len(ids), "completion_tokens": emitted}
            exchange.event({"choices": [], "usage": usage, **metrics})
        exchange.event(b"[DONE]")
        exchange.write(b"")

    def _broke_off(self, exchange: Exchange, chunks: int) -> bool:
        """Let a fault in the middle of the response happen; whether the response is over."""
        if self.fault not in BROKEN_STREAMS or chunks < self.fault_after:
            return False
        if self.fault == "abort":
            exchange.event({"choices": [_chunk([], "abort", chat=False)]})
        if self.fault in ("abort", "quiet end"):
            exchange.event(b"[DONE]")
            exchange.write(b"")
            return True
        if self.fault == "hang":
            self.gone.wait(20)
        while self.fault == "comments" and not self.gone.wait(0.05):
            exchange.write(b": still here\n\n")
        if self.fault in ODD_EVENTS:
            exchange.event(ODD_EVENTS[self.fault])
            exchange.rfile.read(1)  # until the client leaves
        exchange.cut()
        return True


def _chunk(tokens: Sequence[Token], stop: str | None, chat: bool, ids: bool = False) -> dict[str, Any]:
    """A choice of OpenAI's API, with vLLM's ids."""
    text = "".join(t.text for t in tokens)
    reason = {"eos": "stop", "context": "length"}.get(stop or "", stop)
    found = {"index": 0, "finish_reason": reason, **({"delta": {"content": text}} if chat else {"text": text})}
    return found | ({"token_ids": [t.id for t in tokens]} if tokens and ids else {})


def _refuse(exchange: Exchange, status: int, message: str) -> None:
    exchange.reply({"error": {"message": message, "code": status}}, status, {"Retry-After": "7"})
