"""A sequential test with a stated error rate: are speculative runs draws of the target's distribution?

A test martingale starts at 1, is never negative and, if the hypothesis holds, neither grows nor shrinks on
average. By Ville's inequality the chance that it *ever* reaches 1/α is then at most α, so it may be looked at
after every pair of runs and stopped at will. A mean of test martingales is one, and this is a mean over suspected
faults, each a distribution r that a faulty rule would draw from in place of the target's p:

    r(x) = p(x)·(1 + λ·z(x)), where the payoff z(x) has the mean 0 for draws of p, and λ is a strength.

* Where p is known (float32), a fault's martingale is Wald's likelihood ratio of the speculative tokens, Π r/p.
* In 16 bit or quantised, where one forward rounds otherwise than another, it is a bet on which run of a pair is
  the speculative one: if both strategies draw from one distribution, the labels are a fair coin, whatever is known
  of the two texts. Who gives the right label the probability g multiplies their stake by 2g; here log(g/(1 − g))
  is the difference of the two runs' log likelihood ratios, which is best if the fault is r. p need not be exact
  then, but twice as many runs are needed.

Wald's test, and Ville's inequality for it: Ramdas et al., "Game-theoretic statistics and safe anytime-valid
inference", arXiv 2210.01948; bets on labels: Podkopaev and Ramdas, "Sequential predictive two-sample and
independence testing", arXiv 2305.00143.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHARES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Of unchecked tokens: faults that a test may be said to find."""
STRENGTHS = (0.05, 0.15, 0.4, 0.9)
"""λ of the suspected faults, for each payoff."""
WARMTHS = (1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
"""Temperatures, as multiples of the right one, that a test of deployments may be said to find."""
RANGE = 5.0  # of log p: tokens less probable than exp(−5) count alike
FAULTS = 7 * len(STRENGTHS)  # each payoff with either sign, but for the first


@dataclass(frozen=True, slots=True, eq=False)
class RunEvidence:
    """What the test uses of a run: functions of its tokens alone, the same for both strategies.

    Attributes:
        tokens: ids of the n tokens after the first one, which the target alone gives in either strategy.
        payoffs: (4, n) z of each token. The first is reference(x)/p(x) − 1, of a rule that takes tokens of the
            reference unchecked. The others are g(x) − Σₓ p(x)·g(x), which lie between −1 and 1, for g the
            reference's probability (with λ = 1 the rule ``naive``), min(1, reference(x)/p(x)) (with λ = 1 a rule
            that draws from p, and not from the residual, after a rejection) and log p over :data:`RANGE` (a
            sharper output, as of a lower temperature or a top-k).
        distance: mean over the places of the total variation distance between reference and p.
        warmer: log Π r/p over the tokens, of r as p is at each of :data:`WARMTHS`; empty where none is sought.
    """

    tokens: tuple[int, ...]
    payoffs: np.ndarray
    distance: float
    warmer: tuple[float, ...] = ()


def run_evidence(
    tokens: Sequence[int], p: np.ndarray, reference: np.ndarray, chosen: np.ndarray, *, warmer: bool = False
) -> RunEvidence:
    """The evidence of a run's n tokens: ``p`` and ``reference`` are (n, choices), ``chosen`` (n,) indexes them."""
    places = np.arange(len(chosen))

    def payoff(g: np.ndarray) -> np.ndarray:
        return g[places, chosen] - (p * g).sum(-1)

    own = p[places, chosen]
    # At the edge of top-k or top-p rounding may cut off what the lane did not: no evidence.
    unchecked = np.where(own > 0, reference[places, chosen] / np.maximum(own, 1e-30) - 1, 0.0)
    logs = np.log(np.maximum(p, math.exp(-RANGE))) / RANGE
    payoffs = [unchecked, payoff(reference), payoff(reference / np.maximum(np.maximum(p, reference), 1e-30))]
    tempered = [p ** (1 / factor) for factor in WARMTHS] if warmer else []
    return RunEvidence(
        tokens=tuple(tokens),
        payoffs=np.stack([*payoffs, payoff(logs)]),
        distance=float(np.abs(p - reference).sum(-1).mean() / 2) if len(p) else 0.0,
        warmer=tuple(
            float(np.log(np.where(own > 0, r[places, chosen] / r.sum(-1) / np.maximum(own, 1e-30), 1.0)).sum())
            for r in tempered
        ),
    )


def likelihood_ratios(run: RunEvidence) -> np.ndarray:
    """log Π r/p over a run's tokens, (FAULTS,); against the first payoff, which has no bound, no fault bets."""
    bets = np.concatenate([run.payoffs, -run.payoffs[1:]])
    return np.log1p(np.multiply.outer(STRENGTHS, bets)).sum(-1).ravel()


def gains(plain: np.ndarray, speculative: np.ndarray, *, exact: bool) -> np.ndarray:
    """By how much a pair of runs multiplies each fault's martingale, as logarithms.

    Args:
        plain, speculative: (…, FAULTS) log likelihood ratios of the runs.
        exact: whether p is known well enough to bet on the tokens, and not on the labels.
    """
    return speculative if exact else math.log(2) - np.logaddexp(0.0, plain - speculative)


class TestMartingale:
    """The evidence against one distribution: the mean of the martingales of all suspected faults.

    ``exact``: as of :func:`gains`.
    """

    __test__ = False  # pytest takes it for a class of tests

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._logs = np.full(FAULTS, -math.log(FAULTS))
        self.pairs = 0
        self.peak = 1.0
        """The most that the martingale ever was."""

    def update(self, plain: RunEvidence, speculative: RunEvidence) -> None:
        """Take in one more pair of runs."""
        self._logs += gains(likelihood_ratios(plain), likelihood_ratios(speculative), exact=self._exact)
        self.pairs += 1
        self.peak = max(self.peak, math.exp(min(float(np.logaddexp.reduce(self._logs)), 700.0)))


@dataclass(frozen=True, slots=True)
class Detectable:
    """A fault that would have been caught 99 times of 100.

    Attributes:
        share: of the places at which the faulty rule takes its token from the reference, unchecked.
        shift: of the probability that this moves at a place: ``share`` times the total variation distance between
            reference and p.
        temperature: of deployments in place of both, which are 0 then: the least, as a multiple of the right one.
    """

    share: float
    shift: float
    temperature: float | None = None


def too_alike(runs: Sequence[RunEvidence], pairs: int, error_rate: float) -> bool:
    """Whether ``runs``, draws of p, leave too little choice for a fault to be found within ``pairs`` pairs.

    A pair shows about as much of a fault as that takes from the probability of such runs, KL(p ‖ r). Tokens of the
    reference that p never draws do not count, since :func:`detectable` cannot make a fault of them either.
    """
    ratios = np.mean([likelihood_ratios(run) for run in runs], axis=0).reshape(len(STRENGTHS), -1)
    return bool(pairs * -ratios[:, 1:].min() < math.log(FAULTS / error_rate))


def detectable(runs: Sequence[RunEvidence], pairs: int, error_rate: float, *, exact: bool) -> Detectable | None:
    """The smallest of :data:`SHARES`, or :data:`WARMTHS`, that this test would have caught within ``pairs`` pairs.

    A faulty rule draws from (1 − s)·p + s·reference at each place. Runs of p, weighted by what this makes of their
    probability, are runs of that rule, so they give the mean μ and the deviation σ of what a pair adds to a
    martingale's logarithm. After n pairs it is above nμ − 2.33·σ·√n in 99 of 100 tests, and the mean over all
    faults is at least a FAULTS-th of the largest martingale. None if no fault could be weighted and caught.

    Args:
        runs: draws of p.
        pairs: the length of the test.
        error_rate: of the test.
        exact: as of :func:`gains`.
    """
    distance = float(np.mean([run.distance for run in runs])) if runs else 0.0
    if distance == 0.0:
        return None
    if runs[0].warmer:
        faults = [Detectable(0.0, 0.0, factor) for factor in WARMTHS]
        likely = np.exp([run.warmer for run in runs]).T
    else:
        faults = [Detectable(share, share * distance) for share in SHARES]
        likely = np.array([[np.prod(1 + share * run.payoffs[0]) for run in runs] for share in SHARES])
    ratios = np.array([likelihood_ratios(run) for run in runs])
    gained = gains(np.roll(ratios, 1, axis=0), ratios, exact=exact)
    for fault, weights in zip(faults, likely, strict=True):
        if weights.sum() ** 2 <= 20 * (weights**2).sum():  # Kish's effective sample size
            return None  # so strong a fault cannot be made of these runs
        weights = weights / weights.sum()
        mean = weights @ gained
        deviation = np.sqrt(weights @ (gained - mean) ** 2)
        if (pairs * mean - 2.33 * math.sqrt(pairs) * deviation).max() >= math.log(FAULTS / error_rate):
            return fault
    return None
