"""Temperature 0: the ids are those of transformers' own greedy decoding, whatever the draft says.

``test_families.py`` has more families, this file more ways to draft and places where an output may end.
"""

from __future__ import annotations

from functools import cache

import pytest
from toys import (
    EOS,
    FAMILIES,
    MTP_FAMILIES,
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

ROWS = [f"suffix,{name}" for name in DRAFTERS if name != "suffix"]
WAYS = [
    {"strategy": "autoregressive"},
    *({"drafter": drafter} for drafter in [*DRAFTERS, *ROWS]),
    *({"drafter": name, "p_min": 0.1, "tree_nodes": nodes} for name in ("model", "suffix") for nodes in (0, 24)),
    {"drafter": "suffix,eagle3", "p_min": 0.03, "tree_nodes": 12},
    *({"drafter": name, "tree_nodes": nodes} for name, s in DRAFTERS.items() if s.trees for nodes in (3, 24)),
    *({"strategy": "assisted", "drafter": drafter} for drafter in ("model", "prompt_lookup")),
]
SHAPES = [(9, 16, False), (9, 1, False), (9, 5, True), (1, 5, False), (40, 4, False)]
"""Length of the prompt, γ, and whether it is adaptive."""


@cache
def expected_ids(family: str, length: int) -> list[int]:
    return generate(endless_pair(family).target, prompt_ids(length), 32)


@pytest.mark.parametrize(
    ("family", "way"),
    [
        pytest.param(family, way, id="-".join(map(str, (family, *way.values()))))
        for family in ("llama", "qwen3", "gpt_neox", "gemma3")
        for way in WAYS
        if family in MTP_FAMILIES or "mtp" not in way.get("drafter", "")
    ],
)
def test_every_way_to_decode_equals_generate(family: str, way: dict[str, object]) -> None:
    """Guards rollback and masks; the last family has windows of 8 tokens, and the runs go far past them."""
    # Trees and transformers have no adaptive γ. What two families have shown with all shapes others need not.
    shapes = SHAPES[: 2 if way.keys() & {"strategy", "tree_nodes"} else None]
    for length, gamma, adaptive in shapes if family in ("llama", "gemma3") else shapes[::2]:
        settings = Settings(**way, gamma=gamma, adaptive_gamma=adaptive, max_new_tokens=32)
        trace = specdemo.run(endless_pair(family), prompt_ids(length), settings)
        expected = expected_ids(family, length)
        assert trace.token_ids == expected, f"prompt of {length}, γ {gamma}, {adaptive=}"
        assert trace.rounds[-1].stop == "length"
    assert len(set(expected)) > 3, "an output of one token would show nothing"


@pytest.mark.parametrize("gamma", [1, 4, 16])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
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


@pytest.mark.parametrize("way", [{"strategy": "autoregressive"}, {}, {"tree_nodes": 9}], ids=str)
def test_repetition_penalty_equals_generate(way: dict[str, object]) -> None:
    """Guards the history a penalty sees: the prefix and exactly the drafted tokens on the way to a row."""
    for pair in map(endless_pair, ("llama", "gpt2")):
        expected = generate(pair.target, prompt_ids(9), 40, repetition_penalty=1.4)
        settings = Settings(**way, gamma=4, repetition_penalty=1.4, max_new_tokens=40)
        assert specdemo.run(pair, prompt_ids(9), settings).token_ids == expected
        assert generate(pair.target, prompt_ids(9), 40) != expected, "the penalty must matter here"


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


@pytest.mark.parametrize("position", range(1, 9))
def test_an_end_token_anywhere_in_a_block_ends_the_output_there(position: int) -> None:
    """Guards against tokens after the end token, at every place in a fully accepted block and as its bonus."""
    script = list(range(20, 32))
    script[position] = EOS[position % 2]
    model = scripted(script, start=3, vocabulary=40, eos=EOS)
    lane = {"gamma": 3, "max_new_tokens": 11}
    tree = specdemo.run(ModelPair(model, model), [13, 14, 15], Settings(**lane, tree_nodes=6))
    assert tree.token_ids == script[: position + 1]
    trace = specdemo.run(ModelPair(model, model), [13, 14, 15], Settings(**lane))
    assert trace.token_ids == script[: position + 1] == generate(model, [13, 14, 15], 11)
    assert [r.stop for r in trace.rounds] == [None] * (len(trace.rounds) - 1) + ["eos"]
    past = specdemo.run(ModelPair(model, model), [13, 14, 15], Settings(**lane, ignore_eos=True))
    assert past.token_ids == script[:11], "a run for measuring goes on"
    last = trace.rounds[-1]
    assert len(last.emitted) + sum(t.kind == "rejected" for t in last.tokens) >= last.drafted
    assert trace.metrics().accepted == sum(t.kind == "accepted" for t in trace.tokens)


def test_the_end_tokens_are_the_targets_and_end_nothing_where_the_draft_alone_says_them() -> None:
    """Guards against stopping at a drafted end token that the target rejected, or at one of the draft's own."""
    script = list(range(20, 32))
    wrong = [*script[:4], 7, *script[5:]]
    pair = ModelPair(*(scripted(says, start=2, vocabulary=40, eos=EOS) for says in (script, wrong)))
    trace = specdemo.run(pair, [13, 14], Settings(gamma=5, max_new_tokens=10))
    assert trace.token_ids == script[:10]
    assert any(token.id == 7 and token.kind == "rejected" for token in trace.tokens)
    script = [20, 21, 30, 22, 31, 23, 24, 25]
    pair = ModelPair(*(scripted(script, start=1, vocabulary=40, eos=[eos]) for eos in (31, 30)))
    assert specdemo.run(pair, [13], Settings(gamma=4, max_new_tokens=8)).token_ids == script[:5]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("length", [10, 22, 23])
def test_the_context_limit_ends_the_output_at_its_last_position(family: str, length: int) -> None:
    """Guards against drafting or verifying past the last learned position, which is an index error in GPT-2."""
    target = build(family, context=24, eos=None)
    pair = ModelPair(target, perturbed(target))
    expected = generate(target, prompt_ids(length), 24 - length)
    for way in ({"strategy": "autoregressive"}, {"gamma": 1}, {"gamma": 4}, {"gamma": 16}):
        trace = specdemo.run(pair, prompt_ids(length), Settings(**way, max_new_tokens=64))
        assert trace.token_ids == expected
        assert trace.rounds[-1].stop == "context"
    both_limits = Settings(strategy="autoregressive", max_new_tokens=24 - length)
    assert specdemo.run(pair, prompt_ids(length), both_limits).rounds[-1].stop == "length"


@pytest.mark.parametrize(("context", "length"), [(20, 9), (6, 2)])
def test_the_shorter_context_of_the_pair_counts(context: int, length: int) -> None:
    """Guards a draft past its last learned position, in a warm-up too."""
    pair = ModelPair(build("gpt2", eos=None), build("gpt2", seed=3, context=context, eos=None))
    trace = specdemo.run(pair, prompt_ids(length), Settings(gamma=5, max_new_tokens=64))
    assert trace.token_ids == generate(pair.target, prompt_ids(length), context - length)
    assert trace.rounds[-1].stop == "context"
