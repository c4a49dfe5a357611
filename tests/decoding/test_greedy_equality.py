"""Temperature 0: the ids are those of transformers' own greedy decoding, whatever the draft says."""

from __future__ import annotations

import copy
import functools

import pytest
from toys import (
    EOS,
    FAMILIES,
    build,
    endless_pair,
    generate,
    perturbed,
    prompt_ids,
    scripted,
    toy_pair,
    widened,
)

import specdemo
from specdemo import ModelPair, Settings

LENGTHS = (1, 2, 17, 40)


@functools.cache
def reference(family: str, length: int, count: int) -> list[int]:
    return generate(toy_pair(family).target, prompt_ids(length), count)


@pytest.mark.parametrize("gamma", [1, 4, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_speculative_ids_equal_generate(family: str, gamma: int) -> None:
    """Guards the whole loop: rollback off by one, a missing bonus token, a block cut at the wrong place."""
    pair = toy_pair(family)
    for length in LENGTHS:
        for count in (64,) if length != 17 else sorted({1, 2, gamma, gamma + 1, 64}):
            trace = specdemo.run(pair, prompt_ids(length), Settings(gamma=gamma, max_new_tokens=count))
            expected = reference(family, length, count)
            assert trace.token_ids == expected, f"prompt of {length}, {count} new tokens"
            assert trace.rounds[-1].stop == ("eos" if expected[-1] in EOS else "length")


@pytest.mark.parametrize("family", FAMILIES)
def test_toy_pairs_accept_some_and_reject_some(family: str) -> None:
    """Guards the tests themselves: a draft that is always right or always wrong would show nothing."""
    pair = endless_pair(family)
    trace = specdemo.run(pair, prompt_ids(40), Settings(gamma=4, max_new_tokens=64))
    assert 0.1 < trace.metrics().acceptance_rate < 0.95
    assert len(set(trace.token_ids)) >= 8
    kinds = {token.kind for token in trace.tokens}
    assert kinds == {"target", "accepted", "rejected", "corrected", "bonus"}


@pytest.mark.parametrize("family", FAMILIES)
def test_autoregressive_ids_equal_generate(family: str) -> None:
    """Guards the baseline: every speed-up is measured against it, so it must be plain greedy decoding."""
    for length in LENGTHS:
        for count in (1, 2, 64):
            settings = Settings(strategy="autoregressive", max_new_tokens=count)
            trace = specdemo.run(toy_pair(family), prompt_ids(length), settings)
            assert trace.token_ids == reference(family, length, count)
            assert {token.kind for token in trace.tokens} == {"target"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("strategy", ["autoregressive", "speculative"])
def test_repetition_penalty_equals_generate(family: str, strategy: str) -> None:
    """Guards the history a penalty sees: row i of the verify must see the prefix and exactly i drafted tokens."""
    pair = endless_pair(family)
    plain = generate(pair.target, prompt_ids(9), 40)
    expected = generate(pair.target, prompt_ids(9), 40, repetition_penalty=1.4)
    settings = Settings(strategy=strategy, gamma=4, repetition_penalty=1.4, max_new_tokens=40)
    assert specdemo.run(pair, prompt_ids(9), settings).token_ids == expected
    assert plain != expected, "the penalty must matter here"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_target_with_a_wider_padded_vocabulary_equals_generate(family: str) -> None:
    """Guards against a crash in the draft's embedding at ids it does not have, and against shifted columns."""
    narrow = endless_pair(family).target
    pair = ModelPair(widened(narrow, 80, factor=1.5), perturbed(narrow), None)
    for gamma in (1, 4):
        trace = specdemo.run(pair, prompt_ids(9), Settings(gamma=gamma, max_new_tokens=48))
        assert trace.token_ids == generate(pair.target, prompt_ids(9), 48)
        assert max(trace.token_ids) >= 64, "the target must say an id the draft does not know"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_draft_with_a_wider_padded_vocabulary_equals_generate(family: str) -> None:
    """Guards against drafted ids that the target has no row for: its padding columns must never be proposed."""
    narrow = endless_pair(family).target
    pair = ModelPair(narrow, widened(perturbed(narrow), 96, factor=3.0), None)
    for gamma in (1, 4):
        trace = specdemo.run(pair, prompt_ids(9), Settings(gamma=gamma, max_new_tokens=48))
        assert trace.token_ids == generate(pair.target, prompt_ids(9), 48)
        assert max(token.id for token in trace.tokens) < 64
        assert trace.metrics().accepted > 0


@pytest.mark.parametrize("strategy", ["autoregressive", "speculative"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_models_in_training_mode_decode_without_dropout_and_stay_in_it(family: str, strategy: str) -> None:
    """Guards against dropout in the output of a model fresh from training, and against changing that model."""
    target = build(family, dropout=0.5)
    pair = ModelPair(copy.deepcopy(target).train(), perturbed(target).train(), None)
    trace = specdemo.run(pair, prompt_ids(9), Settings(strategy=strategy, gamma=3, max_new_tokens=24))
    assert trace.token_ids == generate(target, prompt_ids(9), 24)
    assert all(module.training for model in (pair.target, pair.draft) for module in model.modules())


@pytest.mark.parametrize("position", range(1, 9))
@pytest.mark.parametrize("eos", [7, 11])
def test_an_end_token_anywhere_in_a_block_ends_the_output_there(position: int, eos: int) -> None:
    """Guards against tokens after the end token, at every place in a fully accepted block and as its bonus."""
    script = [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]
    script[position] = eos
    model = scripted(script, start=3, vocabulary=40, eos=EOS)
    trace = specdemo.run(ModelPair(model, model, None), [13, 14, 15], Settings(gamma=3, max_new_tokens=11))
    assert trace.token_ids == script[: position + 1] == generate(model, [13, 14, 15], 11)
    assert trace.rounds[-1].stop == "eos"
    assert [r.stop for r in trace.rounds[:-1]] == [None] * (len(trace.rounds) - 1)
    past = specdemo.run(
        ModelPair(model, model, None), [13, 14, 15], Settings(gamma=3, max_new_tokens=11, ignore_eos=True)
    )
    assert past.token_ids == script[:11], "a run for measuring goes on"
    last = trace.rounds[-1]
    assert len(last.emitted) + sum(t.kind == "rejected" for t in last.tokens) >= last.drafted
    assert trace.metrics().accepted == sum(t.kind == "accepted" for t in trace.tokens)


def test_an_end_token_of_the_draft_alone_ends_nothing() -> None:
    """Guards against stopping at a drafted end token that the target rejected."""
    script = list(range(20, 32))
    wrong = [*script[:4], 7, *script[5:]]
    pair = ModelPair(
        scripted(script, start=2, vocabulary=40, eos=EOS),
        scripted(wrong, start=2, vocabulary=40, eos=EOS),
        None,
    )
    trace = specdemo.run(pair, [13, 14], Settings(gamma=5, max_new_tokens=10))
    assert trace.token_ids == script[:10]
    assert any(token.id == 7 and token.kind == "rejected" for token in trace.tokens)


def test_the_end_tokens_are_the_targets_not_the_drafts() -> None:
    """Guards against taking the end tokens from the wrong model of the pair."""
    script = [20, 21, 30, 22, 31, 23, 24, 25]
    pair = ModelPair(
        scripted(script, start=1, vocabulary=40, eos=[31]),
        scripted(script, start=1, vocabulary=40, eos=[30]),
        None,
    )
    assert specdemo.run(pair, [13], Settings(gamma=4, max_new_tokens=8)).token_ids == script[:5]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("length", [10, 20, 22, 23])
def test_the_context_limit_ends_the_output_at_its_last_position(family: str, length: int) -> None:
    """Guards against drafting or verifying past the last learned position, which is an index error in GPT-2."""
    target = build(family, context=24, eos=None)
    pair = ModelPair(target, perturbed(target), None)
    expected = generate(target, prompt_ids(length), 24 - length)
    assert len(expected) == 24 - length
    for settings in (
        Settings(strategy="autoregressive", max_new_tokens=64),
        Settings(gamma=1, max_new_tokens=64),
        Settings(gamma=4, max_new_tokens=64),
        Settings(gamma=16, max_new_tokens=64),
    ):
        trace = specdemo.run(pair, prompt_ids(length), settings)
        assert trace.token_ids == expected
        assert trace.rounds[-1].stop == "context"


def test_the_shorter_context_of_the_pair_counts() -> None:
    """Guards against running a draft with fewer learned positions past their end."""
    pair = ModelPair(build("gpt2", eos=None), build("gpt2", seed=3, context=20, eos=None), None)
    trace = specdemo.run(pair, prompt_ids(9), Settings(gamma=5, max_new_tokens=64))
    assert trace.token_ids == generate(pair.target, prompt_ids(9), 11)
    assert trace.rounds[-1].stop == "context"


def test_a_length_that_just_fits_the_context_is_called_length() -> None:
    """Guards the stop reason at the boundary where both limits are the same."""
    pair = ModelPair(build("gpt2", context=24, eos=None), None, None)
    settings = Settings(strategy="autoregressive", max_new_tokens=14)
    assert specdemo.run(pair, prompt_ids(10), settings).rounds[-1].stop == "length"


def test_a_model_with_very_few_positions_runs() -> None:
    """Guards the warm-up, which must not feed more tokens than a model has positions."""
    target = build("gpt2", context=6, eos=None)
    pair = ModelPair(target, perturbed(target), None)
    trace = specdemo.run(pair, prompt_ids(2), Settings(gamma=3, max_new_tokens=9))
    assert trace.token_ids == generate(target, prompt_ids(2), 4)
