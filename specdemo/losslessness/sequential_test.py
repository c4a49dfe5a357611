"""A test by betting: which of two unlabelled texts is the speculative one, and is it a draw of the target's p?

Plain and speculative runs come in pairs, drawn apart from each other. If both strategies draw from one
distribution, nobody can tell the two texts of a pair apart: whatever is known of them and of all pairs before,
the labels are a fair coin. A guesser who says "this one, with probability g" and is paid 2g or 2(1 − g) then
keeps its capital on average, so capital is a test martingale, and by Ville's inequality the chance that it
*ever* grows from 1 to 1/α is at most α. It may be looked at after every pair and stopped at will; nothing is
assumed of the models, of their numbers or of the sample's size. This is the two-sample test, with half of the
stake.

The other half knows more: the target's own probabilities of every next token. It bets on the speculative runs
alone, at odds that are fair if each token is a draw of p: a token x is paid r(x)/p(x) for any distribution r.
With r what a suspected fault would draw from, that is the likelihood ratio of Wald's sequential test, and by
the same inequality it rarely grows; it needs half as many runs. The average of fair capitals is fair.

Shekhar and Ramdas, "Nonparametric two-sample testing by betting", arXiv 2112.09162; guessers that predict the
label: Podkopaev and Ramdas, "Sequential predictive two-sample and independence testing", arXiv 2305.00143;
Ville's inequality and averages of capitals: Ramdas et al., "Game-theoretic statistics and safe anytime-valid
inference", arXiv 2210.01948.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

BOLDNESS = (0.2, 0.5, 1.0, 1.6)
"""How many standard deviations apart a guesser thinks the two strategies are, in a run."""
SUSPECTED, UNSUSPECTED, COUNTING, EXACT = 0.35, 0.05, 0.1, 0.5
"""Shares of the first stake: guessers by what every faulty rule does, by its contrary and by token counts; bets at
the target's exact odds."""
TAKEN = (0.05, 0.15, 0.4, 0.8)
"""Shares of tokens taken from the reference unchecked, on which the exact bets are placed."""
TILTS = (-0.5, 0.5, 1.0)
"""Strengths λ of the fault p(x)·(1 + λ(g(x) − Σp·g)), g the reference's probability; λ = 1 is the rule naive."""
PRIOR_COUNT = 3.0  # of each token in either heap, before any was seen


@dataclass(frozen=True, slots=True)
class Clues:
    """What guessers may know of a run: functions of its tokens alone, the same for both strategies.

    Attributes:
        tokens: ids of the tokens after the first one, which the target alone gives in either strategy.
        leanings: how far the run's tokens lean towards what a faulty rule would favour, each the sum over its
            tokens of g(x) − Σₓ p(x)·g(x), so that it is 0 on average for draws of p.
        variances: of the leanings, by p's own distributions.
        ratios: reference(x)/p(x) of each token.
        tilts: g(x) − Σₓ p(x)·g(x) of each token, g the reference's probability.
        distance: mean over the places of the total variation distance between reference and p.
    """

    tokens: tuple[int, ...]
    leanings: tuple[float, ...]
    variances: tuple[float, ...]
    ratios: tuple[float, ...]
    tilts: tuple[float, ...]
    distance: float


def standardised(plain: np.ndarray, speculative: np.ndarray) -> np.ndarray:
    """How much further the speculative runs lean, in standard deviations of a run.

    Both are (…, 2, K): leanings, then variances. The scale looks at both runs alike and does not tell the labels.
    """
    scale = np.sqrt((plain[..., 1, :] + speculative[..., 1, :]) / 2)
    return (speculative[..., 0, :] - plain[..., 0, :]) / np.maximum(scale, 1e-9)


def log_gains(differences: np.ndarray) -> np.ndarray:
    """log 2g of all guessers for standardised differences (…, K); shape (…, 2·len(BOLDNESS)·K), suspected first.

    With runs that lie d deviations apart and scatter as a normal distribution, log(g/(1 − g)) is d times the
    difference.
    """
    suspected = differences[..., None] * np.array(BOLDNESS)
    odds = np.concatenate([suspected, -suspected], axis=-2)
    return (math.log(2) - np.logaddexp(0.0, -odds)).reshape(*differences.shape[:-1], -1)


def log_stakes(leanings: int) -> np.ndarray:
    """log of the first stakes of the guessers of :func:`log_gains`."""
    each = leanings * len(BOLDNESS)
    return np.log(np.repeat([SUSPECTED / each, UNSUSPECTED / each], each))


def exact_gains(run: Clues) -> np.ndarray:
    """log of what the exact bets make of a run: Σ log r(x)/p(x). Shape (len(TAKEN) + len(TILTS),)."""
    ratios = np.array(run.ratios)
    tilts = np.maximum(run.tilts, -1 + 1e-12)  # rounding must not make of a lost stake a debt
    taken = [np.log(1 - share + share * ratios).sum() for share in TAKEN]
    return np.array(taken + [np.log1p(tilt * tilts).sum() for tilt in TILTS])


def exact_stakes() -> np.ndarray:
    """log of the first stakes of the bets of :func:`exact_gains`."""
    count = len(TAKEN) + len(TILTS)
    return np.full(count, math.log(EXACT / count))


class Bets:
    """Many bettors with a share of the stake each; their whole capital is the evidence against equality.

    Args:
        leanings: how many a run has.
        exact: whether p is known well enough to be bet on: in 16 bit or quantised, one forward rounds otherwise
            than another, so those who would bet on it keep their stake.
    """

    def __init__(self, leanings: int, *, exact: bool = True) -> None:
        self._bets_on_p = exact
        self._guessers = log_stakes(leanings)
        self._exact = exact_stakes()
        self._counting = math.log(COUNTING)
        self._counts: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        self.pairs = 0
        self.capital = 1.0
        """What a first stake of 1 has become."""
        self.best = 1.0
        """The most it ever was."""

    def see(self, plain: Clues, speculative: Clues) -> None:
        """Bet on one more pair."""
        runs = [np.array([run.leanings, run.variances]) for run in (plain, speculative)]
        self._guessers = self._guessers + log_gains(standardised(*runs))
        if self._bets_on_p:
            self._exact = self._exact + exact_gains(speculative)
        odds = self._by_counts(speculative) - self._by_counts(plain)
        self._counting += math.log(2) - float(np.logaddexp(0.0, -odds))
        for counts, run in zip(self._counts, (plain, speculative), strict=True):
            counts.update(run.tokens)
        self.pairs += 1
        logs = np.concatenate([self._guessers, self._exact, [self._counting]])
        self.capital = math.exp(min(float(np.logaddexp.reduce(logs)), 700.0))
        self.best = max(self.best, self.capital)

    def _by_counts(self, run: Clues) -> float:
        """log odds that the run is speculative, by how often each of its tokens came in either heap before."""
        plain, speculative = self._counts
        return sum(math.log((speculative[t] + PRIOR_COUNT) / (plain[t] + PRIOR_COUNT)) for t in run.tokens)
