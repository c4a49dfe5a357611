"""One model, its cache and its rollback: the cache always holds what a fresh forward would have seen."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import FIRST_PLAIN, build, endless_pair, generate, perturbed, prompt_ids
from transformers import DynamicCache

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding.engines.eager import EagerRunner, Forward, evaluating
from specdemo.decoding.engines.kv_cache import FIRST_CAPACITY, LaneCache

ATTENTIONS = [("gemma2", "eager"), ("gpt2", "eager"), ("llama", "eager"), ("gpt2", "sdpa"), ("gemma3", "sdpa")]
MOVES = st.lists(
    st.tuples(st.lists(st.integers(FIRST_PLAIN, 63), min_size=1, max_size=9), st.integers(0, 12)),
    min_size=1,
    max_size=8,
)
"""Tokens fed, then how many are taken back."""


@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_logits_equal_those_of_transformers_own_cache(family: str, attention: str) -> None:
    """Guards what is read after any feeding and rollback, windows (8 tokens here) and groups included."""
    model = build(family, layers=3)
    model.set_attn_implementation(attention)
    forward = Forward(model)

    @given(MOVES)
    def check(moves: list[tuple[list[int], int]]) -> None:
        ours, theirs = LaneCache(), DynamicCache()
        for feed, surplus in moves:
            tokens = torch.tensor([feed])
            got, expected = (forward(tokens, cache, len(feed))[0] for cache in (ours, theirs))
            torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)
            surplus = min(surplus, theirs.get_seq_length() - 1)
            for layer in (*ours.layers, *theirs.layers) if surplus else ():
                layer.crop(-surplus)
            assert ours.get_seq_length() == theirs.get_seq_length()

    check()


@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_growing_past_the_capacity_keeps_every_token_and_moves_it_a_few_times(engine: str) -> None:
    """Guards the cost of a token, which must not grow with the text, and what is read after a move."""
    model = build("llama", context=1024)
    grown, whole, capacities = EagerRunner(model, engine=engine), EagerRunner(model, engine=engine), []
    ids = list(prompt_ids(3 * FIRST_CAPACITY))
    for begin in range(0, len(ids), 7):
        logits = grown.forward(ids[begin : begin + 7]).logits
        capacities.append(grown._cache.layers[0].keys.shape[2])
    torch.testing.assert_close(logits, whole.forward(ids).logits, atol=1e-5, rtol=1e-5)
    assert sorted(set(capacities)) == [128, 256, 512]


@pytest.mark.parametrize(("engine", "feed"), [("direct", 1), ("direct", 5), ("eager", 1)])
def test_a_step_copies_none_of_the_context(engine: str, feed: int) -> None:
    """Guards every copy of all keys, by the largest tensor that any operation of a step makes.

    Not transformers' own code for several tokens: it repeats a group's keys for each of its queries.
    """
    model = build("llama", heads=4, hidden=64, context=4096)
    runner = EagerRunner(model, engine="auto" if engine == "direct" else engine)
    assert runner.engine == engine
    runner.forward([20] * 2000)
    runner.forward([20] * feed, keep=feed)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        runner.forward([20] * feed, keep=feed)
    keys_of_a_layer = 2000 * 2 * 16 * 4  # tokens, heads, numbers, bytes
    assert max(event.self_cpu_memory_usage for event in profile.events()) < keys_of_a_layer / 2


def fresh_logits(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """The next-token logits of one full forward without a cache."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("gamma", [1, 4])
def test_after_every_round_the_next_logits_equal_a_fresh_forward(
    family: str, gamma: int, runners: Callable[[], list]
) -> None:
    """Guards the rollback of both models: a cache one token long or short still gives plausible text."""
    # Narrower weights than elsewhere: wide ones amplify float32's rounding to 1e-5 itself on some CPUs.
    target = build(family, eos=None, scale=0.2)
    pair = ModelPair(target, perturbed(target))
    committed, counts = list(prompt_ids(11)), set()
    for round_ in specdemo.stream(pair, committed, Settings(gamma=gamma, max_new_tokens=24)):
        committed += [token.id for token in round_.emitted]
        counts.add(round_.accepted)
        assert runners()[0].length == len(committed) - 1, "the cache holds all committed tokens but the last"
        for runner, model in zip(runners(), pair.models, strict=True):
            held = runner.length
            assert held <= len(committed) - 1
            logits = runner.forward(committed[held:]).logits[0]
            torch.testing.assert_close(logits, fresh_logits(model, committed), atol=1e-5, rtol=0)
            runner.rollback_to(held)
    assert len(counts) > 1, "rounds must differ in how many tokens they keep"


def test_rollback_forgets_exactly_the_rest_and_refuses_what_is_not_there() -> None:
    """Guards the relative crop, against ``[:-0]`` and transformers' silent emptying of what is cropped too far."""
    for length in (0, 1, 3, 4):
        runner = EagerRunner(endless_pair("llama").target)
        runner.forward([20, 21, 22, 23])
        for wrong in (5, 99, -1):
            with pytest.raises(ValueError, match="roll back"):
                runner.rollback_to(wrong)
        runner.rollback_to(length)
        kept = [20, 21, 22, 23][:length]
        rows = runner.forward([30, 31, 32], keep=3).logits
        assert runner.length == length + 3
        for i, row in enumerate(rows):
            expected = fresh_logits(runner.model, [*kept, *[30, 31, 32][: i + 1]])
            torch.testing.assert_close(row, expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="of 7 tokens back"):
        runner._cache.layers[0].crop(-8)


def test_evaluating_restores_a_mixture_of_training_and_evaluation() -> None:
    """Guards layers that their owner had frozen or left in training mode, after an error too."""
    model = build("gpt2", dropout=0.5, eos=None)
    expected = generate(model, prompt_ids(5), 12)
    model.transformer.h[0].train()
    before = {name: module.training for name, module in model.named_modules()}
    for way in ({"strategy": "autoregressive"}, {"strategy": "assisted", "drafter": "prompt_lookup"}):
        settings = Settings(**way, max_new_tokens=12)
        assert specdemo.run(ModelPair(model), prompt_ids(5), settings).token_ids == expected
    with suppress(RuntimeError), evaluating(list(model.modules())):
        assert not any(module.training for module in model.modules())
        raise RuntimeError("halfway")
    assert {name: module.training for name, module in model.named_modules()} == before


@pytest.mark.parametrize("strategy", ["autoregressive", "speculative"])
def test_closing_a_stream_frees_its_caches(strategy: str, runners: Callable[[], list]) -> None:
    """Guards memory in a server: a stopped run must not keep its caches until the next one."""
    rounds = specdemo.stream(endless_pair("llama"), prompt_ids(9), Settings(strategy=strategy, gamma=3))
    next(rounds)
    next(rounds)
    assert all(runner is not None for runner in runners())
    rounds.close()
    gc.collect()
    assert len(runners()) >= 1
    assert all(runner is None for runner in runners())
