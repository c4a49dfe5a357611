"""Lanes on a server: what is known of them, what goes wrong, and that nothing is lost or hidden."""

from __future__ import annotations

import csv
import json
import socket
import threading
import time
from dataclasses import replace
from math import inf

import pytest
from fake_vllm import ENDLESS_PAGE, FakeVLLM
from toys import byte_tokenizer, endless_pair, prompt_ids, raced, toy_pair

import specdemo
from specdemo import (
    ModelPair,
    PairError,
    PromptError,
    Recording,
    ServerError,
    ServerPair,
    Settings,
    SettingsError,
    Trace,
    TraceError,
)
from specdemo.losslessness.compare import compare
from specdemo.prompt import Conversation
from specdemo.runs.encode import encode
from specdemo.runs.record import record
from specdemo.servers.llama_server import free_port

KEY = "sk-very-secret-0123456789"
PROMPT = prompt_ids(9)
DRAFTS = Settings(gamma=4)
REMOTE = Settings(engine="server", max_new_tokens=24)
PLAIN = replace(REMOTE, strategy="autoregressive")
SILENT = {"hang": 0.5, "comments": 0.5}  # seconds to wait for a server that says nothing any more


def speculative(fake: FakeVLLM, **options: object) -> ServerPair:
    return ServerPair(None, fake.url, fake.model, own_hardware=True, **options)


def run_on(fake: FakeVLLM, settings: Settings = REMOTE, prompt: object = PROMPT, **options: object) -> Trace:
    """The trace of one speculative lane; ``options`` are those of its ServerPair."""
    return specdemo.run(speculative(fake, **options), prompt, settings)


def run_once(pair: ModelPair, **options: object) -> Trace:
    """The same on a deployment of its own, with the options of FakeVLLM."""
    with FakeVLLM(pair, DRAFTS, **options) as fake:
        return run_on(fake)


def readers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("reader of")]


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({}, "detailed"),
        ({"level": "summary"}, "summary"),
        ({"ids": False}, "summary"),
        ({"level": "none"}, "speed"),
    ],
)
def test_each_level_has_the_figures_that_the_server_reported(options: dict, level: str) -> None:
    with FakeVLLM(endless_pair("llama"), DRAFTS, **options) as fake:
        trace = run_on(fake)
        own = fake.traces[0].metrics()
    assert trace.server.level == level
    assert trace.complete
    figures = trace.metrics()
    assert figures.emitted == own.emitted == 23
    assert figures.tokens_per_second == pytest.approx(23 / (figures.seconds - figures.ttft))
    counts = ("proposed", "accepted", "acceptance_rate", "rounds", "mean_acceptance_length", "per_position")
    for name in counts:
        unknown = [] if name == "per_position" else None
        assert getattr(figures, name) == (unknown if level == "speed" else pytest.approx(getattr(own, name))), name
    assert all(t.kind == "streamed" for t in trace.tokens) == (level != "detailed")
    assert trace.server.gamma == (None if level == "speed" else 4)
    assert trace.token_ids == (fake.traces[0].token_ids if fake.ids else [])
    assert any("token ids" in note for note in trace.server.notes) == (not fake.ids)


def test_a_baseline_deployment_gives_plain_rounds() -> None:
    with FakeVLLM(toy_pair("llama")) as fake:
        trace = specdemo.run(ServerPair(fake.url, None, "toy"), PROMPT, PLAIN)
        assert [t.kind for t in trace.tokens] == ["target"] * len(fake.traces[0].tokens)
        assert trace.token_ids == fake.traces[0].token_ids
        assert trace.metrics().mean_acceptance_length == 1.0
    with FakeVLLM(toy_pair("llama"), DRAFTS) as fake:
        trace = specdemo.run(ServerPair(fake.url, None, "toy"), PROMPT, PLAIN)
    assert any("though it is the baseline" in note for note in trace.server.notes)
    assert any(t.kind == "accepted" for t in trace.tokens)


def test_sampling_is_sent_and_never_dropped_silently() -> None:
    """Of a request that is refused, only what the settings do not ask for is left out, and that is told."""
    sampling = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 2**40}
    settings = replace(REMOTE, acceptance="sampling", ignore_eos=True, **sampling)
    with FakeVLLM(toy_pair("llama"), DRAFTS, strict=True) as fake:
        trace = run_on(fake, settings)
        assert ["return_token_ids" in r for r in fake.requests] == [True, False]
        assert any("does not take all of return_token_ids" in note for note in trace.server.notes)
        assert trace.text == fake.traces[2**40].text
        for sent in fake.requests:
            assert {name: sent[name] for name in sampling} == sampling
            assert (sent["max_tokens"], sent["ignore_eos"], sent["prompt"]) == (24, True, list(PROMPT))
    # What is not sent vLLM fills from the model's generation config; Qwen's has a penalty even in greedy runs.
    with FakeVLLM(toy_pair("llama"), DRAFTS) as fake:
        run_on(fake)
    (sent,) = fake.requests
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"], sent["temperature"]) == (-1, 0, 1, 0)


@pytest.mark.parametrize("chat", [False, True])
def test_texts_go_to_completions_or_to_the_chat_template(text_pair: ModelPair, chat: bool) -> None:
    with FakeVLLM(text_pair, DRAFTS) as fake:
        trace, own = run_on(fake, replace(REMOTE, chat=chat), "Héllo", chat=not chat), fake.traces[0]
    assert (trace.prompt_ids, trace.token_ids, trace.text) == (own.prompt_ids, own.token_ids, own.text)
    assert (trace.server.chat, trace.server.level) == (chat, "detailed")
    (sent,) = fake.requests
    assert sent["path"] == ("/v1/chat/completions" if chat else "/v1/completions")
    assert "stop" not in sent


def test_a_conversation_is_sent_with_its_roles(text_pair: ModelPair) -> None:
    said = ("user", "hi"), ("assistant", "yes"), ("user", "bye")
    talk = Conversation([{"role": role, "content": content} for role, content in said])
    with FakeVLLM(text_pair, DRAFTS) as fake:
        run_on(fake, replace(REMOTE, chat=True), talk)
    assert fake.requests[0]["messages"] == list(talk.messages)


REFUSALS = {"429": "try again in 7 s", "500": "see its log", "empty": "the answer is empty"}
BREAKS = {
    "cut": "broke off its answer",
    "quiet end": "broke off its answer",
    "hang": "did not answer within 0.5 s",
    "comments": "did not answer within 0.5 s",
    "no json": "no piece of an answer",
    "no chunk": "no piece of an answer",
    "wrong ids": "token_ids holds what is no token id",
    "error event": "EngineDeadError",
    "abort": "'abort'",
    "long token": "more tokens than were asked for",
    "long line": "one of its lines is too long",
    "too much": "more tokens than were asked for",
}
"""Faults in the middle of a response, and what is said of them."""


@pytest.mark.parametrize("fault", [*REFUSALS, "cut", "no json", "hang", "error event"])
def test_a_refusal_or_a_break_before_the_first_token_is_one_sentence(fault: str) -> None:
    message = (REFUSALS | BREAKS)[fault]
    with FakeVLLM(toy_pair("llama"), DRAFTS, fault=fault, fault_after=0) as fake:
        with pytest.raises(ServerError, match=message) as caught:
            run_on(fake, timeout=SILENT.get(fault, 60))
        assert len(fake.requests) == 1  # no silent retry: the clock runs
    check_clean(caught.value)
    assert not readers()


def test_outputs_that_end_before_a_first_token_are_compared() -> None:
    """Guards a comparison from waiting for ever where both deployments say at once that they are done."""
    with (
        FakeVLLM(toy_pair("llama"), DRAFTS, fault="empty") as base,
        FakeVLLM(toy_pair("llama"), DRAFTS, fault="empty") as other,
    ):
        served = specdemo.ServerPair(base.url, other.url, "toy")
        found = specdemo.compare_deployments(served, [PROMPT], Settings(max_new_tokens=8))
    assert found.outcome == "identical"


def test_a_comparison_wants_two_deployments_and_says_which_is_down() -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ServerError, match="both addresses of 'toy' are the same"):
        specdemo.compare_deployments(specdemo.ServerPair(closed, closed, "toy"), [PROMPT])
    with FakeVLLM(toy_pair("llama"), DRAFTS) as fake:
        for urls, which in (((fake.url, closed), "speculative deployment"), ((closed, fake.url), "baseline")):
            with pytest.raises(ServerError, match=f"the {which} of 'toy' cannot be reached"):
                specdemo.compare_deployments(specdemo.ServerPair(*urls, "toy"), [PROMPT])


@pytest.mark.parametrize("fault", BREAKS)
def test_what_arrived_before_a_failure_is_kept_and_marked(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdemo.servers.connection.MOST_BYTES", 2**16)
    with FakeVLLM(endless_pair("llama"), DRAFTS, fault=fault) as fake:
        trace = run_on(fake, timeout=SILENT.get(fault, 60))
        whole = specdemo.run(endless_pair("llama"), PROMPT, Settings(max_new_tokens=24)).token_ids
    assert BREAKS[fault] in trace.server.incomplete
    assert (trace.complete, trace.rounds[-1].stop, trace.server.level) == (False, None, "speed")
    kept = len(trace.output)
    if fault != "too much":
        assert 3 <= kept < len(whole)
        assert trace.token_ids == whole[:kept]
    assert Trace.from_json(trace.to_json()) == trace
    check_clean(trace.server.incomplete)


def test_no_answer_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an output whose pieces all come in time, nor a page about the server."""
    monkeypatch.setattr("specdemo.servers.lane.SECONDS_A_TOKEN", 0.0)
    with FakeVLLM(endless_pair("llama"), DRAFTS, pause=0.1) as fake:
        trace = run_on(fake, timeout=0.5)
    assert "had not ended its answer" in trace.server.incomplete
    assert 1 <= len(trace.rounds) <= 6
    monkeypatch.setattr("specdemo.servers.connection.SIDE_SECONDS", 0.3)
    with FakeVLLM(toy_pair("llama"), fault=ENDLESS_PAGE) as fake:
        with pytest.raises(ServerError, match="had not ended its answer"):
            run_on(fake)
        fake.gone.set()


@pytest.mark.parametrize(
    ("record", "fault", "level", "note"),
    [
        ("detailed", "wrong totals", "speed", "are not those of its steps"),
        ("detailed", "wrong steps", "speed", "do not fit its answer"),
        ("detailed", "unreadable record", "speed", "cannot be read"),
        ("detailed", "no usage", "speed", "did not count its tokens"),
    ],
)
def test_figures_that_do_not_add_up_are_noted_and_not_used(record: str, fault: str, level: str, note: str) -> None:
    trace = run_once(endless_pair("llama"), level=record, fault=fault)
    assert any(note in found for found in trace.server.notes), trace.server.notes
    assert trace.server.level == level
    assert (trace.server.counts is None) == (level == "speed")
    assert all(t.kind == "streamed" for t in trace.tokens)
    assert trace.complete


def test_an_unreachable_server_is_an_error_before_anything_runs() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        pair = ServerPair(f"http://127.0.0.1:{free.getsockname()[1]}", None, "toy", api_key=KEY)
    for ask, lanes in ((specdemo.stream, PLAIN), (specdemo.race, [PLAIN])):
        with pytest.raises(ServerError, match="cannot be reached") as caught:
            ask(pair, PROMPT, lanes)
        check_clean(caught.value)


def test_a_wrong_key_and_a_wrong_model_have_different_errors() -> None:
    with FakeVLLM(toy_pair("llama"), DRAFTS, key=KEY) as fake:
        for key in (None, "sk-another"):
            with pytest.raises(ServerError, match="refuses the key") as caught:
                run_on(fake, api_key=key)
            assert "sk-another" not in str(caught.value)
        with pytest.raises(ServerError, match="HTTP 404, model 'other'") as caught:
            specdemo.run(ServerPair(None, fake.url, "other", api_key=KEY), PROMPT, REMOTE)
        check_clean(caught.value)
        trace = run_on(fake, api_key=KEY)
    assert trace.server.level == "detailed"
    for kept in (trace.to_json(), record(None, None, [trace]).to_json(), repr(speculative(fake, api_key=KEY))):
        assert KEY not in kept
    assert "127.0.0.1" not in trace.to_json()


def check_clean(message: object) -> None:
    """One sentence or two for people: no key, no stack, no address."""
    text = str(message)
    assert not any(part in text for part in (KEY, "Traceback", "http://", "127.0.0.1", "\n")), text
    if isinstance(message, BaseException):
        assert message.__cause__ is None


def test_times_are_those_of_arrival_however_late_the_rounds_are_taken() -> None:
    """Guards races: a local lane that runs meanwhile must not slow a server's clock."""
    with FakeVLLM(endless_pair("llama"), DRAFTS, pause=0.02) as fake:
        began = time.monotonic()
        lane = specdemo.stream(speculative(fake), PROMPT, REMOTE)
        first = next(lane)
        for reader in readers():
            reader.join(60)
        arrived = time.monotonic() - began
        half_way = lane.trace()  # of what was taken, though all has come
        assert half_way.rounds == (first,)
        assert half_way.server.incomplete == "it has not ended yet"
        rounds = [first, *lane]
        assert lane.trace().complete
    assert rounds[-1].seconds < arrived  # later without a thread of its own
    assert [r.seconds for r in rounds] == sorted(r.seconds for r in rounds)
    assert rounds[-1].seconds >= 0.02 * (len(rounds) - 1)


def test_a_servers_lane_is_checked_and_written_as_far_as_it_is_known() -> None:
    pair = toy_pair("llama")
    with FakeVLLM(pair, DRAFTS) as fake:
        trace = run_on(fake)
        assert {p.outcome for p in specdemo.check_greedy(pair, trace).positions} == {"identical"}
        fake.ids = False
        with pytest.raises((TraceError, PromptError)):
            specdemo.check_greedy(pair, run_on(fake))
    rows = csv.DictReader(specdemo.tokens_csv([trace]).splitlines())
    rejected = next(row for row in rows if row["kind"] == "rejected")
    assert {rejected[name] for name in ("id", "text", "p", "q", "acceptance", "margin")} == {""}
    assert specdemo.rounds_csv([trace]).splitlines()[1].endswith(",,,,,")


@pytest.mark.parametrize("fault", [None, "hang"])
def test_closing_ends_the_connection_and_the_thread_at_once(fault: str | None) -> None:
    with FakeVLLM(endless_pair("llama"), DRAFTS, pause=0.02, fault=fault) as fake:
        lane = specdemo.stream(speculative(fake), PROMPT, replace(REMOTE, max_new_tokens=200))
        specdemo.race(speculative(fake), PROMPT, [REMOTE]).close()
        assert fake.requests == []  # nothing is sent before somebody reads
        for _ in range(3):
            next(lane)
        began = time.monotonic()
        lane.close()
        assert time.monotonic() - began < 0.5
        assert not readers()
        if fault is None:
            assert fake.gone.wait(2)
        fake.gone.set()
        assert list(lane) == []
        trace = lane.trace()
    assert not trace.complete
    assert len(trace.rounds) == 3
    assert trace.server.incomplete == "it was stopped here"


def test_a_local_lane_races_a_server() -> None:
    pair = endless_pair("llama")
    with FakeVLLM(pair, DRAFTS, pause=0.005) as fake, FakeVLLM(pair, pause=0.005) as base:
        served = ServerPair(base.url, fake.url, "toy", own_hardware=True)
        lanes = [PLAIN, Settings(max_new_tokens=24), REMOTE]
        race = specdemo.race([served, pair, served], PROMPT, lanes)
        rounds: list[list] = [[], [], []]
        for lane, round_ in race:
            rounds[lane].append(round_)
        traces = race.traces()
    assert all(t.complete for t in traces)
    assert len({tuple(t.token_ids) for t in traces}) == 1
    assert rounds[1] == list(traces[1].rounds)
    assert {t.kind for r in rounds[2] for t in r.tokens} == {"streamed"}
    assert {"accepted", "rejected"} <= {t.kind for t in traces[2].tokens}
    assert compare(traces[1], traces[2]).outcome == "identical"
    kept = Recording.from_json(record(pair, None, traces).to_json())
    assert list(kept.traces) == traces
    assert kept.hardware is not None
    assert record(None, None, [traces[0], traces[2]]).hardware is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_lanes_prompt_is_made_by_its_own_model_in_any_order(text_pair: ModelPair, order: tuple) -> None:
    """Guards a server's chat beside a model without a template, and a template beside a server's plain text."""
    bare = ModelPair(text_pair.target, text_pair.draft, byte_tokenizer(None))
    lanes = [REMOTE, replace(REMOTE, engine="auto")]
    with FakeVLLM(text_pair, DRAFTS) as fake:
        for pair, chat in ((bare, True), (text_pair, False)):
            pairs = [speculative(fake, chat=chat), pair]
            made = raced([pairs[n] for n in order], "hi", [lanes[n] for n in order])
            traces = [made[order.index(n)] for n in (0, 1)]
            assert [traces[0].server.chat, *(t.complete for t in traces)] == [chat, True, True]
            assert list(traces[1].prompt_ids) == encode(pair, "hi", chat=None)


UNFOLLOWED = {"strategy": "assisted", "drafter": "prompt_lookup", "acceptance": "naive", "adaptive_gamma": True}


@pytest.mark.parametrize(("field", "value"), [*UNFOLLOWED.items(), ("acceptance", "block"), ("engine", "graphs")])
def test_settings_that_a_server_cannot_follow_are_refused(field: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        specdemo.stream(ServerPair("http://x:1", "http://x:2", "m"), "Hello", replace(REMOTE, **{field: value}))
    assert caught.value.field == field


def test_prompts_that_cannot_be_sent_are_refused() -> None:
    for prompt in ("  ", [], [-1], [1, True], "\ud800", [1, 2]):
        with pytest.raises(PromptError):
            specdemo.stream(ServerPair("http://x:1", None, "m"), prompt, replace(PLAIN, chat=True))


def test_a_strategy_without_a_deployment_is_refused() -> None:
    for urls, settings, lacking in (
        ((None, "http://x"), PLAIN, "baseline"),
        (("http://x", None), REMOTE, "speculative"),
    ):
        with pytest.raises(ServerError, match=f"no {lacking}_url"):
            specdemo.stream(ServerPair(*urls, "m"), "Hello", settings)


def test_functions_that_need_the_models_refuse_a_server() -> None:
    pair, here = ServerPair("http://x:1", "http://x:2", "m"), toy_pair("llama")
    sampled = replace(REMOTE, temperature=1.0, acceptance="sampling")
    for function, *arguments in (
        (specdemo.run_batch, pair, ["a"], Settings()),
        (specdemo.run_batch, here, [PROMPT], REMOTE),
        (specdemo.certify, pair, "a", replace(sampled, engine="auto")),
        (specdemo.certify, here, PROMPT, sampled),
        (specdemo.batch_sizes, here, [PROMPT], REMOTE),
        (specdemo.check_greedy, pair, Trace(Settings(), (1,), ())),
        (specdemo.preflight, pair),
        (specdemo.sweep, pair, "a", REMOTE, [2, 3]),
        (specdemo.run, here, PROMPT, REMOTE),
    ):
        with pytest.raises((PairError, SettingsError)):
            function(*arguments)


@pytest.mark.parametrize("level", ["detailed", "summary"])
def test_a_sweep_over_prompts_has_one_row(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdemo.analysis.sweep_report.RESTLESS", inf)  # whatever else runs here
    pair, prompts = endless_pair("llama"), [prompt_ids(9), prompt_ids(17)]
    with FakeVLLM(pair, DRAFTS, level=level) as fake, FakeVLLM(pair) as base:
        report = specdemo.sweep(ServerPair(base.url, fake.url, "toy"), prompts, REMOTE, repeats=2)
    own = [specdemo.run(pair, p, Settings(gamma=4, max_new_tokens=24)).metrics() for p in prompts]
    (row,) = report.rows
    assert report.complete
    assert (row.gamma, row.speedup is None, row.predicted_speedup) == (4, False, None)
    for name in ("rounds", "proposed", "accepted", "emitted"):
        assert getattr(row, name) == 2 * sum(getattr(m, name) for m in own), name
    assert "γ = 4" in report.recommendation
    assert json.loads(report.to_json())["rows"][0]["draft_cost"] is None
    assert ",," in report.to_csv()


def test_edited_traces_of_servers_are_refused() -> None:
    data = json.loads(run_once(toy_pair("llama")).to_json())
    first, *others = data["rounds"]
    timed = {"rounds": [first | {"draft_seconds": 0.1}, *others]}
    for change in (timed, {"server": None}, {"server": data["server"] | {"level": "most"}}):
        with pytest.raises(TraceError):
            Trace.from_json(json.dumps(data | change))
