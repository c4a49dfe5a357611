"""Adaptive γ: the choice against a search over simulated costs, and how it follows a change."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
from toys import endless_pair, prompt_ids

import specdemo
from specdemo.decoding.acceptance import TreeVerdict
from specdemo.decoding.gamma import Costs, GammaPolicy
from specdemo.decoding.lane import RawRound
from specdemo.drafters import DRAFTERS
from specdemo.settings import Settings
from specdemo.theory import expected_speedup, expected_tokens

STEP = 0.01  # seconds of a plain target step


def adaptive(shared: Costs | None = None) -> GammaPolicy:
    return GammaPolicy(Settings(adaptive_gamma=True), shared)


def play(policy: GammaPolicy, alpha: float, c: float, slope: float, rounds: int) -> list[int]:
    """Rounds of a simulated pair: every drafted token passes with ``alpha``; v(γ) = 1 + slope·γ."""
    chance = random.Random(0)
    chosen = []
    for _ in range(rounds):
        gamma = policy.next(99)
        accepted = next((i for i in range(gamma) if chance.random() >= alpha), gamma)
        noise = chance.uniform(0.95, 1.05) * STEP
        verdict = TreeVerdict(range(1, accepted + 1), 0, torch.empty(gamma))
        phases = {"draft": gamma * c * noise, "verify": (1 + slope * gamma) * noise, "other": 0.0}
        scores = torch.empty(gamma + 1, 1)
        policy.observe(RawRound(scores, 0, accepted + 1, [0] * gamma, verdict=verdict, phases=phases))
        chosen.append(gamma)
    return chosen


def speed(gamma: int, alpha: float, c: float, slope: float) -> float:
    return expected_speedup(expected_tokens(alpha, gamma), gamma, c, 1 + slope * gamma)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize(("c", "slope"), [(0.05, 0.02), (0.1, 0.08), (0.5, 0.02)])
def test_the_chosen_gamma_is_within_five_percent_of_the_best(alpha: float, c: float, slope: float) -> None:
    """Guards the estimate: mean speed at the chosen γ, after the first rounds, against a search."""
    chosen = play(adaptive(), alpha, c, slope, 400)[20:]
    best = max(speed(g, alpha, c, slope) for g in range(1, 17))
    mean = len(chosen) / sum(1 / speed(g, alpha, c, slope) for g in chosen)
    assert mean > 0.95 * best


def test_it_starts_with_the_settings_and_follows_a_text_that_becomes_harder() -> None:
    """Guards the first round, when nothing is known, and the decay: what was accepted long ago must not count."""
    assert GammaPolicy(Settings(gamma=7, adaptive_gamma=True)).next(99) == 7
    policy = adaptive()
    easy, hard = (play(policy, alpha, 0.05, 0.02, 100)[-50:] for alpha in (0.95, 0.3))
    assert sum(hard) < 0.5 * sum(easy)


def test_where_no_draft_pays_it_decodes_plainly_and_tries_again() -> None:
    """A draft as dear as the target: nearly all rounds are plain, tries grow rarer; then the text becomes easy."""
    policy = adaptive()
    chosen = play(policy, 0.5, 1.0, 0.02, 300)
    assert chosen.count(0) > 0.8 * len(chosen)
    assert max(chosen[-100:]) > 0, "it tries again"
    assert 0 not in play(adaptive(), 0.8, 0.05, 0.02, 300)
    assert 0 not in play(policy, 0.95, 0.02, 0.0, 300)[-150:]


def test_a_batch_does_not_pause_a_row() -> None:
    """Its costs are of all rows, so a row's own plain rounds would save nothing."""
    costs = Costs()
    costs.observe(5, 5 * STEP, STEP)
    assert 0 not in play(adaptive(costs), 0.3, 1.0, 0.02, 100)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_drafters_take_up_again_after_a_pause(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches and features must follow the tokens that were decoded plainly meanwhile."""
    choices = itertools.cycle([3, 0, 0, 0, 0, 2])
    monkeypatch.setattr(GammaPolicy, "_adapted", lambda self: next(choices))
    lane = Settings(drafter=drafter, adaptive_gamma=True, max_new_tokens=30)
    plain, paused = (
        specdemo.run(endless_pair("llama"), prompt_ids(9), s)
        for s in (replace(lane, strategy="autoregressive"), lane)
    )
    assert paused.token_ids == plain.token_ids
    assert [r.drafted for r in paused.rounds[1:]].count(0) >= 4
    assert paused.metrics().accepted > 0 or drafter in ("early_exit", "prompt_lookup")
