"""What a speculative lane records: kinds, positions, counts, probabilities and times."""

from __future__ import annotations

import copy
import math
import re

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


@pytest.mark.parametrize(
    ("drafter", "rule", "nodes"),
    [("model", "sampling", 0), ("prompt_lookup", "sampling", 0), ("model", "naive", 0), ("model", "sampling", 6)],
)
def test_the_draws_that_decided_a_round_are_recorded(drafter: str, rule: str, nodes: int) -> None:
    """Guards the lesson of a round taken apart: u against the chance, and what a rejected token gave way to."""
    pair, prompt = endless_pair("llama"), prompt_ids(5) * 3
    lane = {"drafter": drafter, "acceptance": rule, "tree_nodes": nodes, "temperature": 0.8, "gamma": 3}
    trace = specdemo.run(pair, prompt, Settings(**lane, seed=3, max_new_tokens=48))
    committed, seen = list(prompt), 0
    for round_ in trace.rounds:
        for token in round_.tokens:
            assert (token.u is None) == (token.acceptance is None)
            if token.u is not None:
                assert (token.u < token.acceptance) == (token.kind == "accepted")
        first = next((t for t in round_.tokens if t.kind == "rejected"), None)
        committed += [t.id for t in round_.emitted]
        if first is None or round_.emitted[-1].kind != "corrected" or rule == "naive" or nodes:
            assert round_.residual is None
            continue
        ids = torch.tensor([committed[:-1]])
        with torch.no_grad():
            p, q = (torch.softmax(model(ids).logits[0, -1] / 0.8, -1) for model in (pair.target, pair.draft))
        q = q if drafter == "model" else torch.eye(len(p))[first.id]
        share = (p - q).clamp(min=0) / (p - q).clamp(min=0).sum()
        for each in round_.residual:
            expected = [float(row[each.id]) for row in (p, q, share)]
            assert [each.p, each.q, each.share] == pytest.approx(expected, abs=1e-4)
            assert each.text == f"⟨{each.id}⟩"
        best = [each.id for each in round_.residual][:4]
        assert best == share.topk(4).indices.tolist()[: len(best)]
        assert committed[-1] in [each.id for each in round_.residual]
        seen += 1
    assert (seen > 2) == (rule == "sampling" and not nodes)


def test_a_round_without_random_numbers_records_none() -> None:
    """Guards the size of files, and records of earlier versions, which lack these fields."""
    pair, sampled = endless_pair("llama"), {"acceptance": "sampling", "temperature": 0.8, "seed": 3}
    for fields in ({}, {**sampled, "acceptance": "block"}, {**sampled, "strategy": "assisted"}):
        text = specdemo.run(pair, prompt_ids(5), Settings(**fields, gamma=3, max_new_tokens=24)).to_json()
        assert not {'"u"', '"residual"'} & set(re.findall(r'"\w+"', text))
    settings = Settings(**sampled, gamma=3, max_new_tokens=24)
    alone, (row,) = (
        specdemo.run(pair, prompt_ids(5), settings),
        specdemo.run_batch(pair, [prompt_ids(5)], settings),
    )
    assert specdemo.Trace.from_json(alone.to_json()) == alone
    assert [t.u for t in row.tokens] == pytest.approx([t.u for t in alone.tokens])
    assert any(r.residual for r in alone.rounds)
    assert not any(r.residual for r in row.rounds), "nobody takes a batch apart"


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
