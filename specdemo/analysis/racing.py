"""Which of many contenders is the fastest on average over prompts? A race that drops those beaten beyond doubt.

Work goes on in blocks: one prompt, decoded plainly and by every contender that is still in the race, so that a
prompt, or a machine that slows down, is the same for all of them. Of a block only the logarithms of speed-ups over
its own plain run are kept, and contenders are compared within blocks.

A contender leaves when another's lead over it is proven. The proof is a test martingale for differences of unknown
variance, the t-test's Bayes factor with the right Haar prior on the scale and a normal prior on the standardised
difference; it may be looked at after every block, since by Ville's inequality it exceeds 1/ε with a probability of
at most ε if there is no lead (Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means
with unknown variance", arXiv 2310.03722). With ε = error / (contenders − 1) the chance that the best one is ever
dropped is at most ``error`` (successive elimination: Even-Dar, Mannor and Mansour, JMLR 7, 2006). It assumes
differences that are about normal.

Which γ are tried follows their order: speed-ups have one peak over γ, so the γ next to a drafter's best one enter
the race (Combes and Proutiere, "Unimodal bandits", arXiv 1405.5096). This decides what is measured, never what is
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from specdemo.analysis.contenders import Contender

ERROR = 0.05
"""Chance that a race drops the fastest contender."""
EFFECT = 3.0
"""Standard deviations of the prior on the difference, in those of one block: most leads are larger than noise."""
RESOLUTION = 0.005
"""What differences of two runs scatter by at least; fewer would be a proof by chance."""
REST, FAR, USUAL = 4, 3.0, 0.1
"""Who trails by ``FAR`` standard errors rests in all but each ``REST``-th block; here differences are taken to
scatter by at least ``USUAL``."""
SETTLED = 4
"""Common blocks from which on a lead makes a leader, where the one before has run so often."""
SCOUTING = 2
"""Blocks before neighbours enter."""
FIRST = (2, 4, 8)
"""The γ that begin."""
PLACE_OF_PLAIN = 0
"""The place of plain decoding among the contenders."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A contender left the race.

    Attributes:
        contender, by: the places of the one that left, and of the one that beat it.
        blocks: in which both ran.
        lead: the other's speed over its own, geometric mean.
        certainty: that the other is faster, at least.
    """

    contender: int
    by: int
    blocks: int
    lead: float
    certainty: float


class Race:
    """The state of a race.

    Args:
        contenders: plain decoding first.
        error: chance that it drops the fastest of them.

    Attributes:
        entered: places of those that were ever in the race, in order.
        dropped: what left, by place.
        leader: the one that beats every other on average over the blocks that both ran; plain decoding before any.
    """

    def __init__(self, contenders: Sequence[Contender], error: float = ERROR) -> None:
        self.contenders = tuple(contenders)
        self._least = log(max(len(self.contenders) - 1, 1) / error)
        self._logs = np.full((len(self.contenders), 64), np.nan)
        self._kinds: list[str] = []
        self.leader = PLACE_OF_PLAIN
        self.dropped: dict[int, Dropped] = {}
        first = (
            PLACE_OF_PLAIN,
            *(n for n, c in enumerate(self.contenders) if c.gamma is None or c.gamma in FIRST),
        )
        self.entered = list(dict.fromkeys(first))

    @property
    def blocks(self) -> int:
        """Finished ones."""
        return len(self._kinds)

    @property
    def running(self) -> list[int]:
        """Those that the next block runs: plain decoding, and who is in the race and does not rest."""
        resting = set() if self.blocks % REST == 0 else self.resting
        return [n for n in self.entered if n == PLACE_OF_PLAIN or (n not in self.dropped and n not in resting)]

    @property
    def resting(self) -> set[int]:
        """Those that trail far, though not beyond doubt: they run in every ``REST``-th block only.

        Who runs next is decided before it runs, so that no proof depends on it.
        """
        logs = self._logs[:, : self.blocks]
        places = [n for n in self.live if n not in (PLACE_OF_PLAIN, self.leader)]
        if self.blocks < SCOUTING or not places:
            return set()
        count, mean, variance = _moments(logs[self.leader] - logs[places])
        error = np.maximum(np.sqrt(variance), USUAL) / np.sqrt(np.maximum(count, 1))
        return {n for n, far in zip(places, mean > FAR * error, strict=True) if far}

    @property
    def live(self) -> list[int]:
        """Those that may be the fastest."""
        return [n for n in self.entered if n not in self.dropped]

    @property
    def decided(self) -> bool:
        """Whether a single one is left, and none of its neighbours waits to be tried."""
        return len(self.live) == 1 and not self._waiting()

    def add(self, speedups: dict[int, float], kind: str = "") -> list[Dropped]:
        """Take in a block, and say what it decides.

        Args:
            speedups: of each contender that ran, over the block's plain run.
            kind: of its prompt.
        """
        if self.blocks == self._logs.shape[1]:
            self._logs = np.concatenate([self._logs, np.full_like(self._logs, np.nan)], axis=1)
        for place, speedup in {**speedups, PLACE_OF_PLAIN: 1.0}.items():
            self._logs[place, self.blocks] = log(speedup)
        self._kinds.append(kind)
        self.leader = self._leader(self._measured(), self._logs[:, : self.blocks])
        gone = self._drop()
        if self.blocks >= SCOUTING:
            self.entered += self._waiting()
        return gone

    def behind(self, place: int, by: int, kind: str | None = None) -> Dropped:
        """How sure it is that ``by`` is faster than the one at ``place``, on all prompts or on those of a kind."""
        logs = self._of_kind(kind)
        count, mean, variance = _moments(logs[by] - logs[place])
        evidence = float(log_evidence(count, mean, variance)) if mean > 0 else 0.0
        lead = exp(float(mean)) if count else 1.0
        return Dropped(place, by, int(count), lead, 1 - exp(-max(evidence, 0.0)))

    def best_of_kind(self, kind: str) -> int:
        """The leader on the prompts of one kind."""
        return self._leader(self._measured(), self._of_kind(kind))

    def _of_kind(self, kind: str | None) -> np.ndarray:
        """(contenders, blocks) of the prompts of a kind, None for all."""
        chosen = [place for place, other in enumerate(self._kinds) if kind in (None, other)]
        return self._logs[:, chosen]

    def _measured(self) -> list[int]:
        return [n for n in self.live if n == PLACE_OF_PLAIN or np.isfinite(self._logs[n, : self.blocks]).any()]

    def _leader(self, places: list[int], logs: np.ndarray) -> int:
        """Who has run most often and leads begins; whoever beats it on common blocks takes its place."""
        if not places or not logs.shape[1]:
            return PLACE_OF_PLAIN
        some = logs[places]
        counts = np.isfinite(some).sum(axis=1)
        means = np.nansum(some, axis=1) / np.maximum(counts, 1)
        best = int(np.lexsort((means, counts))[-1])
        for _ in places:
            common, leads, _ = _moments(some - some[best])
            leads = np.where(common >= min(SETTLED, counts[best]), leads, 0.0)
            ahead = int(np.argmax(leads))
            if leads[ahead] <= 0:
                break
            best = ahead
        return places[best]

    def _drop(self) -> list[Dropped]:
        """Drop what the leader beats beyond doubt, unless it is ahead on prompts of some kind."""
        leader, logs = self.leader, self._logs[:, : self.blocks]
        places = np.array([n for n in self.live if n != leader])
        if not places.size:
            return []
        count, mean, variance = _moments(logs[leader] - logs[places])
        proven = (mean > 0) & (log_evidence(count, mean, variance) >= self._least)
        gone = []
        for place in places[proven].tolist():
            if not self._ahead_somewhere(place, leader):
                gone.append(self.behind(place, leader))
                self.dropped[place] = gone[-1]
        return gone

    def _ahead_somewhere(self, place: int, leader: int) -> bool:
        """Whether it leads on the prompts of one kind, at least as far as was measured."""
        kinds = set(self._kinds)
        if len(kinds) < 2:
            return False
        some = (self._of_kind(kind) for kind in kinds)
        return any(_moments(logs[place] - logs[leader])[1] > 0 for logs in some)

    def _waiting(self) -> list[int]:
        """The γ beside the best one of each family that is still near, which were not tried yet."""
        found = []
        awake = set(self.live) - self.resting
        for family in {self.contenders[n].family for n in awake} - {""}:
            line = [n for n, c in enumerate(self.contenders) if c.family == family and c.gamma is not None]
            tried = [n for n in line if n in self.live and np.isfinite(self._logs[n, : self.blocks]).any()]
            if not tried:
                continue
            at = line.index(self._leader(tried, self._logs[:, : self.blocks]))
            found += [n for n in line[max(at - 1, 0) : at + 2] if n not in self.entered]
        return sorted(found)


def log_evidence(count: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log of the test martingale against a mean of 0, for ``count`` differences; 0 for fewer than two.

    With T² = n·mean²/variance, ν = n − 1 and r = 1 + n·EFFECT² it is
    r^{−1/2} · [(1 + T²/ν) / (1 + T²/(νr))]^{n/2}.
    """
    count = np.asarray(count, dtype=float)
    freedom = np.maximum(count - 1, 1)
    scaled = count * np.square(mean) / np.maximum(variance, RESOLUTION**2) / freedom
    widened = 1 + count * EFFECT**2
    found = (count * (np.log1p(scaled) - np.log1p(scaled / widened)) - np.log(widened)) / 2
    return np.where(count >= 2, found, 0.0)


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count, mean and unbiased variance along the last axis, of the values that are there."""
    known = np.isfinite(values)
    count = known.sum(axis=-1)
    filled = np.where(known, values, 0.0)
    mean = filled.sum(axis=-1) / np.maximum(count, 1)
    off = np.where(known, values - mean[..., None], 0.0)
    return count, mean, np.square(off).sum(axis=-1) / np.maximum(count - 1, 1)
