"""A server that speaks vLLM's protocol and really decodes, with this project's own code.

It reports the true arrays of its verify steps as vLLM does (``--per-request-spec-decode-metrics``): a step in
which nothing was drafted is left out, and what the last step accepted is counted whole, even behind an end.
``FakeVLLM.traces`` holds the local trace of every request, by its seed.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

from specdemo import ModelPair, Round, Settings, Token, Trace
from specdemo.decoding.autoregressive import autoregressive
from specdemo.decoding.drafters.registry import open_drafter
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.lane import new_lane
from specdemo.decoding.speculative import speculative
from specdemo.runs.encode import encode
from specdemo.runs.lane import LaneRecord
from specdemo.settings import MAX_GAMMA

REFUSALS = ("429", "500")
CRASHED = "crashed"
"""No request is answered any more."""
ENDLESS_PAGE = "endless page"
"""The list of models never ends."""
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

WRONG_REPORTS = ("empty", "no usage", "wrong totals", "wrong steps", "unreadable record")
WRONG_COUNTERS = ("busy", "wrong counters", "no counters", "garbled counters")


class FakeVLLM:
    """One deployment on loopback, for use in a ``with`` statement.

    Args:
        pair: decodes.
        deployed: how it speculates (γ, drafter, adaptive γ); None is a baseline deployment.
        level: of its record: ``detailed``, ``summary`` or ``none``.
        model: what it calls its model.
        key: the key that requests need, if any.
        ids: whether it knows ``return_token_ids``.
        strict: refuse parameters it does not know (400), as some servers do, instead of ignoring them.
        merge: the chance that a chunk waits for the next, as under load.
        pause: seconds between chunks.
        fault: one of the names above; those of ``BROKEN_STREAMS`` happen after ``fault_after`` chunks.
    """

    def __init__(
        self,
        pair: ModelPair,
        deployed: Settings | None = None,
        *,
        level: str = "detailed",
        model: str = "toy",
        key: str | None = None,
        ids: bool = True,
        strict: bool = False,
        merge: float = 0.0,
        pause: float = 0.0,
        fault: str | None = None,
        fault_after: int = 3,
    ) -> None:
        assert fault in (None, CRASHED, ENDLESS_PAGE, *REFUSALS, *BROKEN_STREAMS, *WRONG_REPORTS, *WRONG_COUNTERS)
        self.pair, self.deployed, self.level, self.model, self.key = pair, deployed, level, model, key
        self.ids, self.strict, self.merge, self.pause = ids, strict, merge, pause
        self.fault, self.fault_after = fault, fault_after
        self.traces: dict[int, Trace] = {}
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []  # of every request with a body, refused ones too
        self.gone = threading.Event()  # set when a client leaves in the middle of a response
        self.counters: Counter[str] = Counter()
        self.positions: Counter[int] = Counter()
        self.lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> FakeVLLM:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    # --- decoding -----------------------------------------------------------------------------------------

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
            if raw.result.drafted:
                steps.append((len(raw.result.drafted), raw.result.passed))
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

    def count(self, tokens: int, prompt: int, steps: list[tuple[int, int]]) -> None:
        """Move the counters of ``/metrics`` on."""
        with self.lock:
            self.counters["request_success_total"] += 2 if self.fault == "busy" else 1
            self.counters["generation_tokens_total"] += tokens + (self.fault == "wrong counters")
            self.counters["prompt_tokens_total"] += prompt
            self.counters["spec_decode_num_drafts_total"] += len(steps)
            self.counters["spec_decode_num_draft_tokens_total"] += sum(d for d, _ in steps)
            self.counters["spec_decode_num_accepted_tokens_total"] += sum(a for _, a in steps)
            for _, accepted in steps:
                self.positions.update(range(accepted))

    def metrics_page(self) -> str:
        """Prometheus' text, with vLLM's names and labels."""
        labels = f'engine="0",model_name="{self.model}"'
        if self.fault == "garbled counters":
            return f"vllm:request_success_total{{{labels} one\n"
        with self.lock:
            lines = [f"vllm:num_requests_running{{{labels}}} 0.0", f"vllm:num_requests_waiting{{{labels}}} 0.0"]
            names = ["request_success_total", "generation_tokens_total", "prompt_tokens_total"]
            if self.deployed is not None:
                names += [f"spec_decode_num_{n}_total" for n in ("drafts", "draft_tokens", "accepted_tokens")]
                for position in range(self.deployed.gamma):
                    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                    lines.append(f'{name}{{{labels},position="{position}"}} {float(self.positions[position])}')
            for name in names:
                lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}{{{labels}}} {float(self.counters[name])}"]
        return "\n".join(lines) + "\n"

    def detokenize(self, ids: list[int]) -> str:
        if self.pair.tokenizer is None:
            return "".join(f"⟨{i}⟩" for i in ids)
        return self.pair.tokenizer.decode(ids)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeVLLM

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.fake.gone.set()

    def parse_request(self) -> bool:
        self.close_connection = True  # where it has crashed; else the request says
        return self.fake.fault != CRASHED and super().parse_request()

    def do_GET(self) -> None:
        fake = self.fake
        if self.path == "/health":
            return self._send(200, b"")
        if self.path == "/metrics" and fake.fault != "no counters":
            return self._send(200, fake.metrics_page().encode(), "text/plain; version=0.0.4")
        if self.path == "/v1/models" and fake.fault == ENDLESS_PAGE:
            self.send_response(200)
            self.end_headers()
            while not fake.gone.wait(0.02):
                self.wfile.write(b" ")
            return None
        if self.path == "/v1/models":
            return self._json(
                200, {"object": "list", "data": [{"id": fake.model, "object": "model", "owned_by": "vllm"}]}
            )
        return self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        fake = self.fake
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake.headers.append(dict(self.headers))
        if fake.key is not None and self.headers.get("Authorization") != f"Bearer {fake.key}":
            sent = self.headers.get("Authorization", "")
            return self._refuse(401, f"Unauthorized: {sent}", "Unauthorized")
        if self.path == "/detokenize":
            return self._json(200, {"prompt": fake.detokenize(request["tokens"])})
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            return self._json(404, {"detail": "Not Found"})
        fake.requests.append({"path": self.path, **request})
        if fake.fault == "429":
            return self._refuse(429, "too many requests", "RateLimitError", {"Retry-After": "7"})
        if fake.fault == "500":
            return self._refuse(500, "the engine died", "InternalServerError")
        if request["model"] != fake.model:
            return self._refuse(404, f"The model `{request['model']}` does not exist.", "NotFoundError")
        unknown = {"return_token_ids", "chat_template_kwargs", "min_p"} & set(request)
        if fake.strict and unknown:
            return self._refuse(400, f"unexpected parameters: {sorted(unknown)}", "BadRequestError")
        return self._respond(request, chat="messages" in request)

    # --- responses ----------------------------------------------------------------------------------------

    def _respond(self, request: dict[str, Any], chat: bool) -> None:
        fake = self.fake
        prompt = request["messages"][-1]["content"] if chat else request["prompt"]
        ids = encode(fake.pair, prompt, chat) if isinstance(prompt, str) else list(prompt)
        settings, steps, rounds = fake.settings(request), [], []
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        frame = _Frame(chat, request, ids if fake.ids else None)
        for event in frame.opening():
            self._event(event)
        record = LaneRecord(fake.pair, ids, settings)
        held: list[Round] = []
        dice = Random(settings.seed)
        for round_ in ended_at(fake.decode(record, steps), request.get("stop", ())):
            rounds.append(round_)
            held.append(round_)
            if round_.stop is None and dice.random() < fake.merge:
                continue
            if fake.fault == "empty":
                held = []
                continue
            if self._broke_off(frame):
                return
            self._event(frame.chunk([t for r in held for t in r.emitted], held[-1].stop))
            held = []
            time.sleep(fake.pause)
        del steps[sum(r.drafted > 0 for r in rounds) :]  # decoded behind a stop text
        fake.traces[settings.seed] = replace(record.trace("eager"), rounds=tuple(rounds))
        emitted = sum(len(r.emitted) for r in rounds)
        fake.count(emitted, len(ids), steps)
        if fake.fault == "empty":
            self._event(frame.chunk([], "eos"))
        if fake.fault != "no usage" and request.get("stream_options", {}).get("include_usage"):
            self._event(frame.usage(len(ids), emitted, fake.record(steps)))
        self._end()

    def _broke_off(self, frame: _Frame) -> bool:
        """Let a fault in the middle of the response happen; whether the response is over."""
        fake = self.fake
        if fake.fault not in BROKEN_STREAMS or frame.chunks < fake.fault_after:
            return False
        if fake.fault == "abort":
            self._event(frame.chunk([], "abort"))
        if fake.fault in ("abort", "quiet end"):
            self._end()
            return True
        if fake.fault == "hang":
            fake.gone.wait(20)
        while fake.fault == "comments" and not fake.gone.wait(0.05):
            self._write(b": still here\n\n")
        if fake.fault in ODD_EVENTS:
            self._data(ODD_EVENTS[fake.fault])
            self.rfile.read(1)  # until the client leaves
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def _event(self, data: dict[str, Any]) -> None:
        self._data(json.dumps(data, ensure_ascii=False).encode())

    def _data(self, data: bytes) -> None:
        self._write(b"data: " + data + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _end(self) -> None:
        self._data(b"[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> None:
        self._json(status, {"error": {"message": message, "type": kind, "code": status}}, headers)

    def _json(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(data).encode(), "application/json", headers)

    def _send(
        self, status: int, body: bytes, kind: str = "text/plain", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def ended_at(rounds: Iterator[Round], stop: Sequence[str]) -> Iterator[Round]:
    """The rounds until a stop text is complete; what a step had behind it never was, and the text is left out.

    All are decoded first: vLLM holds back what may be the beginning of a stop text.
    """
    if not stop:
        yield from rounds
        return
    done = list(rounds)
    text = "".join(t.text for r in done for t in r.emitted)
    begin, end = min(((text.index(s), text.index(s) + len(s)) for s in stop if s in text), key=lambda x: x[1])
    place = 0
    for round_ in done:
        kept: list[Token] = []
        for token in round_.emitted:
            kept.append(replace(token, text=token.text[: max(begin - place, 0)]))
            place += len(token.text)
            if place >= end:
                yield replace(round_, tokens=tuple(kept), stop="eos")
                return
        yield replace(round_, tokens=tuple(kept))


class _Frame:
    """The chunks of one response in OpenAI's form, with vLLM's additions."""

    def __init__(self, chat: bool, request: dict[str, Any], prompt_ids: list[int] | None) -> None:
        self.chat, self._request, self._prompt_ids = chat, request, prompt_ids
        self._wants_ids = prompt_ids is not None and bool(request.get("return_token_ids"))
        self.chunks = 0

    def _root(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"id": "cmpl-1", "object": kind, "created": 0, "model": self._request["model"], "choices": choices}

    def opening(self) -> list[dict[str, Any]]:
        if not self.chat:
            return []
        root = self._root([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        return [root | ({"prompt_token_ids": self._prompt_ids} if self._wants_ids else {})]

    def chunk(self, tokens: list[Token], stop: str | None) -> dict[str, Any]:
        reasons = {"eos": "stop", "context": "length"}
        choice: dict[str, Any] = {"index": 0, "finish_reason": reasons.get(stop, stop), "logprobs": None}
        text = "".join(t.text for t in tokens)
        choice |= {"delta": {"content": text}} if self.chat else {"text": text}
        if tokens and self._wants_ids:
            choice["token_ids"] = [t.id for t in tokens]
            if not self.chat and not self.chunks:
                choice["prompt_token_ids"] = self._prompt_ids
        self.chunks += 1
        return self._root([choice])

    def usage(self, prompt: int, completion: int, record: dict[str, Any] | None) -> dict[str, Any]:
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        metrics = {} if record is None else {"metrics": {"speculative_decoding": record}}
        return {**self._root([]), "usage": usage, **metrics}
