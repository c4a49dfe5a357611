"""llama.cpp's own server with the builtin pair: its rounds, ids and failures, held against the local lanes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from llama_server import llama_server, shape
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

import specdemo
from specdemo import ModelPair, ServerError, ServerPair, Settings, Trace
from specdemo.analysis.engine_lines import engine_lines
from specdemo.losslessness.compare import compare
from specdemo.runs.encode import encode
from specdemo.runs.prompts import examples
from specdemo.server_record import IN_TURN
from specdemo.servers.engines import table
from specdemo.servers.engines.llama_cpp import LlamaCpp
from specdemo.servers.llama_server import LlamaServer
from specdemo.training.gguf import write_model

GAMMA = 4
README = Path(table.__file__).parents[1] / "README.md"
PROMPT = "Once upon a time there was"
DRAFTED = Settings(engine="server", max_new_tokens=32, chat=False)
PLAIN = replace(DRAFTED, strategy="autoregressive")
ODD_TEXTS = [
    " a",
    "a  b   c\n\n\n d\t\te \r\n",
    "12345 3.14159 1,000,000 ٣٤ ²³",
    "naïve café Ünïcödé ﬁ",
    "日本語 한국어 العربية हिन्दी",
    "🙂👩‍👩‍👧🏽 e\u0301",
    "<|endoftext|>User: hi<|endoftext|>",
    "don't I'll we've IT'S 'tis",
    "def f(x):\n    return {x: [1, 2], 'y': None}  # ok?",
    "\u200b\u00a0\x01\x7f\ufeff\U0010ffff",
]


def advised(files: dict[str, Path]) -> tuple[str, ...]:
    """The flags that the advisor hands over, with the draft's file where it lies."""
    line = engine_lines("llama.cpp", Settings(gamma=GAMMA), {"draft": "draft"}).replace("\\\n", " ")
    program, _, _, *flags = shlex.split(line, comments=True)
    assert program == "llama-server"
    return tuple(str(files["draft"]) if flag == "draft.gguf" else flag for flag in flags)


@pytest.fixture(scope="module")
def servers(files: dict[str, Path]) -> Iterator[dict[str, LlamaServer]]:
    """Without speculation, and with a draft of γ = 4."""
    with ExitStack() as stack:
        flags = {
            "plain": ("-np", "2", "-c", "2048"),
            "drafting": (*advised(files), "--metrics", "-np", "2", "-c", "2048"),
        }
        yield {name: stack.enter_context(llama_server(files["target"], *f)) for name, f in flags.items()}


@pytest.fixture(scope="module")
def served(servers: dict[str, LlamaServer]) -> ServerPair:
    return ServerPair(servers["plain"].url, servers["drafting"].url, "builtin")


def here(settings: Settings) -> Settings:
    """The same lane with the models of this process."""
    return replace(settings, engine="auto", gamma=GAMMA)


def test_its_tokenizer_and_template_are_ours(pair: ModelPair, served: ServerPair) -> None:
    """Guards the GGUF: one other id, and every figure would be of another prompt."""
    for text in [*ODD_TEXTS, *(e.prompt for e in examples())]:
        answer = httpx.post(
            served.baseline_url.replace("/v1", "/tokenize"), json={"content": text, "add_special": True}
        )
        assert answer.json()["tokens"] == list(encode(pair, text, chat=False)), text
    for chat in (False, True):
        trace = specdemo.run(served, "Hi, 12 naïve 🙂!", replace(PLAIN, chat=chat, max_new_tokens=1))
        assert trace.prompt_ids == tuple(encode(pair, "Hi, 12 naïve 🙂!", chat))


def test_greedy_ids_and_rounds_are_those_of_the_local_lane(
    pair: ModelPair, served: ServerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 tokens of 8 prompts in float32. Every round is told right: drafted, accepted, and which tokens.

    An output may part only where rounding decides: two tokens whose logits are a ten-thousandth apart.
    """
    monkeypatch.setattr("specdemo.servers.engines.llama_cpp.QUEUED_SECONDS", 60)  # on a busy machine all wait
    settings, parted = replace(DRAFTED, max_new_tokens=48), {}
    for example in examples()[:8]:
        own = specdemo.run(pair, example.prompt, here(settings))
        theirs = specdemo.run(served, example.prompt, settings)
        assert (theirs.server.engine, theirs.server.level, theirs.server.notes) == ("llama.cpp", "detailed", ())
        same = compare(own, theirs)
        if same.outcome == "tie":
            parted[example.title] = own.output[same.position].margin
            continue
        assert same.outcome == "identical", (example.title, same.text)
        assert shape(theirs) == shape(own), example.title
        assert theirs.text == own.text
    print("parted at these margins:", parted)
    assert all(margin < 1e-4 for margin in parted.values()), parted
    assert len(parted) <= 2, parted


@pytest.mark.parametrize("changes", [{}, {"repetition_penalty": 1.3}, {"chat": True}])
def test_its_plain_lane_is_our_plain_lane(pair: ModelPair, served: ServerPair, changes: dict) -> None:
    settings = replace(PLAIN, **changes)
    theirs, own = specdemo.run(served, PROMPT, settings), specdemo.run(pair, PROMPT, here(settings))
    assert theirs.token_ids == own.token_ids
    assert theirs.rounds[-1].stop == own.rounds[-1].stop
    assert {t.kind for t in theirs.tokens} == {"target"}
    assert theirs.metrics().mean_acceptance_length == 1
    assert 0 < theirs.server.decode_seconds < theirs.metrics().seconds


def test_a_prompt_that_is_too_long_is_refused(served: ServerPair) -> None:
    with pytest.raises(ServerError, match=r"exceeds the available context size \(1024 tokens\)"):
        specdemo.run(served, "word " * 2000, DRAFTED)


def saying(tokenizer: PreTrainedTokenizerFast, text: str) -> PreTrainedModel:
    """A model that says a text's tokens in turn, over and over: its layer adds nothing, its output knows."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1}
    shape |= {"vocab_size": len(tokenizer), "num_hidden_layers": 1, "bos_token_id": 0, "eos_token_id": 3}
    model = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, **shape)).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_()
        layer = model.model.layers[0]
        for silent in (layer.self_attn.o_proj, layer.mlp.down_proj, model.lm_head):
            silent.weight.zero_()
        for token, following in zip(ids, ids[1:] + ids[:1], strict=True):
            model.lm_head.weight[following] = model.model.embed_tokens.weight[token]
    return model.requires_grad_(False)


def test_characters_of_several_tokens_are_told_as_far_as_they_are_sent(
    pair: ModelPair, files: dict[str, Path], tmp_path: Path
) -> None:
    """llama.cpp sends no id for tokens inside a character; nothing else of the lane is lost."""
    text, path = "é é é é é é é é é", tmp_path / "accents.gguf"
    model = saying(pair.tokenizer, " é")
    write_model(path, model, pair.tokenizer, "float32")
    pair = ModelPair(model, pair.draft, pair.tokenizer)
    with llama_server(path, *advised(files)) as server:
        own = specdemo.run(pair, text, here(DRAFTED))
        trace = specdemo.run(ServerPair(None, server.url, "builtin"), text, DRAFTED)
    assert own.text.startswith(" é ")  # of three tokens, so that rounds begin and end inside it
    assert trace.text.startswith(" é ")
    assert trace.token_ids == []
    known = [(t.id, o.id) for t, o in zip(trace.output, own.output, strict=True) if t.id is not None]
    assert len(known) > len(own.output) // 2
    assert all(theirs == ours for theirs, ours in known)
    assert trace.server.level == "detailed"
    for name in ("rounds", "proposed", "accepted", "emitted"):
        assert getattr(trace.metrics(), name) == getattr(own.metrics(), name), name
    assert Trace.from_json(trace.to_json()) == trace


def test_lanes_of_one_machine_run_in_turns(pair: ModelPair, served: ServerPair) -> None:
    """Guards fairness: on one machine each lane's time would be taken from the others."""
    lanes = [here(PLAIN), PLAIN, DRAFTED, here(DRAFTED)]
    race = specdemo.race([pair, served, served, pair], PROMPT, lanes)
    order = [lane for lane, _ in race]
    turns = [lane for n, lane in enumerate(order) if n == 0 or order[n - 1] != lane]
    assert set(turns[:-2]) == {0, 3}  # both of this process, slice by slice
    assert turns[-2:] == [1, 2]
    traces = race.traces()
    assert [IN_TURN in t.server.notes for t in traces[1:3]] == [True, True]
    assert {compare(traces[0], t).outcome for t in traces[1:]} == {"identical"}
    together = specdemo.race([replace(served, own_hardware=True)] * 2, PROMPT, [PLAIN, DRAFTED])
    order = [lane for lane, _ in together]
    assert order != sorted(order)
    assert all(IN_TURN not in t.server.notes for t in together.traces())


def test_the_readmes_commands_start_a_race(files: dict[str, Path]) -> None:
    """As they stand there, but for ports, the folder, and threads, which would wait for busy cores."""
    text = README.read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("llama-server ")]
    with ExitStack() as stack:
        urls = []
        for _, *flags in commands:
            flags = [f.replace("gguf-files", str(files["target"].parent)) for f in flags]
            del flags[flags.index("--port") : flags.index("--port") + 2]
            urls.append(stack.enter_context(LlamaServer([*flags, "-t", "1"])).url)
        traces = [specdemo.run(ServerPair(*urls, "builtin"), PROMPT, s) for s in (PLAIN, DRAFTED)]
    assert [t.server.counts.drafted > 0 for t in traces] == [False, True]
    assert traces[0].token_ids == traces[1].token_ids


def test_a_server_is_advised_on_as_it_was_started(served: ServerPair) -> None:
    """Two contenders: plain decoding and its own speculation, by the client's clock."""
    report = specdemo.advise(served, [PROMPT], replace(DRAFTED, engine="auto", max_new_tokens=8), budget_seconds=6)
    assert {row.name for row in report.rows} == {"plain decoding", "the server's speculation"}
    assert report.best.speedup > 0
    assert report.code("vllm").startswith("# Measured on a server")
    with pytest.raises(specdemo.SettingsError, match="drafts as it was started"):
        specdemo.advise(served, [PROMPT], methods=["model"])


@pytest.mark.parametrize("chat", [False, True])
def test_by_openais_api_alone_it_is_any_server(
    pair: ModelPair, served: ServerPair, chat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards servers that nobody here knows, by one that is not ours: text and times, and no more."""
    monkeypatch.setattr(table, "SERVER_KINDS", table.SERVER_KINDS[-1:])
    settings = replace(PLAIN, chat=chat, max_new_tokens=16)
    trace, own = specdemo.run(served, PROMPT, settings), specdemo.run(pair, PROMPT, here(settings))
    assert (trace.server.engine, trace.server.level) == ("OpenAI's API", "speed")
    assert trace.text == own.text
    assert trace.rounds[-1].stop == own.rounds[-1].stop
    assert compare(own, trace).outcome == "identical"
    assert (trace.server.completion_tokens, trace.server.prompt_tokens) == (len(own.output), len(own.prompt_ids))
    figures = trace.metrics()
    assert 0 < figures.ttft < figures.seconds
    assert figures.emitted == len(own.output) - 1
    assert 0 < trace.server.network_seconds < 1
    with pytest.raises(ServerError, match="HTTP 4"):
        specdemo.run(served, "word " * 2000, settings)


def test_a_full_server_a_crash_and_a_restart_are_told(pair: ModelPair, files: dict[str, Path]) -> None:
    """One slot: the second visitor waits. Then the server dies in the middle of an answer, and comes back."""
    long = replace(DRAFTED, max_new_tokens=64, temperature=1.0, acceptance="sampling")
    with llama_server(files["target"], *advised(files)) as server:
        served = ServerPair(None, server.url, "builtin")
        first = specdemo.stream(served, PROMPT, long)
        next(first)
        late = specdemo.run(served, PROMPT, DRAFTED)
        assert list(first)
        assert "waited" in " ".join(late.server.notes)
        assert late.token_ids == specdemo.run(pair, PROMPT, here(DRAFTED)).token_ids

        lane = specdemo.stream(served, PROMPT, replace(long, max_new_tokens=800))
        received = [next(lane) for _ in range(3)]
        server.kill()
        received += list(lane)
        trace = lane.trace()
        assert "broke off its answer" in trace.server.incomplete
        assert list(trace.rounds) == received
        assert not trace.complete
        with pytest.raises(ServerError, match="cannot be reached"):
            specdemo.run(served, PROMPT, DRAFTED)
    port = int(server.url.rpartition(":")[2])
    with llama_server(files["target"], *advised(files), port=port):
        assert specdemo.run(served, PROMPT, DRAFTED).token_ids == late.token_ids


# --- two deployments held against each other -----------------------------------------------------------------

ODD = 'It\'s "odd" `$HOME`'
SAMPLED = Settings(temperature=0.8, acceptance="sampling", chat=False)


def test_the_same_weights_write_the_same(served: ServerPair) -> None:
    """Alone and beside other requests; outputs that part do so at a tie, which the baseline is asked about."""
    prompts = [example.prompt for example in examples()[::9]]
    found = specdemo.compare_deployments(served, prompts, Settings(max_new_tokens=24))
    assert found.outcome in ("identical", "tie"), found.text
    assert [row.prompt for row in found.rows] == prompts
    assert {row.unit for row in found.rows} == {"token"}
    assert found.engines[0].startswith("llama.cpp, ")
    assert found.engines[0].endswith("all F32")


@pytest.fixture(scope="module")
def strangers(files: dict[str, Path]) -> Iterator[ServerPair]:
    """The draft's weights in place of the target's; both want a key."""
    with ExitStack() as stack:
        urls = [
            stack.enter_context(
                LlamaServer(("-m", str(files[role]), "-np", "2", "-c", "1024"), key="the-secret")
            ).url
            for role in ("draft", "target")
        ]
        yield ServerPair(*urls, "builtin", api_key="the-secret", name="strangers")


def test_another_model_diverges_and_its_lines_show_it_in_bash(strangers: ServerPair) -> None:
    """Guards the bug report: pasted as it is, it gives both outputs and what the baseline says of the place."""
    found = specdemo.compare_deployments(strangers, [PROMPT, ODD], Settings(max_new_tokens=16))
    assert found.outcome == "diverged"
    lines = found.reproduction()
    assert "the-secret" not in lines + found.to_json() + repr(found)
    assert strangers.baseline_url.removesuffix("/v1") in lines
    assert "127.0.0.1" not in found.to_json() + repr(found)
    assert "127.0.0.1" not in found.reproduction(addresses=False)
    asked = subprocess.run(
        ["bash", "-c", lines],
        env=os.environ | {"API_KEY": "the-secret"},
        capture_output=True,
        text=True,
        check=True,
    )
    baseline, other, place = map(json.loads, asked.stdout.splitlines())
    parted = found.decisive.difference
    written = [answer["tokens"] for answer in (baseline, other)]
    assert written[0][: parted.position] == written[1][: parted.position] == list(parted.prefix_ids)
    assert [ids[parted.position] for ids in written] == [parted.own.id, parted.other.id]
    listed = {each["id"]: each["logprob"] for each in place["completion_probabilities"][0]["top_logprobs"]}
    assert listed[parted.own.id] == pytest.approx(parted.own.logprob, abs=1e-2)
    assert f"log-probability there: {parted.own.logprob:.6f}" in lines
    assert abs(parted.gap) > found.rounding


def test_by_openais_api_alone_deployments_are_compared_by_their_texts(
    strangers: ServerPair, servers: dict[str, LlamaServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards servers without token ids: characters are compared, and both tokens found in what is listed."""
    monkeypatch.setattr(table, "SERVER_KINDS", table.SERVER_KINDS[-1:])
    same = ServerPair(servers["plain"].url, servers["drafting"].url, "builtin")
    settings = Settings(max_new_tokens=16, chat=False)
    assert specdemo.compare_deployments(same, PROMPT, settings).outcome in ("identical", "tie")
    found = specdemo.compare_deployments(strangers, ODD, settings)
    (row,) = found.rows
    assert (found.outcome, row.unit) == ("diverged", "character")
    assert row.difference.own.text
    assert row.difference.gap > 0
    other = specdemo.run(strangers, ODD, replace(DRAFTED, max_new_tokens=16))
    assert other.text.startswith(row.difference.prefix + row.difference.other.text)
    sampled = specdemo.compare_deployments(strangers, ODD, SAMPLED, 24, 4)  # some of whose answers are empty
    assert (sampled.outcome, sampled.certificate.runs) == ("undecided", 24)
    with pytest.raises(ServerError, match="no token ids of chats"):
        specdemo.compare_deployments(strangers, PROMPT, replace(SAMPLED, chat=True))


def warmed(monkeypatch: pytest.MonkeyPatch, strategy: str, temperature: float) -> None:
    """One of the deployments draws at another temperature than it is asked for."""
    real = LlamaCpp.sampling

    def sampling(self: LlamaCpp, *names: str) -> dict[str, Any]:
        mine = self.wanted.settings.strategy == strategy and self.wanted.settings.max_new_tokens > 1
        return real(self, *names) | ({"temperature": temperature} if mine else {})

    monkeypatch.setattr(LlamaCpp, "sampling", sampling)


def test_another_temperature_is_caught_and_the_same_is_not(
    served: ServerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the test of sampled outputs; how often it is right at 0.8 against 0.9 is measured by the bench."""
    story = "Go on with this story: Once upon a time, there was a"
    found = specdemo.compare_deployments(served, [story, PROMPT], SAMPLED, 16, 8)
    assert found.outcome in ("passes", "undecided"), found.text
    assert sum(row.runs for row in found.rows) == found.certificate.runs
    assert found.certificate.detectable is None or found.certificate.detectable.temperature > 1
    assert all(row.plain and max(row.plain) <= 0 for row in found.rows)
    warmed(monkeypatch, "speculative", 2.0)
    found = specdemo.compare_deployments(served, [story, PROMPT], SAMPLED, 48, 8)
    assert found.outcome == "differs"
    assert found.certificate.runs < 48
    assert "curl" in found.reproduction()


def test_a_baseline_that_contradicts_itself_is_said_first(
    served: ServerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed(monkeypatch, "autoregressive", 1.5)
    monkeypatch.setattr(LlamaCpp, "request", _unseeded(LlamaCpp.request))
    prompts = [example.prompt for example in examples()[:4]]
    found = specdemo.compare_deployments(served, prompts, Settings(max_new_tokens=16, chat=False))
    assert found.outcome == "noisy"
    assert re.match(r"The baseline contradicts itself: of [34] of 4 prompts it wrote two outputs\.", found.text)


def _unseeded(real: Callable[[LlamaCpp], Any]) -> Callable[[LlamaCpp], Any]:
    seeds = count()

    def request(self: LlamaCpp) -> Any:
        made = real(self)
        return replace(made, body={**made.body, "seed": next(seeds)})

    return request
