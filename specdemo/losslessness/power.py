"""What a test that found nothing would have found: the test repeated on faulty rules made of its own runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdemo.losslessness.sequential_test import (
    RunEvidence,
    label_factors,
    label_weights,
    likelihood_factors,
    likelihood_weights,
    standardised,
)

SHARES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
REPEATS = 400
CAUGHT = 0.99
LEAST_EFFECTIVE = 20.0  # runs that the reweighted sample must be worth
LARGEST_SAMPLE = 100_000  # pairs times repeats at once, to bound the memory


@dataclass(frozen=True, slots=True)
class Detectable:
    """A fault that would have been caught 99 times of 100.

    Attributes:
        share: of the places at which the faulty rule takes its token from the reference, unchecked.
        shift: of the probability that this moves at a place: ``share`` times the total variation distance between
            reference and p.
    """

    share: float
    shift: float


def detectable(
    runs: Sequence[RunEvidence], pairs: int, error_rate: float, seed: int = 0, *, exact: bool = True
) -> Detectable | None:
    """The smallest fault of :data:`SHARES` that this test would have caught within ``pairs`` pairs.

    A faulty rule draws from (1 − s)·p + s·reference at each place. Runs of p, reweighted by what this makes of
    their probability, are runs of that rule (importance resampling); the whole sequential test is repeated on them
    :data:`REPEATS` times. The predictor that counts tokens is left out, so the truth is a little better. None if
    no fault could be simulated and caught.

    Args:
        runs: draws of p.
        pairs: the length of the test.
        error_rate: of the test.
        seed: of the resampling.
        exact: as of :class:`specdemo.losslessness.sequential_test.TestMartingale`.
    """
    if len(runs) < LEAST_EFFECTIVE:
        return None
    scores = np.array([[run.scores, run.variances] for run in runs])
    ratios = np.array([likelihood_factors(run) for run in runs]) * exact
    distance = float(np.mean([run.distance for run in runs]))
    low, high = 0, len(SHARES)
    while low < high:  # what catches a share catches a larger one
        middle = (low + high) // 2
        weights = _weights(runs, SHARES[middle])
        simulated = _worth(weights) >= LEAST_EFFECTIVE
        if not simulated or _caught(scores, ratios, weights, pairs, error_rate, seed) >= CAUGHT:
            high = middle
        else:
            low = middle + 1
    if low == len(SHARES) or distance == 0.0:
        return None
    if _worth(_weights(runs, SHARES[low])) < LEAST_EFFECTIVE:
        return None  # so strong a fault cannot be made of these runs
    return Detectable(SHARES[low], SHARES[low] * distance)


def _weights(runs: Sequence[RunEvidence], share: float) -> np.ndarray:
    return np.array([np.prod([1 - share + share * r for r in run.ratios]) for run in runs])


def _worth(weights: np.ndarray) -> float:
    """How many runs of one weight the weighted ones are worth (Kish's effective sample size)."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if weights.any() else 0.0


def _caught(
    scores: np.ndarray, ratios: np.ndarray, weights: np.ndarray, pairs: int, error_rate: float, seed: int
) -> float:
    """Share of the repetitions in which the martingale reaches 1/error_rate.

    ``scores`` (runs, 2, K) are the runs' scores and variances, ``ratios`` (runs, faults) log likelihood ratios.
    """
    draws = np.random.default_rng(seed)
    chances = weights / weights.sum()
    means = np.concatenate([label_weights(scores.shape[-1]), likelihood_weights()])
    at_once = max(1, LARGEST_SAMPLE // pairs)
    caught = 0
    for begin in range(0, REPEATS, at_once):
        shape = (min(at_once, REPEATS - begin), pairs)
        plain = draws.integers(len(scores), size=shape)
        speculative = draws.choice(len(scores), size=shape, p=chances)
        factors = [label_factors(standardised(scores[plain], scores[speculative])), ratios[speculative]]
        evidence = np.logaddexp.reduce(np.cumsum(np.concatenate(factors, axis=-1), axis=1) + means, axis=-1)
        caught += int((evidence.max(axis=1) >= -np.log(error_rate)).sum())
    return caught / REPEATS
