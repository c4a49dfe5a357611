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

Which γ are tried follows their order: speed-ups have one peak over γ, and over ``p_min``, so what is one step from
a drafter's best one enters the race (Combes and Proutiere, "Unimodal bandits", arXiv 1405.5096), and twice its γ
where that is the largest tried. This decides what is measured, never what is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log, log1p, sqrt
from statistics import fmean

from specdemo.analysis.contenders import P_MINS, Contender

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
FIRST = ((2, 0.0), (4, 0.0), (8, 0.0), (8, P_MINS[0]))
"""γ and ``p_min`` of those that begin."""
PLACE_OF_PLAIN = 0
"""The place of plain decoding among the contenders."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a contender stands against another.

    Attributes:
        contender, by: their places.
        blocks: in which both ran.
        lead: the other's speed over its own, geometric mean.
        evidence: that the other is faster, as the logarithm of the test martingale.
    """

    contender: int
    by: int
    blocks: int
    lead: float
    evidence: float

    @property
    def certainty(self) -> float:
        """That the other is faster, at least."""
        return 1 - exp(-max(self.evidence, 0.0))


class Race:
    """The state of a race.

    Attributes:
        contenders: plain decoding first.
        entered: places of those that were ever in the race, in order.
        dropped: what left, by place.
        leader: the one that beats every other on average over the blocks that both ran; plain decoding before any.
    """

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self.contenders = tuple(contenders)
        self._least = log(max(len(self.contenders) - 1, 1) / ERROR)
        self._blocks: list[tuple[str, dict[int, float]]] = []  # kind, and log of speed-up by place
        self.leader = PLACE_OF_PLAIN
        self.dropped: dict[int, Standing] = {}
        first = (n for n, c in enumerate(self.contenders) if c.gamma is None or (c.gamma, c.p_min) in FIRST)
        self.entered = list(dict.fromkeys((PLACE_OF_PLAIN, *first)))

    @property
    def blocks(self) -> int:
        """Finished ones."""
        return len(self._blocks)

    @property
    def live(self) -> list[int]:
        """Those that may be the fastest."""
        return [n for n in self.entered if n not in self.dropped]

    @property
    def running(self) -> list[int]:
        """Those that the next block runs: plain decoding, and who is in the race and does not rest."""
        resting = self.resting if self.blocks % REST else set()
        return list(dict.fromkeys((PLACE_OF_PLAIN, *(n for n in self.live if n not in resting))))

    @property
    def resting(self) -> set[int]:
        """Those that trail far, though not beyond doubt.

        Who runs next is decided before it runs, so that no proof depends on it.
        """
        found = set()
        for place in self.live:
            leads = self._leads(place, self.leader)
            if self.blocks >= SCOUTING and len(leads) and place not in (PLACE_OF_PLAIN, self.leader):
                error = max(sqrt(_variance(leads)), USUAL) / sqrt(len(leads))
                found |= {place} if fmean(leads) > FAR * error else set()
        return found

    @property
    def decided(self) -> bool:
        """Whether a single one is left, and none of its neighbours waits to be tried."""
        return len(self.live) == 1 and not self._waiting()

    def add(self, speedups: dict[int, float], kind: str = "") -> None:
        """Take in a block.

        Args:
            speedups: of each contender that ran, over the block's plain run.
            kind: of its prompt.
        """
        self._blocks.append((kind, {place: log(s) for place, s in {**speedups, PLACE_OF_PLAIN: 1.0}.items()}))
        self.leader = self.best(self.live)
        kinds = {kind for kind, _ in self._blocks}
        for place in self.live:
            standing = self.behind(place, self.leader)
            # Who is ahead on the prompts of some kind stays.
            ahead = any(self.behind(place, self.leader, kind).lead < 1 for kind in kinds)
            if standing.evidence >= self._least and not ahead:
                self.dropped[place] = standing
        if self.blocks >= SCOUTING:
            self.entered += self._waiting()

    def behind(self, place: int, by: int, kind: str | None = None) -> Standing:
        """How sure it is that ``by`` is faster than the one at ``place``, on all prompts or on those of a kind."""
        found = self._leads(place, by, kind)
        mean = fmean(found) if found else 0.0
        evidence = log_evidence(len(found), mean, _variance(found)) if mean > 0 else 0.0
        return Standing(place, by, len(found), exp(mean), evidence)

    def _leads(self, place: int, by: int, kind: str | None = None) -> list[float]:
        """log of the speed of ``by`` over the other's, in each block that both ran."""
        return [b[by] - b[place] for of, b in self._blocks if kind in (None, of) and place in b and by in b]

    def best(self, places: Sequence[int], kind: str | None = None) -> int:
        """The fastest of these, on all prompts or on those of a kind.

        Who has run most often and leads begins; whoever beats it on common blocks takes its place.
        """
        logs = {n: [b[n] for of, b in self._blocks if kind in (None, of) and n in b] for n in places}
        tried = [n for n, values in logs.items() if values]
        if not tried:
            return PLACE_OF_PLAIN
        best = max(tried, key=lambda n: (len(logs[n]), fmean(logs[n])))
        for _ in tried:
            common = {n: self._leads(best, n, kind) for n in tried}
            leads = {n: fmean(some) for n, some in common.items() if len(some) >= min(SETTLED, len(logs[best]))}
            ahead = max(leads, key=leads.__getitem__)
            if leads[ahead] <= 0:
                break
            best = ahead
        return best

    def _waiting(self) -> list[int]:
        """What is a step of γ or ``p_min`` from the best of each family that is still near, and was not tried."""
        found = set()
        for family in {self.contenders[n].family for n in {*self.live} - self.resting} - {""}:
            grid = {n: c for n, c in enumerate(self.contenders) if c.family == family and c.gamma is not None}
            gammas, p_mins = (sorted({getattr(c, name) for c in grid.values()}) for name in ("gamma", "p_min"))
            places = {n: (gammas.index(c.gamma), p_mins.index(c.p_min)) for n, c in grid.items()}
            tried = [n for n in grid if n in self.live and any(n in block for _, block in self._blocks)]
            for some in filter(None, (tried, [n for n in tried if not grid[n].p_min])):
                best = self.best(some)
                gamma, p_min = places[best]
                found |= {n for n, (g, p) in places.items() if abs(g - gamma) + abs(p - p_min) == 1}
                if gammas[gamma] == max(grid[n].gamma or 0 for n in some):
                    twice = 2 * gammas[gamma], grid[best].p_min
                    found |= {n for n, c in grid.items() if (c.gamma, c.p_min) == twice}
        return sorted(found - {*self.entered})


def log_evidence(count: int, mean: float, variance: float) -> float:
    """log of the test martingale against a mean of 0, for ``count`` differences; 0 for fewer than two.

    With T² = n·mean²/variance, ν = n − 1 and r = 1 + n·EFFECT² it is
    r^{−1/2} · [(1 + T²/ν) / (1 + T²/(νr))]^{n/2}.
    """
    if count < 2:
        return 0.0
    scaled = count * mean**2 / max(variance, RESOLUTION**2) / (count - 1)
    widened = 1 + count * EFFECT**2
    return (count * (log1p(scaled) - log1p(scaled / widened)) - log(widened)) / 2


def _variance(values: Sequence[float]) -> float:
    """Unbiased; 0 of fewer than two."""
    mean = fmean(values) if values else 0.0
    return fsum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
