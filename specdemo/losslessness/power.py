"""What a test that found nothing would have found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdemo.losslessness.sequential_test import FAULTS, RunEvidence, gains, likelihood_ratios

SHARES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
Z = 2.33
"""A normal variable lies above −Z deviations 99 times of 100."""
LEAST_EFFECTIVE = 20.0  # runs that the reweighted ones must be worth


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


def detectable(runs: Sequence[RunEvidence], pairs: int, error_rate: float, *, exact: bool) -> Detectable | None:
    """The smallest fault of :data:`SHARES` that this test would have caught within ``pairs`` pairs.

    A faulty rule draws from (1 − s)·p + s·reference at each place. Runs of p, weighted by what this makes of their
    probability, are runs of that rule, so they give the mean μ and the deviation σ of what a pair adds to a
    martingale's logarithm. After n pairs it is above nμ − Z·σ·√n in 99 of 100 tests, and the mean over all faults
    is at least a FAULTS-th of the largest martingale. None if no fault could be weighted and caught.

    Args:
        runs: draws of p.
        pairs: the length of the test.
        error_rate: of the test.
        exact: as of :class:`specdemo.losslessness.sequential_test.TestMartingale`.
    """
    distance = float(np.mean([run.distance for run in runs])) if runs else 0.0
    if distance == 0.0:
        return None
    ratios = np.array([likelihood_ratios(run) for run in runs])
    gained = gains(np.roll(ratios, 1, axis=0), ratios, exact=exact)
    for share in SHARES:
        weights = np.array([np.prod(1 + share * run.payoffs[0]) for run in runs])
        if weights.sum() ** 2 <= LEAST_EFFECTIVE * (weights**2).sum():  # Kish's effective sample size
            return None  # so strong a fault cannot be made of these runs
        weights /= weights.sum()
        mean = weights @ gained
        deviation = np.sqrt(weights @ (gained - mean) ** 2)
        if (pairs * mean - Z * math.sqrt(pairs) * deviation).max() >= math.log(FAULTS / error_rate):
            return Detectable(share, share * distance)
    return None
