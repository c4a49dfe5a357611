"""The losslessness certificate: its false alarms on toy distributions, what it catches, what it says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from scipy.stats import binom
from toys import TOY_PROMPT, build, no_residual, prompt_ids, toy, toy_pair

import specdemo
from specdemo import Certificate, ModelPair, Settings, SpecDemoError
from specdemo.decoding import acceptance
from specdemo.losslessness import model_runs
from specdemo.losslessness.certificate import Table, TokenCount, wilson
from specdemo.losslessness.sequential_test import Detectable, RunEvidence, TestMartingale, detectable
from specdemo.settings import DRAFTERS, LOSSY_RULES
from specdemo.trace import Trace

WARM = {"acceptance": "sampling", "temperature": 1.0, "gamma": 3}
Next = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(p, q) -> what the next token is drawn from."""


# --- toy distributions: a Markov table for p and another for q ------------------------------------------------

_draws = np.random.default_rng(3)
P, Q = _draws.dirichlet(np.full(6, 0.7), size=6), _draws.dirichlet(np.full(6, 0.7), size=6)
KINDS = np.stack([Q, np.minimum(1, Q / P), P])
MEANS = (P * KINDS).sum(-1)


def toy_run(draws: np.random.Generator, law: Next, tokens: int = 8) -> RunEvidence:
    """A run of tokens drawn from ``law``, with its evidence."""
    last, ids, places = 0, [], []
    for _ in range(tokens):
        places.append(last)
        last = int(draws.choice(6, p=law(P[last], Q[last])))
        ids.append(last)
    where = (np.array(places), np.array(ids))
    bounded = KINDS[(slice(None), *where)] - MEANS[:, where[0]]
    return RunEvidence(
        tokens=tuple(ids),
        payoffs=np.concatenate([[Q[where] / P[where] - 1], bounded]),
        distance=float(np.abs(P - Q)[where[0]].sum(1).mean() / 2),
    )


def pairs_until(
    draws: np.random.Generator, law: Next, pairs: int, error_rate: float, *, exact: bool
) -> int | None:
    """At which pair the test rejects ``law``; None if it does not."""
    martingale = TestMartingale(exact=exact)
    for number in range(pairs):
        martingale.update(toy_run(draws, lambda p, q: p), toy_run(draws, law))
        if martingale.peak >= 1 / error_rate:
            return number + 1
    return None


@pytest.mark.parametrize("exact", [True, False])
def test_false_alarms_are_no_more_than_stated_over_all_looks(exact: bool) -> None:
    """Guards the promise of the certificate: it is looked at after each of 25 pairs, and still at most 5 % err."""
    draws, tests, error_rate = np.random.default_rng(0), 300, 0.05
    alarms = sum(pairs_until(draws, lambda p, q: p, 25, error_rate, exact=exact) is not None for _ in range(tests))
    assert alarms <= binom.ppf(0.999, tests, error_rate)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "law",
    [
        lambda p, q: p * (1 + q - (p * q).sum()),
        lambda p, q: 0.5 * p + 0.5 * q,
        lambda p, q: p**2 / (p**2).sum(),
        lambda p, q: np.minimum(p, q) + p * (1 - np.minimum(p, q).sum()),
    ],
    ids=["naive", "half of the draft unchecked", "sharpened", "no residual"],
)
def test_faulty_laws_are_found(law: Next, exact: bool) -> None:
    """Guards the power of both bets: the one on labels must do without the target's exact probabilities."""
    draws = np.random.default_rng(1)
    needed = [pairs_until(draws, law, 800, 0.001, exact=exact) for _ in range(3)]
    assert None not in needed


def test_what_is_said_to_be_caught_99_times_of_100_is_caught() -> None:
    """Guards the layman's statement: the fault that the reweighted runs promise, really drawn and tested."""
    draws = np.random.default_rng(2)
    runs = [toy_run(draws, lambda p, q: p) for _ in range(120)]
    found = detectable(runs, 60, 0.01, exact=True)
    assert found is not None
    assert found.shift == pytest.approx(found.share * np.mean([r.distance for r in runs]))

    def law(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return (1 - found.share) * p + found.share * q

    caught = sum(pairs_until(draws, law, 60, 0.01, exact=True) is not None for _ in range(100))
    assert caught >= binom.ppf(0.001, 100, 0.98)
    tests = ((300, 0.01), (100, 0.01), (100, 0.001))  # more pairs find smaller faults, a smaller rate larger ones
    shares = [detectable(runs, pairs, rate, exact=True).share for pairs, rate in tests]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
    for few in (detectable(runs, 2, 1e-6, exact=True), detectable(runs[:5], 60, 0.01, exact=True)):
        assert few is None
    assert detectable([], 60, 0.01, exact=True) is None


# --- through the real loop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [*LOSSY_RULES, "broken"])
def test_lossy_rules_differ(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the label, through the real loop, and against blindness to a fault that nobody labelled."""
    target = toy("llama", 6).target
    pair = ModelPair(target, target, None)  # where only a lossy rule errs
    if rule == "broken":
        pair, rule = toy("llama", 6), "sampling"
        monkeypatch.setattr(acceptance, "rule_for", lambda settings: no_residual)
    settings = Settings(**{**WARM, "acceptance": rule}, accept_top_k=2)
    found = specdemo.certify(pair, TOY_PROMPT, settings, 400, 8)
    assert found.verdict == "differs"
    assert found.runs < 400, "it stops early"
    assert found.p_value <= found.error_rate
    assert "The outputs differ" in found.text


@pytest.mark.parametrize(
    ("rule", "drafter"),
    [*(("sampling", drafter) for drafter in DRAFTERS), ("token_match", "model"), ("block", "model")],
)
def test_lossless_rules_pass(rule: str, drafter: str) -> None:
    """Guards the evidence: of every drafter it must be fair. A false alarm once in 1,000 seeds; it is fixed."""
    pair = toy("llama", 6, layers=2 if drafter == "early_exit" else 1)
    settings = Settings(**{**WARM, "acceptance": rule}, drafter=drafter)
    found = specdemo.certify(pair, TOY_PROMPT, settings, 100, 8)
    assert found.verdict == "passes"
    assert found.detectable is not None
    assert "99 times of 100" in found.text


@pytest.mark.parametrize(
    ("models", "fields"),
    [
        (("llama", 6), {"top_k": 3}),
        (("llama", 6), {"top_p": 0.8, "repetition_penalty": 1.5}),
        (("llama", 7, 5, 4), {}),  # a draft of fewer tokens, and an end token
    ],
)
def test_what_the_lanes_draw_from_is_what_they_are_held_against(models: tuple, fields: dict[str, float]) -> None:
    """Guards the likelihood ratios: penalties and cuts included, over runs of unlike lengths."""
    found = specdemo.certify(toy(*models), TOY_PROMPT, Settings(**WARM, **fields), 50, 6)
    assert found.verdict != "differs"
    assert (found.tables[0].plain < 50 * 5) == (len(models) > 2), "an end token must have cut some runs"


def test_a_stream_tells_what_it_knows_and_the_seed_repeats_it() -> None:
    """Guards the live view: counts grow by a few pairs at a time; the same seed gives the same test."""
    asked = (toy("llama", 6), TOY_PROMPT, Settings(**WARM, seed=4), 19, 3)
    told = list(specdemo.stream_certificate(*asked))
    assert [c.runs for c in told] == [8, 16, 19]
    assert {c.verdict for c in told} == {"undecided"}
    assert "Too few" in told[-1].text
    assert "after 16 of 19 pairs" in told[1].text
    assert sum(o.plain for o in told[-1].tables[0].outcomes) == told[-1].tables[0].plain
    again = specdemo.certify(*asked)
    assert replace(again, seconds=0.0) == replace(told[-1], seconds=0.0)


def test_runs_that_are_alike_end_the_test_and_say_so() -> None:
    """Guards a person's minutes: where the next token is certain, no number of runs could find a fault."""
    cold = Settings(**WARM | {"temperature": 0.01})
    found = specdemo.certify(toy("llama", 6), TOY_PROMPT, cold, 100, 8)
    assert (found.verdict, found.runs, found.alike) == ("undecided", 24, True)
    assert "too little choice: 24 pairs of runs are so alike that 100 could find nothing" in found.text
    assert Certificate.from_json(found.to_json()) == found


@pytest.mark.parametrize("rule", ["sampling", "naive"])
def test_pairs_that_run_together_are_the_pairs_that_run_alone(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards what is certified: the lanes of a race, which decode one by one, and not only rows of a batch."""
    asked = (toy("llama", 6), TOY_PROMPT, Settings(**WARM | {"acceptance": rule}), 30, 6)
    together = specdemo.certify(*asked)
    monkeypatch.setattr(model_runs, "AT_ONCE", 1)
    assert replace(specdemo.certify(*asked), seconds=0.0) == replace(together, seconds=0.0)


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"temperature": 0.0}, {}, "check_greedy"),
        ({}, {"runs": 0}, "runs: must be a whole number"),
        ({}, {"tokens": 1}, "tokens: must be a whole number"),
        ({}, {"error_rate": 0.0}, "error_rate: must be"),
        ({}, {"prompt": [1] * 30}, "do not fit"),
        ({}, {"prompt": []}, "it is empty"),
        ({"drafter": "model"}, {"pair": ModelPair(build("llama", eos=None), None, None)}, "needs a draft model"),
    ],
)
def test_what_cannot_be_tested_is_refused_with_a_reason(fields: dict, arguments: dict, message: str) -> None:
    asked = {"pair": toy("llama", 6), "prompt": TOY_PROMPT, "settings": Settings(**WARM | fields)}
    with pytest.raises(SpecDemoError, match=message):
        specdemo.certify(**asked | arguments)


# --- what it says -----------------------------------------------------------------------------------------------


TABLE = Table("All", (TokenCount(5, " x", 22, 31), TokenCount(6, " y", 30, 30)), 100, 100)
FOUND = Certificate(
    "differs", Settings(**WARM), 40, 200, 12, 1_234_567.0, 0.001, None, "the draft's token", (TABLE,), 3.0
)
PASSED = replace(FOUND, verdict="passes", runs=200, evidence=1.7, detectable=Detectable(0.2, 0.063))


def test_the_statements_are_made_of_the_figures() -> None:
    """Guards words that a layman takes away; numbers are rounded so that they never overstate."""
    assert "at most once in 1,200,000 tests" in FOUND.text
    assert "“x”: 31% of tokens instead of 22%" in FOUND.text
    for part in ("After 200 pairs", "the draft's token unchecked at 20% of places", "6.3% of the probability"):
        assert part in PASSED.text


def test_a_certificate_survives_json_and_nonsense_does_not() -> None:
    for made in (FOUND, PASSED):
        assert Certificate.from_json(made.to_json()) == made
    for text in ("", "[]", "{}", FOUND.to_json().replace('"runs": 40', '"runs": "many"')):
        with pytest.raises(specdemo.TraceError, match="not a specdemo certificate"):
            Certificate.from_json(text)


# --- the greedy check -------------------------------------------------------------------------------------------


def greedy_trace(pair: ModelPair, **fields: object) -> Trace:
    return specdemo.run(pair, prompt_ids(9), Settings(gamma=3, max_new_tokens=20, **fields))


def ending_in(trace: Trace, token: int) -> Trace:
    """The trace, with another token emitted last."""
    *rounds, last = trace.rounds
    tokens = tuple(replace(t, id=token) if t is trace.output[-1] else t for t in last.tokens)
    return replace(trace, rounds=(*rounds, replace(last, tokens=tokens)))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_lossless_lane_is_identical_at_every_position(family: str) -> None:
    pair = toy_pair(family)
    found = specdemo.check_greedy(pair, greedy_trace(pair))
    assert found.outcome == "identical"
    assert f"All {len(found.positions)} positions" in found.text


def test_a_wrong_token_diverges_where_it_is_and_later_positions_are_judged_after_it() -> None:
    """Guards what comparing two texts cannot do: the target reads the lane's own tokens, wrong ones too."""
    pair = toy_pair("llama")
    trace = greedy_trace(pair)
    wrong = next(i for i in range(12, 64) if i != trace.token_ids[-1])
    found = specdemo.check_greedy(pair, ending_in(trace, wrong))
    assert found.places("diverged") == [len(trace.token_ids) - 1]
    assert found.positions[-1].best_id == trace.token_ids[-1]
    assert found.positions[-1].margin < -found.tie_margin
    assert f"1 of {len(trace.token_ids)} positions diverged" in found.text


def test_equal_logits_are_a_tie_with_its_margin() -> None:
    """Guards the tie: two tokens with the same output weights differ by nothing but the order of the search."""
    pair = toy_pair("llama")
    trace = greedy_trace(pair)
    best, twin = trace.token_ids[-1], 63
    target = copy.deepcopy(pair.target)
    with torch.no_grad():
        weights = target.get_output_embeddings().weight
        weights[twin] = weights[best]
    found = specdemo.check_greedy(ModelPair(target, None, None), ending_in(trace, twin))
    last = found.positions[-1]
    assert (last.outcome, last.best_id) == ("tie", best)
    assert last.margin == pytest.approx(0.0, abs=1e-5)
    assert "1 a numerical tie" in found.text
    assert '"outcome": "tie"' in found.to_json()
    lossy = specdemo.check_greedy(pair, greedy_trace(pair, acceptance="top_k", accept_top_k=40))
    assert lossy.outcome == "diverged"
    assert "the rule is lossy" in lossy.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pair": None}, "pair: must be a ModelPair, not NoneType"),
        ({"trace": None}, "trace: must be a specdemo.Trace, not NoneType"),
        ({"trace": "{}"}, "not str; read a saved one with Trace.from_json"),
        ({"trace": {"prompt_ids": ()}}, "prompt: it is empty"),
        ({"trace": {"prompt_ids": (10**9,)}}, "token id 1000000000 is outside"),
        ({"trace": {"rounds": ()}}, "no tokens"),
        ({"trace": {"settings": Settings(**WARM)}}, "use certify"),
    ],
)
def test_what_cannot_be_checked_greedily_is_refused_with_a_reason(change: dict[str, object], message: str) -> None:
    """Guards arguments in the wrong order, saved text, and traces of another pair."""
    pair = toy_pair("llama")
    arguments = {"pair": pair, "trace": greedy_trace(pair)} | change
    if isinstance(change.get("trace"), dict):
        arguments["trace"] = replace(greedy_trace(pair), **change["trace"])
    with pytest.raises(SpecDemoError, match=message):
        specdemo.check_greedy(**arguments)


def test_whiskers_cover_the_share_that_drew_them() -> None:
    """Guards Wilson's interval, also where nothing, or everything, was drawn."""
    rng = Random(3)
    for share in (0.02, 0.3, 0.97):
        counts = [sum(rng.random() < share for _ in range(80)) for _ in range(200)]
        assert sum(low <= share <= high for low, high in (wilson(n, 80) for n in counts)) >= 180
    assert wilson(0, 50)[0] == 0.0 < wilson(0, 50)[1] < 0.1
    assert wilson(50, 50)[1] == 1.0
    assert wilson(0, 0) == (0.0, 1.0)
