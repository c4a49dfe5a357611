"""What a speculative lane records: kinds, positions, counts, probabilities and times."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import check_consistent, endless_pair, prompt_ids, scripted, toy_pair

import specdemo
from specdemo import ModelPair, PairError, Settings


@given(
    gamma=st.integers(1, 16),
    count=st.integers(1, 24),
    length=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    family=st.sampled_from(["llama", "gpt2"]),
    temperature=st.sampled_from([0.0, 0.8]),
    acceptance=st.sampled_from(["sampling", "top_k"]),
    penalty=st.sampled_from([1.0, 1.3]),
)
def test_every_lane_is_consistent(count: int, length: int, family: str, penalty: float, **fields: object) -> None:
    """Guards the record for any settings: kinds, order, positions, counts, probabilities, phases."""
    settings = Settings(max_new_tokens=count, repetition_penalty=penalty, accept_top_k=3, **fields)
    trace = specdemo.run(toy_pair(family), prompt_ids(length), settings)
    check_consistent(trace)
    assert len(trace.token_ids) == count or trace.rounds[-1].stop == "eos"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(("temperature", "penalty"), [(0.0, 1.0), (1.0, 1.0), (0.0, 1.8), (1.0, 1.8)])
def test_a_model_that_drafts_for_itself_is_always_right(family: str, temperature: float, penalty: float) -> None:
    """Guards the draft's cache, p = q, worth a rejection in a million, and what of a draft a penalty sees."""
    target = endless_pair(family).target
    lane = {"acceptance": "sampling", "temperature": temperature, "repetition_penalty": penalty}
    pair, settings = ModelPair(target, target), Settings(**lane, gamma=6, max_new_tokens=50)
    metrics = specdemo.run(pair, prompt_ids(3), settings).metrics()
    assert (metrics.acceptance_rate, metrics.rounds) == (1.0, 7), "each of seven tokens"
    assert metrics.alpha == pytest.approx(1.0, abs=1e-4)


def test_kinds_positions_and_rounds_of_a_known_run() -> None:
    """Guards the meaning of the kinds on a run worked out by hand, γ = 3."""
    says = [20, 21, 22, 23, 24, 25, 26, 27, 28, 29]
    guesses = [20, 21, 22, 23, 24, 25, 36, 27, 28, 29]
    pair = ModelPair(scripted(says, 2, 40), scripted(guesses, 2, 40), None)
    trace = specdemo.run(pair, [13, 14], Settings(gamma=3, max_new_tokens=10))
    seen = [[(t.id, t.kind, t.position) for t in r.tokens] for r in trace.rounds]
    assert seen == [
        [(20, "target", 1)],
        [(21, "accepted", 1), (22, "accepted", 2), (23, "accepted", 3), (24, "bonus", 4)],
        [(25, "accepted", 1), (36, "rejected", 2), (27, "rejected", 3), (26, "corrected", 2)],
        [(27, "accepted", 1), (28, "accepted", 2), (29, "bonus", 3)],
    ]
    assert [t.acceptance for t in trace.rounds[2].tokens] == [1.0, 0.0, None, None]
    assert [r.drafted for r in trace.rounds] == [0, 3, 3, 2], "no more is drafted than can be kept"
    assert [r.stop for r in trace.rounds] == [None, None, None, "length"]


def test_p_and_q_are_the_models_own_probabilities() -> None:
    """Guards the figures under the pointer: p and q of each token from one full forward of each model."""
    pair = endless_pair("llama")
    settings = Settings(acceptance="sampling", temperature=0.8, gamma=3, max_new_tokens=16, seed=3)
    trace = specdemo.run(pair, prompt_ids(5), settings)
    committed = list(prompt_ids(5))
    for round_ in trace.rounds:
        drafted = [t.id for t in round_.tokens if t.kind in ("accepted", "rejected")]
        for token in round_.tokens:
            prefix = torch.tensor([committed + drafted[: token.position - 1]])
            with torch.no_grad():
                p = torch.softmax(pair.target(prefix).logits[0, -1] / 0.8, -1)
                q = torch.softmax(pair.draft(prefix).logits[0, -1] / 0.8, -1)
            assert token.p == pytest.approx(float(p[token.id]), abs=1e-5)
            if token.q is not None:
                assert token.q == pytest.approx(float(q[token.id]), abs=1e-5)
            if token.acceptance is not None:
                ratio = float(p[token.id] / q[token.id])
                assert token.acceptance == pytest.approx(min(1.0, ratio), abs=1e-4)
        tested = [t for t in round_.tokens if t.acceptance is not None]
        if round_.drafted:
            assert len(round_.overlaps) == len(tested)
            assert all(0.0 <= o <= 1.0 + 1e-6 for o in round_.overlaps)
        committed += [t.id for t in round_.emitted]


def test_margins_say_how_far_a_token_stands_above_the_best_other() -> None:
    """Guards the tie verdict, which is read from these margins alone."""
    pair = endless_pair("gpt2")
    for acceptance in ("exact", "top_k"):
        settings = Settings(acceptance=acceptance, gamma=4, max_new_tokens=20, accept_top_k=5)
        trace = specdemo.run(pair, prompt_ids(5), settings)
        whole = torch.tensor([[*prompt_ids(5), *trace.token_ids]])
        with torch.no_grad():
            logits = pair.target(whole).logits[0, 4:]
        for row, token in zip(logits, trace.output, strict=False):
            others = row.clone()
            others[token.id] = -torch.inf
            assert token.margin == pytest.approx(float(row[token.id] - others.max()), abs=1e-4)
        assert all(t.margin is None for t in trace.tokens if t.kind == "rejected")
        assert all(t.margin > 0 for t in trace.output) == (acceptance == "exact")


BROKEN = [
    {"strategy": "autoregressive"},
    {"drafter": "model"},
    {"drafter": "early_exit"},
    {"drafter": "prompt_lookup"},
    {"strategy": "assisted"},
]


@pytest.mark.parametrize(("number", "temperature"), [(math.nan, 0.0), (math.inf, 0.0), (math.nan, 1.0)])
@pytest.mark.parametrize("fields", BROKEN, ids=lambda fields: "-".join(fields.values()))
@pytest.mark.parametrize("who", ["target", "draft"])
def test_models_that_compute_no_numbers_end_the_run_with_a_sentence(
    who: str, fields: dict[str, str], temperature: float, number: float
) -> None:
    """Guards broken weights and overflow: greedy decoding took NaN for the best token, with p = 1."""
    pair = endless_pair("llama")
    models = {"target": copy.deepcopy(pair.target), "draft": copy.deepcopy(pair.draft)}
    with torch.no_grad():
        models[who].lm_head.weight[20, 0] = number
    settings = Settings(
        acceptance="sampling" if temperature else "exact", temperature=temperature, max_new_tokens=12, **fields
    )
    pair = ModelPair(models["target"], models["draft"], None)
    if who == "draft" and (settings.strategy == "autoregressive" or settings.drafter != "model"):
        assert specdemo.run(pair, prompt_ids(9), settings).complete
        return
    told = "(target|drafter)" if settings.drafter == "early_exit" else {"draft": "drafter"}.get(who, who)
    with pytest.raises(PairError, match=f"^{told}: its logits are not finite"):
        specdemo.run(pair, prompt_ids(9), settings)
