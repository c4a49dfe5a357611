"""A sequential test with a stated error rate: do plain and speculative runs come from one distribution?

A test martingale starts at 1, is never negative and, if the hypothesis holds, neither grows nor shrinks on
average. By Ville's inequality the chance that it *ever* reaches 1/α is then at most α, so it may be looked at
after every pair of runs and stopped at will. Nothing is assumed of the models, their numbers or the size of the
sample. A weighted mean of test martingales is one. Here it is a mean of two kinds:

* The two-sample half looks at pairs of a plain and a speculative run, drawn apart from each other. If both
  strategies draw from one distribution, the labels of a pair are a fair coin, whatever is known of its two
  texts and of all pairs before. A predictor that gives the right label the probability g multiplies its
  martingale by 2g.
* The likelihood half looks at the speculative runs alone and needs the target's own probabilities p. If each
  token is a draw of p, the ratio r(x)/p(x) is 1 on average for any distribution r. With r what a suspected
  fault would draw from, this is the likelihood ratio of Wald's sequential test. It needs half as many runs.

Shekhar and Ramdas, "Nonparametric two-sample testing by betting", arXiv 2112.09162; predictors of the label:
Podkopaev and Ramdas, "Sequential predictive two-sample and independence testing", arXiv 2305.00143; Ville's
inequality and means of martingales: Ramdas et al., "Game-theoretic statistics and safe anytime-valid
inference", arXiv 2210.01948.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

EFFECTS = (0.2, 0.5, 1.0, 1.6)
"""By how many standard deviations of a run a predictor assumes that the two strategies differ."""
EXPECTED, OPPOSITE, COUNTS, LIKELIHOOD = 0.35, 0.05, 0.1, 0.5
"""Weights in the mean: predictors by the direction in which faulty rules err, by its opposite and by token counts;
likelihood ratios."""
TAKEN = (0.05, 0.15, 0.4, 0.8)
"""Suspected faults: shares of tokens taken from the reference unchecked."""
TILTS = (-0.5, 0.5, 1.0)
"""Suspected faults: strengths λ of p(x)·(1 + λ(g(x) − Σp·g)), g the reference's probability; 1 is ``naive``."""
PRIOR_COUNT = 3.0  # of each token in either group of runs, before any was seen


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What the test uses of a run: functions of its tokens alone, the same for both strategies.

    Attributes:
        tokens: ids of the tokens after the first one, which the target alone gives in either strategy.
        scores: for each function g that a faulty rule would favour, the sum over the run's tokens of
            g(x) − Σₓ p(x)·g(x), which is 0 on average for draws of p.
        variances: of the scores, by p's own distributions.
        ratios: reference(x)/p(x) of each token.
        tilts: g(x) − Σₓ p(x)·g(x) of each token, g the reference's probability.
        distance: mean over the places of the total variation distance between reference and p.
    """

    tokens: tuple[int, ...]
    scores: tuple[float, ...]
    variances: tuple[float, ...]
    ratios: tuple[float, ...]
    tilts: tuple[float, ...]
    distance: float


def standardised(plain: np.ndarray, speculative: np.ndarray) -> np.ndarray:
    """Differences of the scores of speculative and plain runs, in standard deviations of a run.

    Both are (…, 2, K): scores, then variances. The scale treats both runs alike and does not tell the labels.
    """
    scale = np.sqrt((plain[..., 1, :] + speculative[..., 1, :]) / 2)
    return (speculative[..., 0, :] - plain[..., 0, :]) / np.maximum(scale, 1e-9)


def label_factors(differences: np.ndarray) -> np.ndarray:
    """log 2g of all predictors by scores, for standardised differences (…, K).

    With runs that lie d deviations apart and scatter as a normal distribution, log(g/(1 − g)) is d times the
    difference.

    Returns:
        (…, 2·len(EFFECTS)·K), the expected direction before the opposite one.
    """
    expected = differences[..., None] * np.array(EFFECTS)
    odds = np.concatenate([expected, -expected], axis=-2)
    return (math.log(2) - np.logaddexp(0.0, -odds)).reshape(*differences.shape[:-1], -1)


def label_weights(scores: int) -> np.ndarray:
    """log of the weights of the predictors of :func:`label_factors`."""
    each = scores * len(EFFECTS)
    return np.log(np.repeat([EXPECTED / each, OPPOSITE / each], each))


def likelihood_factors(run: RunEvidence) -> np.ndarray:
    """Σ log r(x)/p(x) of a run, for the r of each suspected fault; shape (len(TAKEN) + len(TILTS),)."""
    ratios = np.array(run.ratios)
    tilts = np.maximum(run.tilts, -1 + 1e-12)  # rounding must not make a factor negative
    taken = [np.log(1 - share + share * ratios).sum() for share in TAKEN]
    return np.array(taken + [np.log1p(tilt * tilts).sum() for tilt in TILTS])


def likelihood_weights() -> np.ndarray:
    """log of the weights of the likelihood ratios of :func:`likelihood_factors`."""
    count = len(TAKEN) + len(TILTS)
    return np.full(count, math.log(LIKELIHOOD / count))


class TestMartingale:
    """The evidence against one distribution: a weighted mean of many test martingales.

    Args:
        scores: how many a run has.
        exact: whether p is known well enough for likelihood ratios. In 16 bit or quantised, one forward rounds
            otherwise than another; their martingales then stay at 1.
    """

    __test__ = False  # pytest takes it for a class of tests

    def __init__(self, scores: int, *, exact: bool = True) -> None:
        self._uses_likelihoods = exact
        self._by_scores = label_weights(scores)
        self._by_likelihood = likelihood_weights()
        self._by_counts = math.log(COUNTS)
        self._counts: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        self.pairs = 0
        self.peak = 1.0
        """The most that the martingale ever was."""

    def update(self, plain: RunEvidence, speculative: RunEvidence) -> None:
        """Take in one more pair of runs."""
        runs = [np.array([run.scores, run.variances]) for run in (plain, speculative)]
        self._by_scores = self._by_scores + label_factors(standardised(*runs))
        if self._uses_likelihoods:
            self._by_likelihood = self._by_likelihood + likelihood_factors(speculative)
        odds = self._count_odds(speculative) - self._count_odds(plain)
        self._by_counts += math.log(2) - float(np.logaddexp(0.0, -odds))
        for counts, run in zip(self._counts, (plain, speculative), strict=True):
            counts.update(run.tokens)
        self.pairs += 1
        logs = np.concatenate([self._by_scores, self._by_likelihood, [self._by_counts]])
        self.peak = max(self.peak, math.exp(min(float(np.logaddexp.reduce(logs)), 700.0)))

    def _count_odds(self, run: RunEvidence) -> float:
        """log odds that the run is speculative, by how often either strategy gave each of its tokens before."""
        plain, speculative = self._counts
        return sum(math.log((speculative[t] + PRIOR_COUNT) / (plain[t] + PRIOR_COUNT)) for t in run.tokens)
