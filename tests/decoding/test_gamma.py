"""Adaptive γ: the choice against a search over simulated costs, and how it follows a change."""

from __future__ import annotations

import random

import pytest
import torch

from specdemo.decoding.gamma import AdaptiveGamma
from specdemo.decoding.lane import Step
from specdemo.theory import expected_speedup, expected_tokens

STEP = 0.01  # seconds of a plain target step


def play(policy: AdaptiveGamma, alpha: float, c: float, slope: float, rounds: int, seed: int = 0) -> list[int]:
    """Rounds of a simulated pair: every drafted token passes with ``alpha``; v(γ) = 1 + slope·γ."""
    chance = random.Random(seed)
    chosen = []
    for _ in range(rounds):
        gamma = policy.next()
        accepted = next((i for i in range(gamma) if chance.random() >= alpha), gamma)
        noise = chance.uniform(0.95, 1.05)
        times = (gamma * c * STEP * noise, (1 + slope * gamma) * STEP * noise, 0.0)
        policy.observe(step(gamma, accepted, *times))
        chosen.append(gamma)
    return chosen


def step(gamma: int, accepted: int, draft: float, verify: float, other: float) -> Step:
    """A round of which only counts and times matter."""
    unread = (torch.empty(gamma + 1, 1), None, None, None, None)
    return Step([0] * gamma, accepted, 0, accepted + 1, *unread, 0.0, draft, verify, other, None)


def speed(gamma: int, alpha: float, c: float, slope: float) -> float:
    return expected_speedup(expected_tokens(alpha, gamma), gamma, c, 1 + slope * gamma)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize(("c", "slope"), [(0.05, 0.02), (0.1, 0.08), (0.5, 0.02)])
def test_the_chosen_gamma_is_within_five_percent_of_the_best(alpha: float, c: float, slope: float) -> None:
    """Guards the estimate: mean speed at the chosen γ, after the first rounds, against a search."""
    chosen = play(AdaptiveGamma(5, 16), alpha, c, slope, 400)[20:]
    best = max(speed(g, alpha, c, slope) for g in range(1, 17))
    mean = len(chosen) / sum(1 / speed(g, alpha, c, slope) for g in chosen)
    assert mean > 0.95 * best


def test_it_follows_a_text_that_becomes_harder() -> None:
    """Guards the decay: what was accepted a hundred rounds ago must not keep γ high."""
    policy = AdaptiveGamma(5, 16)
    easy = play(policy, 0.95, 0.05, 0.02, 100)
    hard = play(policy, 0.3, 0.05, 0.02, 100)
    assert sum(hard[-50:]) / 50 < 0.5 * sum(easy[-50:]) / 50


def test_it_starts_with_the_gamma_of_the_settings() -> None:
    """Guards the first round, when nothing is known."""
    assert AdaptiveGamma(7, 16).next() == 7


def test_expected_tokens_against_a_sum() -> None:
    """Guards the closed form: 1 + α + … + α^γ."""
    for alpha in (0.0, 0.3, 0.9, 1.0):
        assert expected_tokens(alpha, 6) == pytest.approx(sum(alpha**i for i in range(7)))
