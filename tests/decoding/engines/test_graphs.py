"""Decoding by graphs, with a tape in the place of a CUDA graph: eager's tokens, and eager where it fails."""

from __future__ import annotations

import gc

import pytest
import torch
from llama_models import CASES, model_of
from tape import Taped
from toys import build, endless_pair, generate, perturbed, prompt_ids, raced, widened

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding.engines import graph_capture, graph_pool, graph_workspace
from specdemo.decoding.engines.eager import Runner
from specdemo.decoding.engines.graph_pool import Graphs, graphs_of
from specdemo.decoding.engines.graph_runner import StaticRunner
from specdemo.decoding.engines.open import engine_of
from specdemo.runs.single import stream, trace_of

PLAIN = Settings(strategy="autoregressive", max_new_tokens=40, engine="graphs")


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[Taped]:
    """Lanes on a CPU capture on tapes; all seats of a test are new, and short stages are crossed early."""
    made: list[Taped] = []

    def tape(device: torch.device) -> Taped:
        made.append(Taped())
        return made[-1]

    monkeypatch.setattr(graph_capture, "capture_on", tape)
    monkeypatch.setattr(graph_capture, "can_capture", lambda device: True)
    monkeypatch.setattr(graph_pool, "_of_models", type(graph_pool._of_models)())
    monkeypatch.setattr(graph_workspace, "FIRST_SEEN", 16)
    monkeypatch.setattr(graph_pool, "ROOM_STEP", 8)
    return made


def plain_pair(family: str, eos: int | None = None) -> ModelPair:
    """Toy models that the direct arithmetic knows: no window."""
    if family == "mistral":
        target = model_of("mistral", "grouped")
        return ModelPair(target, perturbed(target), None)
    return endless_pair(family)


def opened(model: torch.nn.Module, room: int = 64, counts: tuple[int, ...] = (1, 5)) -> StaticRunner:
    return StaticRunner(model, graphs_of(model).take(model, room), counts)


# --- the arithmetic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "shape"), CASES)
def test_logits_equal_eagers_after_any_feeding_and_rollback(family: str, shape: str, tapes: list[Taped]) -> None:
    """Guards masks, stages, padding and every kind of layer; stale slots are full of other tokens."""
    model = model_of(family, shape)
    ours, theirs = opened(model), Runner(model, engine="eager")
    generator = torch.Generator().manual_seed(0)
    moves = [(7, 0), (1, 0), (5, 4), (3, 1), (4, 0), (1, 1), (5, 0), (2, 2), (5, 0), (12, 9), (5, 0), (5, 0)]
    for feed, surplus in moves:
        ids = torch.randint(4, 64, (feed,), generator=generator).tolist()
        got, expected = (runner.forward(ids, keep=feed) for runner in (ours, theirs))
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
        for runner in (ours, theirs):
            runner.rollback_to(runner.length - surplus)
    assert ours.length > 32, "several stages must be crossed"
    assert tapes[0].replayed > len(moves) - 2


def test_half_of_a_feed_may_already_be_on_the_device(tapes: list[Taped]) -> None:
    """Guards the verify, whose drafted tokens no longer pass through the host."""
    model = endless_pair("llama").target
    ours, theirs = opened(model), Runner(model, engine="eager")
    for runner in (ours, theirs):
        runner.forward(prompt_ids(9), keep=0)
    drafted = torch.tensor([21, 22, 23])
    got, expected = (runner.forward([20], 4, drafted) for runner in (ours, theirs))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert ours.length == theirs.length == 13


def test_what_was_returned_is_not_changed_by_the_next_replay(tapes: list[Taped]) -> None:
    """Guards against handing out the memory that all replays write to."""
    runner = opened(endless_pair("llama").target)
    runner.forward(prompt_ids(9))
    first = runner.forward([20])
    copy = first.clone()
    runner.forward([30])
    assert torch.equal(first, copy)


def test_a_write_behind_the_last_slot_is_refused(tapes: list[Taped]) -> None:
    """Guards the process: on a GPU such a write ends every use of it."""
    runner = opened(endless_pair("llama").target, room=16)
    with pytest.raises(ValueError, match="no room"):
        runner.forward(prompt_ids(17))
    runner.forward(prompt_ids(13))
    with pytest.raises(ValueError, match="no room"):
        runner.forward([20, 21])
    assert runner.length == 13
    for length in (14, -1):
        with pytest.raises(ValueError, match="roll back"):
            runner.rollback_to(length)


def test_an_id_beyond_a_narrow_drafts_embeddings_is_taken_for_the_last(tapes: list[Taped]) -> None:
    model = endless_pair("llama").target
    for ids in ([20, 99], [99]):
        ours, theirs = opened(model), Runner(model, engine="eager")
        for runner in (ours, theirs):
            runner.forward(prompt_ids(5), keep=0)
        torch.testing.assert_close(ours.forward(ids), theirs.forward(ids), atol=1e-5, rtol=1e-5)


def test_noise_gives_the_very_draws_of_multinomial() -> None:
    """Guards equal outputs for equal seeds: a graph cannot call multinomial, which asks the device."""
    for width in (64, 1000, 50257):
        room = graph_workspace.DraftRoom(width, width, torch.device("cpu"))
        generators = [torch.Generator().manual_seed(5) for _ in range(2)]
        for _ in range(10):
            p = torch.softmax(torch.randn(3, width), -1)
            room.draw(3, generators[0])
            ours = (p / room.noise[:3]).argmax(-1)
            theirs = [torch.multinomial(row.unsqueeze(0), 1, generator=generators[1]) for row in p]
            assert ours.tolist() == torch.cat(theirs).flatten().tolist()


# --- lanes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("gamma", [1, 2, 4, 8])
def test_greedy_ids_equal_generates(family: str, gamma: int, tapes: list[Taped]) -> None:
    """Guards the whole round: the draft's chain of tokens, the verify, both rollbacks, and several stages."""
    pair = plain_pair(family)
    expected = generate(pair.target, prompt_ids(9), 40)
    settings = Settings(gamma=gamma, max_new_tokens=40, engine="graphs")
    trace = specdemo.run(pair, prompt_ids(9), settings)
    assert trace.token_ids == expected
    eager = specdemo.run(pair, prompt_ids(9), Settings(gamma=gamma, max_new_tokens=40, engine="eager"))
    assert [(r.drafted, r.accepted) for r in trace] == [(r.drafted, r.accepted) for r in eager]
    assert (trace.engine, eager.engine) == ("graphs", "eager")
    # A round is one replay of each model; everything was captured before the first.
    rounds = len(trace.rounds) - 1
    assert sorted(tape.replayed for tape in tapes) == [rounds - (trace.rounds[-1].drafted == 0), rounds]


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 30])
@pytest.mark.parametrize("budget", [1, 2, 3, 17])
def test_prompts_and_budgets_at_the_edges_of_stages(length: int, budget: int, tapes: list[Taped]) -> None:
    """Guards room and stages off by one; a budget may end a lane in the middle of a block."""
    pair = endless_pair("llama")
    settings = Settings(gamma=5, max_new_tokens=budget, engine="graphs")
    trace = specdemo.run(pair, prompt_ids(length), settings)
    assert trace.token_ids == generate(pair.target, prompt_ids(length), budget)
    assert trace.rounds[-1].stop == "length"


def test_an_end_token_in_the_middle_of_a_block_ends_the_lane(tapes: list[Taped]) -> None:
    target = build("llama", eos=None)
    ids = generate(target, prompt_ids(9), 40)
    ended = build("llama", eos=[ids[17]])
    first = ids.index(ids[17])
    trace = specdemo.run(
        ModelPair(ended, perturbed(ended, 0.001), None), prompt_ids(9), Settings(gamma=7, engine="graphs")
    )
    assert trace.token_ids == ids[: first + 1]
    assert trace.rounds[-1].stop == "eos"


OTHERS = [
    {"strategy": "autoregressive"},
    {"drafter": "prompt_lookup", "lookup_ngram": 1},
    {"drafter": "early_exit", "exit_layer": 1},
    {"adaptive_gamma": True},
    {"repetition_penalty": 1.3},
    {"acceptance": "top_k", "accept_top_k": 3},
    {"repetition_penalty": 1.3, "drafter": "early_exit", "exit_layer": 1},
]


@pytest.mark.parametrize("options", OTHERS, ids=str)
def test_every_way_to_decode_gives_eagers_tokens(options: dict[str, object], tapes: list[Taped]) -> None:
    """Guards the drafters that have no whole draft, feeds of every width, and shared slots of an early exit."""
    pair = endless_pair("qwen2")
    settings = Settings(**options, gamma=4, max_new_tokens=40, engine="graphs")
    trace = specdemo.run(pair, prompt_ids(9), settings)
    eager = specdemo.run(pair, prompt_ids(9), Settings(**options, gamma=4, max_new_tokens=40, engine="eager"))
    assert trace.token_ids == eager.token_ids
    assert trace.engine == "graphs"
    assert sum(tape.replayed for tape in tapes) > 10


SAMPLED = [
    {"acceptance": "sampling"},
    {"acceptance": "block", "top_k": 20},
    {"acceptance": "token_match", "top_p": 0.9},
    {"acceptance": "sampling", "temperature": 0.7, "top_k": 30, "top_p": 0.95},
    {"acceptance": "sampling", "drafter": "early_exit", "exit_layer": 1},
]


@pytest.mark.parametrize("options", SAMPLED, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_draws_the_tokens_that_it_draws_eagerly(
    options: dict[str, object], seed: int, tapes: list[Taped]
) -> None:
    """Guards the order of draws: noise for a draft of γ is made before it, and not for tokens that are dropped."""
    pair = endless_pair("qwen3")
    both = {"gamma": 4, "seed": seed, "max_new_tokens": 40, **{"temperature": 1.0, **options}}
    traces = [specdemo.run(pair, prompt_ids(9), Settings(**both, engine=e)) for e in ("graphs", "eager")]
    assert traces[0].token_ids == traces[1].token_ids
    for ours, theirs in zip(traces[0].tokens, traces[1].tokens, strict=True):
        assert (ours.id, ours.kind) == (theirs.id, theirs.kind)
        assert (ours.q is None) == (theirs.q is None)
        assert (ours.q or 0.0) == pytest.approx(theirs.q or 0.0, rel=1e-3, abs=1e-6)
        assert ours.p == pytest.approx(theirs.p, rel=1e-3, abs=1e-6)


def test_a_draft_of_another_width_is_padded_as_eagerly(tapes: list[Taped]) -> None:
    """Guards noise and q, which are as wide as the target, from a draft that is narrower or wider."""
    target = endless_pair("llama").target
    for vocabulary in (64, 80):
        pair = ModelPair(widened(target, 72), widened(perturbed(target), vocabulary), None)
        settings = {"acceptance": "sampling", "temperature": 1.0, "gamma": 3, "max_new_tokens": 30}
        traces = [specdemo.run(pair, prompt_ids(9), Settings(**settings, engine=e)) for e in ("graphs", "eager")]
        assert traces[0].token_ids == traces[1].token_ids
        assert traces[0].engine == "graphs"


def test_lanes_of_one_race_do_not_touch_each_others_slots(tapes: list[Taped]) -> None:
    """Guards what stays in place: four lanes take turns on the same two models."""
    pair = endless_pair("llama")
    options = [{"strategy": "autoregressive"}, {"gamma": 3}, {"gamma": 6}, {"gamma": 3, "temperature": 1.0}]
    lanes = [Settings(**{"acceptance": "sampling", **o}, max_new_tokens=40, engine="graphs") for o in options]
    ids = list(prompt_ids(9))
    alone = [specdemo.run(pair, ids, settings) for settings in lanes]
    assert len(tapes) == 2, "one seat at each model, for one lane after the other"
    streams = [stream(pair, ids, s) for s in lanes]
    rounds: list[list[specdemo.Round]] = [[] for _ in lanes]
    while any(not r or r[-1].stop is None for r in rounds):
        for number, lane in enumerate(streams):  # a round each, whatever their clocks say
            rounds[number] += [r for r in [next(lane, None)] if r is not None]
    together = [trace_of(pair, ids, s, r) for s, r in zip(lanes, rounds, strict=True)]
    assert len(tapes) == 7, "a seat at every model for every lane"
    assert [t.token_ids for t in together] == [t.token_ids for t in alone]
    assert [t.token_ids for t in together[:3]] == [generate(pair.target, ids, 40)] * 3


# --- seats ----------------------------------------------------------------------------------------------------


def test_the_next_lane_takes_the_seat_and_captures_nothing(tapes: list[Taped]) -> None:
    """Guards the time before a lane, and what an earlier lane left in the slots."""
    pair = endless_pair("llama")
    settings = Settings(gamma=4, max_new_tokens=40, engine="graphs")
    expected = [generate(pair.target, prompt_ids(n), 40) for n in (12, 9, 3)]
    found, captured = [], []
    for length in (12, 9, 3):
        found.append(specdemo.run(pair, prompt_ids(length), settings).token_ids)
        captured.append([tape.captured for tape in tapes])
    assert found == expected
    # Stages of 32 and 64 slots; one of 16 for the draft, whose first ends in slot 16, and for shorter prompts.
    assert captured == [[2, 3], [3, 3], [3, 3]]


def test_waiting_seats_are_few_and_go_with_their_model(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the GPU's memory against every room that any lane ever had."""
    model = build("llama")
    kept = graphs_of(model)
    leases = [kept.take(model, 8) for _ in range(graph_pool.MOST_IDLE + 2)]
    assert len({id(lease.seat) for lease in leases}) == len(leases)
    del leases
    assert len(kept._idle) == graph_pool.MOST_IDLE
    monkeypatch.setattr(graph_pool, "MOST_IDLE_BYTES", kept._idle[0].slots.held)
    kept.take(model, 8)
    assert len(kept._idle) == 1
    del model, kept
    gc.collect()
    assert len(graph_pool._of_models) == 0


def test_a_stopped_lane_leaves_its_seat(tapes: list[Taped]) -> None:
    pair = endless_pair("llama")
    rounds = specdemo.stream(pair, prompt_ids(9), PLAIN)
    next(rounds)
    assert graphs_of(pair.target)._idle == []
    rounds.close()
    gc.collect()
    assert len(graphs_of(pair.target)._idle) == 1


def test_other_weights_get_new_seats(tapes: list[Taped]) -> None:
    """Guards against replays over memory that the weights have left; a change in place is read as it is."""
    target = build("llama", eos=None)
    pair = ModelPair(target, None, None)
    specdemo.run(pair, prompt_ids(9), PLAIN)
    with torch.no_grad():
        target.model.layers[0].mlp.down_proj.weight.mul_(-1)
    assert specdemo.run(pair, prompt_ids(9), PLAIN).token_ids == generate(target, prompt_ids(9), 40)
    assert len(tapes) == 1
    target.lm_head.weight = torch.nn.Parameter(-target.lm_head.weight.detach())
    assert specdemo.run(pair, prompt_ids(9), PLAIN).token_ids == generate(target, prompt_ids(9), 40)
    assert len(tapes) == 2


def test_forwards_used_longest_ago_are_let_go(tapes: list[Taped], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the memory of a sweep over every γ, and that what is captured anew goes on from what is there."""
    monkeypatch.setattr(graph_workspace, "MOST_CAPTURED", 1)
    pair = endless_pair("llama")
    trace = specdemo.run(pair, prompt_ids(9), Settings(gamma=3, max_new_tokens=40, engine="graphs"))
    assert trace.token_ids == generate(pair.target, prompt_ids(9), 40)
    assert all(len(s._captured) == 1 for m in (pair.target, pair.draft) for s in graphs_of(m)._idle)


# --- falling back ---------------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, *fails: int) -> None:
    monkeypatch.setattr(graph_capture, "capture_on", lambda device: Taped(fails))


def test_a_capture_that_fails_leaves_the_model_to_eager_and_says_so(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a driver or a library that cannot: the output is the same, and nothing is tried twice."""
    failing(monkeypatch, 0)
    pair = endless_pair("llama")
    settings = Settings(strategy="autoregressive", max_new_tokens=20, engine="graphs")
    for _ in range(2):
        trace = specdemo.run(pair, prompt_ids(9), settings)
        assert trace.token_ids == generate(pair.target, prompt_ids(9), 20)
        assert trace.engine == (
            "eager: a graph could not be captured (RuntimeError: CUDA error: operation failed due to a previous "
            "error during capture)"
        )
    assert graphs_of(pair.target)._idle == []
    assert specdemo.Trace.from_json(trace.to_json()).engine == trace.engine


def test_a_draft_that_cannot_be_captured_whole_is_drafted_step_by_step(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards samplers with an operation that cannot be captured: the layers still can."""
    monkeypatch.setattr(
        graph_capture, "capture_on", lambda device: tapes.append(Taped((0,) if tapes else ())) or tapes[-1]
    )
    pair = endless_pair("llama")
    settings = Settings(gamma=4, temperature=1.0, acceptance="sampling", max_new_tokens=30, engine="graphs")
    first = specdemo.run(pair, prompt_ids(9), settings)
    eager = specdemo.run(
        pair, prompt_ids(9), Settings(gamma=4, temperature=1.0, acceptance="sampling", max_new_tokens=30)
    )
    assert first.engine.startswith("target graphs, draft graphs: drafting step by step (RuntimeError")
    assert first.token_ids == eager.token_ids
    assert tapes[1].replayed > tapes[0].replayed


def test_a_capture_that_fails_on_the_way_does_not_end_the_lane(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a lane that must capture anew what was let go: it goes on uncaptured, the next lane eagerly."""
    failing(monkeypatch, *range(4, 99))
    monkeypatch.setattr(graph_workspace, "MOST_CAPTURED", 1)
    pair = endless_pair("llama")
    settings = Settings(drafter="prompt_lookup", lookup_ngram=1, gamma=3, max_new_tokens=40, engine="graphs")
    trace = specdemo.run(pair, prompt_ids(9), settings)
    assert trace.token_ids == generate(pair.target, prompt_ids(9), 40)
    gc.collect()
    assert engine_of(pair, settings).startswith("eager: a graph could not be captured")


def test_no_memory_for_the_longest_text_is_told_too(tapes: list[Taped], monkeypatch: pytest.MonkeyPatch) -> None:
    def take(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB.")

    monkeypatch.setattr(Graphs, "take", take)
    trace = specdemo.run(endless_pair("llama"), prompt_ids(9), PLAIN)
    assert trace.token_ids == generate(endless_pair("llama").target, prompt_ids(9), 40)
    assert trace.engine == "eager: a graph could not be captured (no room for 49 tokens: OutOfMemoryError)"


@pytest.mark.parametrize(
    ("settings", "engine"),
    [
        ({}, "direct"),
        ({"engine": "eager"}, "eager"),
        ({"engine": "graphs"}, "eager: graphs need a CUDA device"),
        ({"engine": "graphs", "strategy": "assisted"}, "eager: transformers decodes this lane itself"),
        ({"strategy": "assisted"}, "eager"),
        ({"drafter": "early_exit"}, "direct"),
    ],
    ids=str,
)
def test_the_engine_that_ran_is_on_record(settings: dict[str, object], engine: str) -> None:
    """Guards the record on a machine without a GPU, where asking for graphs must not fail."""
    trace = specdemo.run(endless_pair("llama"), prompt_ids(9), Settings(**settings, max_new_tokens=8))
    assert trace.engine == engine
    assert trace.token_ids == generate(endless_pair("llama").target, prompt_ids(9), 8)


def test_models_of_two_engines_are_named_apart() -> None:
    pair = ModelPair(endless_pair("llama").target, endless_pair("gpt2").draft, None)
    assert engine_of(pair, Settings()) == "target direct, draft eager"
    assert engine_of(pair, Settings(strategy="autoregressive")) == "direct"


def test_what_the_arithmetic_does_not_know_is_left_to_eager_with_the_reason(tapes: list[Taped]) -> None:
    trace = specdemo.run(endless_pair("gpt2"), prompt_ids(9), Settings(max_new_tokens=8, engine="graphs"))
    assert trace.engine == "eager: no direct forward for gpt2"
    assert tapes == []


def test_a_batch_says_that_it_has_no_graphs() -> None:
    ids = [prompt_ids(9), prompt_ids(4)]
    for engine, said in (("graphs", "eager: batches have no graphs"), ("auto", "eager")):
        traces = specdemo.run_batch(endless_pair("llama"), ids, Settings(max_new_tokens=8, engine=engine))
        assert [t.engine for t in traces] == [said, said]


def test_a_record_without_an_engine_is_read() -> None:
    """Guards recordings of earlier versions."""
    trace = raced(endless_pair("llama"), list(prompt_ids(9)), [Settings(max_new_tokens=8)])[0]
    text = trace.to_json().replace('"engine": "direct", ', "")
    assert specdemo.Trace.from_json(text).engine is None


def test_the_page_says_which_engine_ran_where_it_is_not_the_one_that_was_asked_for() -> None:
    """Guards a fallback that nobody sees; a lane of the usual engine says nothing."""
    from specdemo.runs.record import record
    from specdemo.view.race_value import replay_value

    pair, ids = endless_pair("llama"), list(prompt_ids(9))
    for engine, told in (("graphs", "eager: graphs need a CUDA device"), ("auto", None)):
        value = replay_value(
            record(pair, None, [specdemo.run(pair, ids, Settings(max_new_tokens=8, engine=engine))])
        )
        row = next((row["values"] for row in value["figures"] if row["label"] == "engine"), None)
        assert row == (None if told is None else [told])
        assert value["lanes"][0]["detail"] == "γ 5, exact" + ("" if told is None else f", {told}")
