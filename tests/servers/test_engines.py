"""Engines that cannot run here, held against answers written from their documentation or source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted import Exchange, ScriptedServer

import specdemo
from specdemo import PromptError, ServerError, ServerPair, Settings, SettingsError, Trace
from specdemo.servers.engines.table import SERVER_KINDS
from specdemo.servers.failures import Malformed
from specdemo.servers.logprobs import places_of

ANSWERS = Path(__file__).parents[1] / "data" / "servers"
LANE = Settings(engine="server", max_new_tokens=8)
PROMPT = "Once upon a time"


class Recorded(ScriptedServer):
    """Gives one file's answers; ``requests`` holds what was asked of it."""

    def __init__(self, name: str, **changes: Any) -> None:
        super().__init__()
        self.recorded = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8")) | changes
        self.requests: list[tuple[str, Any]] = []
        self.pair = ServerPair(None, self.url, "m")

    def answer(self, exchange: Exchange) -> None:
        if exchange.command == "GET":
            found = self.recorded["answers"].get(exchange.path)
            return exchange.reply(found, 404 if found is None else 200)
        self.requests.append((exchange.path, exchange.json))
        if exchange.path != self.recorded["path"]:
            return exchange.reply({}, 404)
        events = [json.dumps(e, ensure_ascii=False).encode() for e in self.recorded["stream"]]
        lines = self.recorded["format"] == "lines"
        return exchange.reply(b"\n".join(events if lines else [b"data: " + e for e in (*events, b"[DONE]")]))


def run_on(name: str, settings: Settings = LANE, **changes: Any) -> tuple[Trace, dict[str, Any]]:
    """The trace, and the body of the request."""
    with Recorded(name, **changes) as server:
        trace = specdemo.run(server.pair, PROMPT, settings)
        ((path, body),) = server.requests
        assert path == server.recorded["path"]
    assert trace.complete
    assert Trace.from_json(trace.to_json()) == trace
    return trace, body


@pytest.mark.parametrize("name", ["sglang", "sglang_renamed"])
def test_sglang_tells_totals_and_ids(name: str) -> None:
    trace, body = run_on(name)
    assert (trace.server.engine, trace.server.level) == ("SGLang", "summary")
    assert trace.token_ids == [432, 352, 260, 691, 948, 1000, 2100, 14]
    assert trace.text == " there was a little dog named Max."
    assert trace.rounds[-1].stop == "length"
    figures = trace.metrics()
    assert (figures.proposed, figures.accepted, figures.rounds, figures.emitted) == (9, 4, 3, 7)
    assert figures.per_position == [1.0, pytest.approx(1 / 3), 0.0]
    assert trace.server.gamma == 3
    sampling = body["sampling_params"]
    assert (sampling["top_k"], sampling["min_p"], sampling["repetition_penalty"]) == (-1, 0, 1)
    assert body["text"] == PROMPT


@pytest.mark.parametrize(
    ("place", "change", "note"),
    [
        (-1, {"meta_info": {"spec_accept_histogram": [0, 3, 0, 0]}}, "contradict"),
        (1, {"output_ids": [352, 260], "text": " was a"}, "incremental"),
    ],
)
def test_what_sglang_contradicts_is_not_used(place: int, change: dict[str, Any], note: str) -> None:
    stream = json.loads((ANSWERS / "sglang.json").read_text())["stream"]
    meta = {**stream[place]["meta_info"], **change.get("meta_info", {})}
    stream[place] = {**stream[place], **change, "meta_info": meta}
    with Recorded("sglang", stream=stream) as server:
        trace = specdemo.run(server.pair, PROMPT, LANE)
    assert trace.server.level == "speed"
    assert note in " ".join([*trace.server.notes, trace.server.incomplete or ""])


def test_lm_studio_tells_totals_without_steps() -> None:
    trace, body = run_on("lm_studio", replace(LANE, max_new_tokens=9, repetition_penalty=1.1))
    assert (trace.server.engine, trace.server.level) == ("LM Studio", "summary")
    figures = trace.metrics()
    assert (figures.proposed, figures.accepted, figures.acceptance_rate) == (8, 5, 0.625)
    # Every pass of the target gives one token of its own: 8 tokens, 5 of them drafted.
    assert (figures.emitted, figures.rounds) == (8, 3)
    assert figures.per_position == []
    assert trace.token_ids == []
    assert body["repeat_penalty"] == 1.1


def test_ollama_tells_speed_by_two_clocks() -> None:
    trace, body = run_on("ollama")
    assert (trace.server.engine, trace.server.level) == ("Ollama", "speed")
    assert trace.text == "The sky\u2028is"  # its own separator of lines, inside a line
    assert trace.rounds[-1].stop == "eos"
    assert (trace.server.completion_tokens, trace.server.prompt_tokens) == (4, 26)
    assert (trace.server.prefill_seconds, trace.server.decode_seconds) == (pytest.approx(0.130079), 0.1)
    assert body["raw"] is True
    options = body["options"]
    assert (options["min_p"], options["top_k"], options["repeat_penalty"], options["num_predict"]) == (0, 0, 1, 8)
    with Recorded("ollama") as server, pytest.raises(PromptError, match="takes no token ids"):
        specdemo.run(server.pair, [1, 2], LANE)
    with Recorded("ollama") as server, pytest.raises(SettingsError, match="always ends at the end of an answer"):
        specdemo.run(server.pair, "The", replace(LANE, ignore_eos=True))


def test_a_server_that_names_itself_otherwise_is_asked_by_openais_api() -> None:
    """Guards the order: nobody's name, or a name without its second mark, is no reason to refuse a server."""
    assert SERVER_KINDS[-1].name == "OpenAI's API"
    for owner in ("library", "organization_owner", "system", None):
        models = {"data": [{"id": "m", "owned_by": owner}]}
        trace, body = run_on("lm_studio", answers={"/v1/models": models})
        assert (trace.server.engine, trace.server.level) == ("OpenAI's API", "speed")
        assert "repetition_penalty" not in body
        assert trace.text == " to find your purpose, and once"


@pytest.mark.parametrize(
    ("name", "field"), [("sglang", "output_ids"), ("ollama", "done"), ("lm_studio", "choices")]
)
def test_a_field_of_another_type_is_told(name: str, field: str) -> None:
    """Guards against trust: no engine's answer is used unread."""
    stream = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))["stream"]
    with Recorded(name, stream=[{**stream[-1], field: "x"}]) as server, pytest.raises(ServerError, match=field):
        specdemo.run(server.pair, PROMPT, LANE)


LIKELIEST = [
    {"completion_probabilities": [{"top_logprobs": [{"id": 5, "token": " a", "logprob": -0.5}]}]},  # llama.cpp
    {"choices": [{"logprobs": {"tokens": ["x"], "top_logprobs": [{"token_id:5": -0.5}]}}]},  # vLLM
    {
        "choices": [
            {"logprobs": {"content": [{"token": " a", "top_logprobs": [{"token": " a", "logprob": -0.5}]}]}}
        ]
    },
    {"logprobs": [{"token": " a", "logprob": -0.5, "top_logprobs": [{"token": " a", "logprob": -0.5}]}]},  # Ollama
    {"meta_info": {"output_top_logprobs": [[[-0.5, 5, " a"]]]}},  # SGLang
]


@pytest.mark.parametrize("answer", LIKELIEST)
def test_log_probabilities_are_read_in_every_engines_shape(answer: dict[str, Any]) -> None:
    ((found,),) = places_of(answer)
    assert found.logprob == -0.5
    assert found.id == 5 or found.text == " a"


@pytest.mark.parametrize(
    "answer", [{}, [], {"logprobs": [3]}, {"logprobs": [{"top_logprobs": [{"token": "a", "logprob": "no"}]}]}]
)
def test_what_is_no_log_probability_is_malformed(answer: Any) -> None:
    with pytest.raises(Malformed):
        places_of(answer)
