"""Decoding by graphs, with a tape in the place of a CUDA graph: eager's tokens, and eager where it fails."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from llama_models import CASES, model_of
from tape import OTHERS, SAMPLED, Taped
from toys import build, endless_pair, generate, perturbed, prompt_ids, widened

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding.engines import graph_capture, graph_pool, graph_workspace
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.graph_capture import Body, Replay
from specdemo.decoding.engines.graph_pool import Graphs, graphs_of
from specdemo.decoding.engines.graph_runner import GraphRunner
from specdemo.decoding.engines.graph_workspace import Failure, GraphWorkspace
from specdemo.decoding.engines.llama import LlamaModel
from specdemo.decoding.engines.open import choose

PLAIN = {"strategy": "autoregressive"}


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[Taped]:
    """Lanes on a CPU capture on tapes; all workspaces of a test are new, and the first KV buckets are small."""
    made: list[Taped] = []

    def tape(device: torch.device) -> Taped:
        made.append(Taped())
        return made[-1]

    monkeypatch.setattr(graph_capture, "capture_on", tape)
    monkeypatch.setattr(graph_capture, "can_capture", lambda device: True)
    monkeypatch.setattr(graph_pool, "_of_models", type(graph_pool._of_models)())
    monkeypatch.setattr(graph_workspace, "FIRST_KV_BUCKET", 16)
    monkeypatch.setattr(graph_pool, "CAPACITY_STEP", 8)
    return made


def opened(model: torch.nn.Module, capacity: int = 64) -> GraphRunner:
    return GraphRunner(model, graphs_of(model).take(model, capacity), (1, 5))


def by_graphs(pair: ModelPair, length: int = 9, **fields: object) -> specdemo.Trace:
    """A greedy run, which gives ``generate``'s ids whatever runs it in the end."""
    settings = Settings(**{"max_new_tokens": 40, "engine": "graphs", **fields})
    trace = specdemo.run(pair, prompt_ids(length), settings)
    assert trace.token_ids == generate(pair.target, prompt_ids(length), settings.max_new_tokens)
    return trace


def both(pair: ModelPair, **options: object) -> tuple[specdemo.Trace, specdemo.Trace]:
    """The same run by graphs and by transformers' modules."""
    settings = {"max_new_tokens": 40, **options}
    graphs, eager = (
        specdemo.run(pair, prompt_ids(9), Settings(**settings, engine=e)) for e in ("graphs", "eager")
    )
    assert graphs.token_ids == eager.token_ids
    assert (graphs.engine, eager.engine) == ("graphs", "eager"), "nothing may have fallen back"
    return graphs, eager


# --- the arithmetic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "shape"), CASES)
def test_logits_equal_eagers_after_any_feeding_and_rollback(family: str, shape: str, tapes: list[Taped]) -> None:
    """Guards masks, KV buckets, padding and every kind of layer; stale slots are full of other tokens."""
    model = model_of(family, shape)
    ours, theirs = opened(model), EagerRunner(model, engine="eager")
    moves = [(7, 0), (1, 0), (5, 4), (3, 1), (4, 0), (1, 1), (5, 0), (2, 2), (5, 0), (12, 9), (5, 0), (5, 0)]
    for seed, (feed, surplus) in enumerate(moves):
        ids = prompt_ids(feed, seed=seed)
        got, expected = (runner.forward(ids, keep=feed).logits for runner in (ours, theirs))
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
        for runner in (ours, theirs):
            runner.rollback_to(runner.length - surplus)
    assert ours.length > 32, "several KV buckets must be crossed"
    assert tapes[0].replayed == len(moves) - 2, "all but the prompt and what no capture takes"


def test_a_write_behind_the_last_slot_is_refused(tapes: list[Taped]) -> None:
    """Guards the process: on a GPU such a write ends every use of it. Replays hand out copies."""
    runner = opened(endless_pair("llama").target, capacity=16)
    with pytest.raises(ValueError, match="no room"):
        runner.forward(prompt_ids(17))
    runner.forward(prompt_ids(11))
    first = runner.forward([20]).logits
    copy = first.clone()
    runner.forward([30])
    assert torch.equal(first, copy)
    with pytest.raises(ValueError, match="no room"):
        runner.forward([20, 21])
    assert runner.length == 13
    for length in (14, -1):
        with pytest.raises(ValueError, match="roll back"):
            runner.rollback_to(length)


# --- lanes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("gamma", [1, 5])
def test_greedy_ids_equal_generates(family: str, gamma: int, tapes: list[Taped]) -> None:
    """Guards the whole round: the draft's chain of tokens, the verify, both rollbacks, and several KV buckets."""
    target = model_of(family, "grouped")
    trace, eager = both(ModelPair(target, perturbed(target)), gamma=gamma)
    assert trace.token_ids == generate(target, prompt_ids(9), 40)
    assert [(r.drafted, r.accepted) for r in trace] == [(r.drafted, r.accepted) for r in eager]
    # A round is one replay of the target, and of the draft one for each token; before the first everything was
    # captured, and replayed once to prove it.
    replayed = sorted(tape.replayed - tape.captured for tape in tapes)
    assert replayed == sorted([len(trace.rounds) - 1, sum(r.drafted for r in trace)])


@pytest.mark.parametrize("length", [1, 15, 16, 17])
def test_prompts_and_budgets_at_the_edges_of_kv_buckets(length: int, tapes: list[Taped]) -> None:
    """Guards capacities and KV buckets off by one; a budget may end a lane in the middle of a block."""
    pair = endless_pair("llama")
    for budget in (1, 2, 17):
        assert by_graphs(pair, length, gamma=5, max_new_tokens=budget).rounds[-1].stop == "length"


@pytest.mark.parametrize("options", OTHERS, ids=str)
def test_every_way_to_decode_gives_eagers_tokens(options: dict[str, object], tapes: list[Taped]) -> None:
    """Guards drafters that are not captured, feeds of every width, and slots that an early exit shares."""
    both(endless_pair("qwen2"), **options, gamma=4)
    assert sum(tape.replayed for tape in tapes) > 10


@pytest.mark.parametrize("options", SAMPLED, ids=str)
def test_a_seed_draws_the_tokens_that_it_draws_eagerly(options: dict[str, object], tapes: list[Taped]) -> None:
    """Guards the order of draws, and that p and q are the same."""
    traces = both(endless_pair("qwen3"), **{"gamma": 4, "seed": 1, "temperature": 1.0, **options})
    for ours, theirs in zip(traces[0].tokens, traces[1].tokens, strict=True):
        assert (ours.id, ours.kind, ours.q is None) == (theirs.id, theirs.kind, theirs.q is None)
        assert (ours.p, ours.q or 0.0) == pytest.approx((theirs.p, theirs.q or 0.0), rel=1e-3, abs=1e-6)


def test_a_draft_of_another_width_is_padded_as_eagerly(tapes: list[Taped]) -> None:
    """Guards q, which is as wide as the target, from a draft that is narrower or wider."""
    target = endless_pair("llama").target
    for vocabulary in (64, 80):
        pair = ModelPair(widened(target, 72), widened(perturbed(target), vocabulary), None)
        both(pair, acceptance="sampling", temperature=1.0, gamma=3, max_new_tokens=30)


def test_lanes_of_one_race_do_not_touch_each_others_slots(tapes: list[Taped]) -> None:
    """Guards what stays in place: four lanes take turns on the same two models."""
    pair = endless_pair("llama")
    options = [{"strategy": "autoregressive"}, {"gamma": 3}, {"gamma": 6}, {"gamma": 3, "temperature": 1.0}]
    lanes = [Settings(**{"acceptance": "sampling", **o}, max_new_tokens=40, engine="graphs") for o in options]
    ids = list(prompt_ids(9))
    alone = [specdemo.run(pair, ids, settings) for settings in lanes]
    assert len(tapes) == 2, "one workspace at each model, for one lane after the other"
    streams = [specdemo.stream(pair, ids, s) for s in lanes]
    while [round_ for lane in streams if (round_ := next(lane, None))]:  # one each, whatever their clocks say
        pass
    together = [lane.trace() for lane in streams]
    assert len(tapes) == 7, "a workspace at every model for every lane"
    assert [t.token_ids for t in together] == [t.token_ids for t in alone]
    assert [t.token_ids for t in together[:3]] == [generate(pair.target, ids, 40)] * 3


# --- workspaces -----------------------------------------------------------------------------------------------


def test_the_next_lane_takes_the_workspace_and_captures_nothing(tapes: list[Taped]) -> None:
    """Guards the time before a lane, and what an earlier lane left in the slots."""
    captured = []
    for length in (12, 9, 3):
        by_graphs(endless_pair("llama"), length, gamma=4)
        captured.append([tape.captured for tape in tapes])
    # KV buckets of 32 and 64 slots; of the draft, fed one or two tokens, and of shorter prompts one of 16 too.
    assert captured == [[2, 6], [3, 6], [3, 6]]


def test_idle_workspaces_are_few_and_go_with_their_model(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the GPU's memory against every workspace that any lane ever had."""
    model = build("llama")
    kept = graphs_of(model)
    leases = [kept.take(model, 8) for _ in range(graph_pool.MOST_IDLE + 2)]
    assert len({id(lease.workspace) for lease in leases}) == len(leases)
    assert kept._idle == []
    del leases  # as a stopped lane does
    assert len(kept._idle) == graph_pool.MOST_IDLE
    monkeypatch.setattr(graph_pool, "MOST_IDLE_BYTES", kept._idle[0].states.nbytes)
    kept.take(model, 8)
    assert len(kept._idle) == 1
    del model, kept
    gc.collect()
    assert len(graph_pool._of_models) == 0


def test_other_weights_get_new_workspaces(tapes: list[Taped]) -> None:
    """Guards against replays over memory that the weights have left; a change in place is read as it is."""
    target = build("llama", eos=None)
    by_graphs(ModelPair(target), **PLAIN)
    with torch.no_grad():
        target.model.layers[0].mlp.down_proj.weight.mul_(-1)
    by_graphs(ModelPair(target), **PLAIN)
    assert len(tapes) == 1
    target.lm_head.weight = torch.nn.Parameter(-target.lm_head.weight.detach())
    by_graphs(ModelPair(target), **PLAIN)
    assert len(tapes) == 2


def test_forwards_used_longest_ago_are_let_go(tapes: list[Taped], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the memory of a sweep over every γ, and that what is captured anew goes on from what is there."""
    monkeypatch.setattr(graph_workspace, "MOST_CAPTURED", 1)
    pair = endless_pair("llama")
    by_graphs(pair, gamma=3)
    assert all(len(s._captured) == 1 for m in pair.models for s in graphs_of(m)._idle)


def test_lanes_of_several_threads_share_one_models_workspaces(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards two first lanes opened at once: a second LlamaModel would orphan the workspaces of the first."""
    model, built, meeting = build("llama"), [], threading.Barrier(2)

    class Slow(LlamaModel):
        def __init__(self, model: torch.nn.Module) -> None:
            built.append(self)
            with suppress(threading.BrokenBarrierError):
                meeting.wait(0.3)  # for the other thread, if it gets here too
            super().__init__(model)

    monkeypatch.setattr(graph_pool, "LlamaModel", Slow)
    graphs, leases = Graphs(), []
    threads = [threading.Thread(target=lambda: leases.append(graphs.take(model, 8))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leases.clear()
    assert (len(built), len(graphs._idle)) == (1, 2)


def test_a_workspace_given_back_while_another_lane_fails_is_not_kept(tapes: list[Taped]) -> None:
    """Guards the GPU's memory: nobody takes a workspace of a model whose graphs failed."""
    model, graphs = build("llama"), Graphs()
    workspace = graphs.take(model, 8).workspace
    graphs._idle.clear()
    returning = threading.Thread(target=graphs.give_back, args=(workspace,))
    with graphs._lock:
        returning.start()
        returning.join(0.3)  # it waits for the lock, before or after it looked for failures
        graphs.fail(Failure("no reason", True))
    returning.join()
    assert graphs._idle == []


# --- falling back ---------------------------------------------------------------------------------------------


def test_a_capture_that_fails_leaves_the_model_to_eager_and_says_so(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a driver or a library that cannot: the output is the same, and nothing is tried twice."""
    monkeypatch.setattr(graph_capture, "capture_on", lambda device: Taped((0,)))
    pair = endless_pair("llama")
    for _ in range(2):
        trace = by_graphs(pair, **PLAIN)
        assert trace.engine == (
            "eager: graphs failed (RuntimeError: CUDA error: operation failed due to a previous "
            "error during capture)"
        )
    assert graphs_of(pair.target)._idle == []


def test_what_ran_a_lane_is_not_changed_by_what_fails_later(tapes: list[Taped]) -> None:
    """Guards the record: it is read from the runners when the lane ends."""
    pair = endless_pair("llama")
    lane = specdemo.stream(pair, prompt_ids(9), Settings(max_new_tokens=20, engine="graphs"))
    next(lane)
    graphs_of(pair.target).fail(Failure("in another lane", True))
    assert [round_.stop for round_ in lane][-1] == "length"
    assert lane.trace().engine == "graphs"
    assert choose(pair.target, "graphs") == ("eager", "graphs failed (in another lane)")


def test_a_capture_that_fails_on_the_way_does_not_end_the_lane(
    tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a lane that must capture anew what was let go: it goes on uncaptured, the next lane eagerly."""
    # Twelve before it begins, three KV buckets for each of one to four tokens, and again where each is proven.
    monkeypatch.setattr(graph_capture, "capture_on", lambda device: Taped(tuple(range(24, 99))))
    monkeypatch.setattr(graph_workspace, "MOST_CAPTURED", 1)
    for said in ("graphs: not all were captured (RuntimeError", "eager: graphs failed"):
        trace = by_graphs(endless_pair("llama"), drafter="prompt_lookup", lookup_ngram=1, gamma=3)
        assert trace.engine.startswith(said)


@pytest.mark.parametrize("where", [(Graphs, "take"), (Taped, "__call__")], ids=["slots", "capture"])
def test_a_lane_without_memory_runs_eagerly_and_the_next_by_graphs(
    where: tuple[type, str], tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a server on which one request was too long for the memory that was free at that moment."""

    def short(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB.")

    with monkeypatch.context() as patch:
        patch.setattr(*where, short)
        engine = by_graphs(endless_pair("llama"), **PLAIN).engine
    assert engine.startswith("eager: graphs failed (")
    assert "OutOfMemoryError" in engine
    assert by_graphs(endless_pair("llama"), **PLAIN).engine == "graphs"


class Stuck(Taped):
    """Its replays do nothing: what they should have computed is what the capture left."""

    def __call__(self, body: Body) -> Replay:
        super().__call__(body)
        return lambda: None


class Misplaced(GraphWorkspace):
    """Its slots count from the end."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.positions = self.positions.flip(0)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "replays do nothing": lambda patch: patch.setattr(graph_capture, "capture_on", lambda device: Stuck()),
    "tokens see those behind them": lambda patch: patch.setattr(
        GraphWorkspace, "_causal_mask", lambda self, slots, positions: torch.zeros(1, len(slots))
    ),
    "only what is replayed of a prompt is wrong": lambda patch: patch.setattr(
        graph_pool, "GraphWorkspace", Misplaced
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("fields", [{}, {"temperature": 1.0, "acceptance": "sampling"}], ids=str)
def test_graphs_that_compute_something_else_are_found_before_the_lane_begins(
    fault: str, fields: dict[str, object], tapes: list[Taped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards every GPU and driver on which nobody has run them: the lane is eager's, and says why."""
    FAULTS[fault](monkeypatch)
    pair = endless_pair("llama")
    settings = Settings(gamma=4, max_new_tokens=20, **fields)
    trace, eager = (specdemo.run(pair, prompt_ids(9), replace(settings, engine=e)) for e in ("graphs", "eager"))
    assert trace.token_ids == eager.token_ids
    assert trace.engine.startswith(("eager", "target eager"))
    assert "graphs failed (Disproved: logits of " in trace.engine


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


def test_models_of_two_engines_and_batches_are_named_for_what_ran(tapes: list[Taped]) -> None:
    pair = ModelPair(endless_pair("llama").target, endless_pair("gpt2").draft)
    graphs, eager = (Settings(max_new_tokens=8, engine=engine) for engine in ("graphs", "auto"))
    said = [specdemo.run(pair, prompt_ids(9), lane).engine for lane in (graphs, eager)]
    assert said == ["target graphs, draft eager: no direct forward for gpt2", "target direct, draft eager"]
    (batched,), (plain,) = (specdemo.run_batch(endless_pair("llama"), [prompt_ids(9)], s) for s in (graphs, eager))
    assert (batched.engine, plain.engine) == ("eager: batches have no graphs", "eager")


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
