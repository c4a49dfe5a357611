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
from specdemo.drafters import DRAFTERS

WAYS = [
    {"strategy": "autoregressive"},
    *({"drafter": drafter} for drafter in DRAFTERS),
    *({"drafter": name, "tree_nodes": nodes} for name, s in DRAFTERS.items() if s.trees for nodes in (3, 24)),
    *({"strategy": "assisted", "drafter": drafter} for drafter in ("model", "prompt_lookup")),
]
SHAPES = [(9, 1, False), (9, 16, False), (9, 5, True), (1, 5, False), (40, 4, False)]
"""Length of the prompt, γ, and whether it is adaptive."""


@functools.cache
def reference(family: str, length: int, count: int) -> list[int]:
    return generate(endless_pair(family).target, prompt_ids(length), count)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
@pytest.mark.parametrize("family", [*FAMILIES, "mistral", "gemma3"])
def test_every_way_to_decode_equals_generate_in_every_family(family: str, way: dict[str, object]) -> None:
    """Guards rollback and masks; the last two have windows of 8 tokens, and the runs go far past them."""
    # Trees and transformers have no adaptive γ.
    for length, gamma, adaptive in SHAPES[: 2 if way.keys() & {"strategy", "tree_nodes"} else None]:
        settings = Settings(**way, gamma=gamma, adaptive_gamma=adaptive, max_new_tokens=32)
        trace = specdemo.run(endless_pair(family), prompt_ids(length), settings)
        assert trace.token_ids == reference(family, length, 32), f"prompt of {length}, γ {gamma}, {adaptive=}"
        assert trace.rounds[-1].stop == "length"
    assert len(set(reference(family, 9, 32))) > 3, "an output of one token would show nothing"


@pytest.mark.parametrize("gamma", [1, 4, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_tokens_equals_generate(family: str, gamma: int) -> None:
    """Guards a block cut at the wrong place, by the length or by an end token."""
    for count in sorted({1, 2, gamma, gamma + 1, 64}):
        trace = specdemo.run(toy_pair(family), prompt_ids(17), Settings(gamma=gamma, max_new_tokens=count))
        expected = generate(toy_pair(family).target, prompt_ids(17), count)
        assert trace.token_ids == expected, f"{count} new tokens"
        assert trace.rounds[-1].stop == ("eos" if expected[-1] in EOS else "length")


@pytest.mark.parametrize("family", FAMILIES)
def test_toy_pairs_accept_some_and_reject_some(family: str) -> None:
    """Guards the tests themselves: a draft that is always right or always wrong would show nothing."""
    trace = specdemo.run(endless_pair(family), prompt_ids(40), Settings(gamma=4, max_new_tokens=64))
    assert 0.1 < trace.metrics().acceptance_rate < 0.95
    assert len(set(trace.token_ids)) >= 8
    assert {t.kind for t in trace.tokens} == {"target", "accepted", "rejected", "corrected", "bonus"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("way", [{"strategy": "autoregressive"}, {}, {"tree_nodes": 9}], ids=str)
def test_repetition_penalty_equals_generate(family: str, way: dict[str, object]) -> None:
    """Guards the history a penalty sees: the prefix and exactly the drafted tokens on the way to a row."""
    pair = endless_pair(family)
    plain = generate(pair.target, prompt_ids(9), 40)
    expected = generate(pair.target, prompt_ids(9), 40, repetition_penalty=1.4)
    settings = Settings(**way, gamma=4, repetition_penalty=1.4, max_new_tokens=40)
    assert specdemo.run(pair, prompt_ids(9), settings).token_ids == expected
    assert plain != expected, "the penalty must matter here"


@pytest.mark.parametrize("wider", ["target", "draft"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_wider_padded_vocabulary_equals_generate(family: str, wider: str) -> None:
    """Guards ids that the draft has no embedding for, and padding of the draft, which must never be proposed."""
    narrow = endless_pair(family).target
    pair = ModelPair(narrow, widened(perturbed(narrow), 96, factor=3.0))
    if wider == "target":
        pair = ModelPair(widened(narrow, 80, factor=1.5), perturbed(narrow))
    for gamma in (1, 4):
        trace = specdemo.run(pair, prompt_ids(9), Settings(gamma=gamma, max_new_tokens=48))
        assert trace.token_ids == generate(pair.target, prompt_ids(9), 48)
        assert (max(token.id for token in trace.tokens) >= 64) == (wider == "target")
        assert wider == "target" or trace.metrics().accepted > 0


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


@pytest.mark.parametrize(("context", "length"), [(20, 9), (6, 2)])
def test_the_shorter_context_of_the_pair_counts(context: int, length: int) -> None:
    """Guards a draft past its last learned position, in a warm-up too."""
    pair = ModelPair(build("gpt2", eos=None), build("gpt2", seed=3, context=context, eos=None), None)
    trace = specdemo.run(pair, prompt_ids(length), Settings(gamma=5, max_new_tokens=64))
    assert trace.token_ids == generate(pair.target, prompt_ids(length), context - length)
    assert trace.rounds[-1].stop == "context"


def test_a_length_that_just_fits_the_context_is_called_length() -> None:
    """Guards the stop reason at the boundary where both limits are the same."""
    pair = ModelPair(build("gpt2", context=24, eos=None), None, None)
    settings = Settings(strategy="autoregressive", max_new_tokens=14)
    assert specdemo.run(pair, prompt_ids(10), settings).rounds[-1].stop == "length"
