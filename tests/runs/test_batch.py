"""Batches: every row is its own batch-1 run, and the figures of the whole are counted right."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import adversary, build, check_consistent, endless_pair, perturbed, prompt_ids, toy_pair, widened

import specdemo
from specdemo import (
    MemoryShortage,
    ModelPair,
    PairError,
    Settings,
    SettingsError,
    Trace,
    TraceError,
    run,
    run_batch,
)
from specdemo.analysis.batch_metrics import measure_batch
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.gamma import Costs
from specdemo.decoding.trials import check_batches
from specdemo.runs.load import warm_up

LENGTHS = (1, 200, 17, 40, 3, 90, 5, 60, 2, 33, 11, 150, 8, 25, 70, 4)
SAMPLING = [
    {"acceptance": "sampling", "temperature": 1.0},
    {"acceptance": "token_match", "temperature": 0.9, "top_k": 20},
    {"acceptance": "block", "temperature": 1.0, "top_p": 0.9},
    {"acceptance": "sampling", "temperature": 1.0, "drafter": "prompt_lookup"},
    {"acceptance": "naive", "temperature": 1.0, "repetition_penalty": 1.2},
    {"acceptance": "top_k", "temperature": 1.0, "accept_top_k": 3},
    {"acceptance": "typical", "temperature": 1.0},
    {"strategy": "autoregressive", "temperature": 1.0},
]


def prompts(count: int) -> list[tuple[int, ...]]:
    return [prompt_ids(length, seed=row) for row, length in enumerate(LENGTHS[:count])]


def check_rows_are_their_own_runs(pair: ModelPair, ids: list[tuple[int, ...]], traces: list[Trace]) -> None:
    assert len(traces) == len(ids)
    for prompt, trace in zip(ids, traces, strict=True):
        alone = run(pair, prompt, trace.settings)
        assert trace.token_ids == alone.token_ids
        assert trace.rounds[-1].stop == alone.rounds[-1].stop
        assert trace.prompt_ids == prompt


# --- ids for ids ------------------------------------------------------------------------------------------


@hypothesis.settings(max_examples=20)
@given(
    family=st.sampled_from(["llama", "qwen3", "gpt2", "gemma3", "mistral"]),
    noise=st.sampled_from([0.0, 0.01, 0.05, 1.0]),
    contrary=st.booleans(),
    method=st.sampled_from([{}, {}, {"strategy": "autoregressive"}, {"drafter": "prompt_lookup"}]),
    rows=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 16), st.integers(1, 24)), min_size=1, max_size=8),
)
def test_every_greedy_row_is_its_own_run(
    family: str, noise: float, contrary: bool, method: dict[str, str], rows: list[tuple[int, int, int]]
) -> None:
    """Guards positions, masks and caches: every mixture of lengths, γ and ends, with drafts right or wrong."""
    target = build(family, layers=2)
    draft = adversary(target) if contrary and not target.config.tie_word_embeddings else perturbed(target, noise)
    pair = ModelPair(target, draft)
    ids = [prompt_ids(length, seed=row) for row, (length, _, _) in enumerate(rows)]
    settings = [Settings(gamma=gamma, max_new_tokens=count, **method) for _, gamma, count in rows]
    traces = run_batch(pair, ids, settings)
    check_rows_are_their_own_runs(pair, ids, traces)
    assert [t.settings for t in traces] == settings
    for trace in traces:
        check_consistent(trace)


@pytest.mark.parametrize("options", SAMPLING, ids=lambda o: "-".join(map(str, o.values())))
def test_a_sampled_row_does_not_depend_on_its_neighbours(options: dict[str, object]) -> None:
    """Guards the draws: the same seed gives the same tokens alone, in company, and as batch of one."""
    pair, ids = endless_pair("llama"), prompts(6)
    traces = run_batch(pair, ids, Settings(gamma=4, max_new_tokens=30, seed=11, **options))
    assert [t.settings.seed for t in traces] == list(range(11, 17))
    check_rows_are_their_own_runs(pair, ids, traces)
    last = run_batch(pair, ids[-1:], traces[-1].settings)[0]
    assert last.token_ids == traces[-1].token_ids


def test_adaptive_rows_choose_for_themselves_and_stay_exact() -> None:
    """Guards γ that differs from row to row; the costs are made up, since measured ones differ from day to day."""
    pair, ids = endless_pair("llama"), prompts(5)
    plain = run_batch(pair, ids, Settings(strategy="autoregressive", max_new_tokens=60))
    with patch.object(Costs, "of", lambda _, gamma: 1 + 0.05 * gamma):
        traces = run_batch(pair, ids, Settings(adaptive_gamma=True, gamma=3, max_new_tokens=60))
    assert [t.token_ids for t in traces] == [t.token_ids for t in plain]
    steps = zip(*(t.rounds[1:] for t in traces), strict=False)
    assert sum(len({r.drafted for r in step}) > 1 for step in steps) > 5


def test_padding_and_end_tokens_inside_a_prompt_are_tokens_like_others() -> None:
    """Guards masks that are guessed from the pad id; here it is an end token as well."""
    target = build("llama", eos=[0, 11])
    pair = ModelPair(target, perturbed(target))
    ids = [(0, 0, 20, 0), (11, 0), (0,) * 30, (20, 21, 22, 0, 0, 0)]
    check_rows_are_their_own_runs(pair, ids, run_batch(pair, ids, Settings(gamma=3, max_new_tokens=20)))


@pytest.mark.parametrize("widths", [(80, 64), (64, 80)])
def test_models_of_unequal_widths(widths: tuple[int, int]) -> None:
    """Guards ids that only one of the models has an embedding for."""
    target = build("llama", eos=None)
    pair = ModelPair(widened(target, widths[0], factor=3.0), widened(perturbed(target), widths[1], factor=3.0))
    ids = prompts(4)
    for options in ({}, {"acceptance": "sampling", "temperature": 1.0}):
        check_rows_are_their_own_runs(
            pair, ids, run_batch(pair, ids, Settings(gamma=4, max_new_tokens=25, **options))
        )


def test_rows_end_at_the_context() -> None:
    """Guards learned positions: a row near the end must not be fed past it, nor stop the others."""
    target = build("gpt2", context=48, eos=None)
    pair = ModelPair(target, perturbed(target))
    ids = [prompt_ids(46), prompt_ids(3), prompt_ids(30)]
    traces = run_batch(pair, ids, Settings(gamma=8, max_new_tokens=40))
    assert [t.rounds[-1].stop for t in traces] == ["context", "length", "context"]
    check_rows_are_their_own_runs(pair, ids, traces)


# --- what a batch costs -----------------------------------------------------------------------------------


def test_memory_follows_live_tokens_and_not_rounds() -> None:
    """Guards holes: after a hundred rounds that keep one token each, there are as many slots as tokens."""
    target = build("llama", eos=None, context=2048)
    pair = ModelPair(target, adversary(target))
    held: list[int] = []
    original = RaggedRunner.rollback_to

    def watched(self: RaggedRunner, lengths: list[int]) -> None:
        original(self, lengths)
        if self.model is target:
            held.append(sum(store.nbytes for store in self.cache.stores.values()) / sum(lengths))

    with patch.object(RaggedRunner, "rollback_to", watched):
        run_batch(pair, [prompt_ids(8), prompt_ids(10, seed=1)], Settings(gamma=8, max_new_tokens=101))
    assert len(held) == 100
    token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, width, bytes
    assert all(bytes_ <= 3 * token for bytes_ in held[20:])
    assert held[-1] <= 1.5 * token


def test_a_closed_batch_leaves_no_cache_behind() -> None:
    """Guards a visitor who leaves: what the generator held is gone with it."""
    pair = endless_pair("llama")
    rounds = specdemo.stream_batch(pair, prompts(3), Settings(gamma=3, max_new_tokens=50))
    for _ in range(9):
        next(rounds)
    rounds.close()
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is RaggedRunner]


def test_figures_of_a_batch_are_those_of_its_rows() -> None:
    """Guards the sums, and the time: rows share a clock, so seconds are not added up."""
    traces = run_batch(toy_pair("llama"), prompts(5), Settings(gamma=4, max_new_tokens=40))
    figures, rows = measure_batch(traces), [t.metrics() for t in traces]
    assert figures.emitted == sum(m.emitted for m in rows)
    assert (figures.proposed, figures.accepted) == (sum(m.proposed for m in rows), sum(m.accepted for m in rows))
    assert figures.forwards == max(m.rounds for m in rows)
    assert figures.mean_rows == sum(m.rounds for m in rows) / figures.forwards
    assert figures.seconds == max(m.seconds for m in rows)
    assert figures.tokens_per_second == figures.emitted / (figures.seconds - figures.ttft)
    phases = figures.draft_seconds + figures.verify_seconds + figures.other_seconds
    assert phases == pytest.approx(figures.seconds - figures.ttft)


@pytest.mark.parametrize(
    ("mixed", "message"),
    [
        (lambda a, b: [], "A batch is a list of traces"),
        (lambda a, b: None, "A batch is a list of traces"),
        (lambda a, b: a[0], "A batch is a list of traces"),
        (lambda a, b: ["x"], "A batch is a list of traces"),
        (lambda a, b: [replace(a[0], rounds=())], "with at least one round each"),
        (lambda a, b: [a[0], b[1]], "their strategies differ"),
        (lambda a, b: [a[0], run(toy_pair("llama"), prompt_ids(9), a[0].settings)], "their clocks differ"),
    ],
)
def test_what_is_no_batch_is_not_measured_as_one(
    mixed: Callable[[list[Trace], list[Trace]], object], message: str
) -> None:
    """Guards figures that would be of nothing: runs one after the other share no clock."""
    drafted = run_batch(toy_pair("llama"), prompts(2), Settings(max_new_tokens=9))
    plain = run_batch(toy_pair("llama"), prompts(2), Settings(strategy="autoregressive", max_new_tokens=9))
    with pytest.raises(TraceError, match=message):
        measure_batch(mixed(drafted, plain))
    assert measure_batch(t for t in drafted) == measure_batch(drafted)


# --- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (Settings(strategy="assisted"), "strategy"),
        (Settings(drafter="early_exit"), "drafter"),
        ([], "settings"),
        ([Settings()], "settings"),
        ([Settings(), Settings(strategy="autoregressive")], "strategy"),
        ([Settings(), "speculative"], "settings"),
        ([Settings(), None], "settings"),
        ("speculative", "settings"),
    ],
)
def test_what_a_batch_cannot_do_is_said_before_it_runs(settings: object, field: str) -> None:
    """Guards clear refusals: at once, naming the field."""
    with pytest.raises(SettingsError) as caught:
        specdemo.stream_batch(toy_pair("llama"), prompts(2), settings)
    assert caught.value.field == field


def test_a_target_alone_cannot_draft_but_runs_plain() -> None:
    pair = ModelPair(toy_pair("llama").target)
    with pytest.raises(
        SettingsError, match=r"drafter: 'model' needs a draft model.*; choose 'prompt_lookup' or 'suffix'\.$"
    ):
        run_batch(pair, prompts(2))
    assert len(run_batch(pair, prompts(2), Settings(strategy="autoregressive", max_new_tokens=3))) == 2


@pytest.mark.parametrize("who", [0, 1])
def test_a_model_that_computes_no_numbers_ends_the_batch_with_a_sentence(who: int) -> None:
    """Guards the trial too: a comparison with NaN is neither smaller nor larger."""
    models = [copy.deepcopy(model) for model in endless_pair("llama").models]
    with torch.no_grad():
        models[who].lm_head.weight[20] = math.nan
    with pytest.raises(PairError, match=f"^{('target', 'draft')[who]}: its logits are not finite"):
        run_batch(ModelPair(*models, None), [prompt_ids(9), prompt_ids(4)], Settings(max_new_tokens=8))


def test_memory_that_runs_out_is_told_with_the_number_of_rows() -> None:
    """Guards the message; other errors of the models stay what they are."""
    for error, expected in (
        (torch.OutOfMemoryError("CUDA out of memory"), MemoryShortage),
        (RuntimeError("shapes"), RuntimeError),
    ):
        pair = ModelPair(build("llama"), build("llama", seed=1))
        warm_up(pair)
        check_batches(pair, drafting=True)
        with patch.object(pair.target, "forward", side_effect=error), pytest.raises(expected) as caught:
            run_batch(pair, prompts(3))
    assert type(caught.value) is RuntimeError
    with (
        patch.object(pair.target, "forward", side_effect=MemoryError()),
        pytest.raises(MemoryShortage, match=r"memory: it ran out with 3 rows; decode fewer prompts"),
    ):
        run_batch(pair, prompts(3))
