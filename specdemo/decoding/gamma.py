"""How many tokens to draft in the next round."""

from __future__ import annotations

from specdemo.decoding.lane import RawRound
from specdemo.settings import MAX_GAMMA, Settings
from specdemo.theory import expected_tokens

DECAY = 0.9  # of what older rounds count, per round
PRIOR_TESTED, PRIOR_ALPHA = 4.0, 0.7  # what acceptance is taken for before anything was tested
TRIAL_ROUNDS = 6
"""Rounds that draft before drafting may pause."""
PAUSES = (8, 64)
"""Rounds of the first pause, and of the longest: each is twice as long as the one before."""
PAYS = 0.98
"""Drafting pauses where its best promises less than this share of plain decoding's speed."""


class Line:
    """A straight line by least squares in which older points count less; flat while all points have one x."""

    def __init__(self) -> None:
        self.weight = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        self.weight = DECAY * self.weight + 1
        self._x = DECAY * self._x + x
        self._y = DECAY * self._y + y
        self._xx = DECAY * self._xx + x * x
        self._xy = DECAY * self._xy + x * y

    def at(self, x: float) -> float:
        """The line's height, at least a little above 0 whatever noise made of the slope."""
        mean_x, mean_y = self._x / self.weight, self._y / self.weight
        spread = self._xx / self.weight - mean_x**2
        slope = (self._xy / self.weight - mean_x * mean_y) / spread if spread > 1e-6 else 0.0
        # More tokens in one forward never take less time: a negative slope is noise.
        return max(mean_y + max(slope, 0.0) * (x - mean_x), 0.05 * mean_y)


class Costs:
    """What rounds cost: the mean seconds of a drafted token, and a line through those of all else."""

    def __init__(self) -> None:
        self._draft, self._rest = Line(), Line()

    @property
    def known(self) -> bool:
        """Whether anything was drafted yet."""
        return bool(self._draft.weight)

    def observe(self, drafted: int, draft_seconds: float, rest_seconds: float) -> None:
        if drafted:
            self._draft.add(0, draft_seconds / drafted)
        self._rest.add(drafted, rest_seconds)

    def of(self, gamma: int) -> float:
        """Seconds of a round with γ drafted tokens."""
        return gamma * self._draft.at(0) + self._rest.at(gamma)


class GammaPolicy:
    """A lane's γ: that of the settings, or with ``adaptive_gamma`` the one with the most expected tokens a second.

    That maximises (1 − α^{γ+1})/(1 − α) over γ·d + V(γ) (Leviathan et al., arXiv 2211.17192, equation 1 over the
    time of a round): α is the decayed share of this lane's tested tokens that passed, d the decayed seconds of a
    drafted token, V(γ) the seconds of a verify and of all else, a straight line through the decayed observations.

    Where even the best γ promises less than the target alone, 1/V(0), a lane of its own decodes plainly for some
    rounds and then tries again. That measures V(0) too, which is not overrated before.

    Args:
        settings: of the lane; an adaptive γ is theirs until something was measured.
        shared: the costs of a batch, which the batch itself tells of its rounds; None learns them from the lane.
    """

    def __init__(self, settings: Settings, shared: Costs | None = None) -> None:
        self._start, self._adaptive = settings.gamma, settings.adaptive_gamma
        self._passed, self._tested = PRIOR_ALPHA * PRIOR_TESTED, PRIOR_TESTED
        self._costs, self._learns = shared or Costs(), shared is None
        self._tried = self._left = 0  # rounds that drafted since the last pause, and rounds left of this one
        self._pause = PAUSES[0]

    def next(self, remaining: int) -> int:
        """Tokens to draft in the next round, fewer than ``remaining``: it also emits one of the target's own."""
        return min(self._adapted() if self._adaptive else self._start, remaining - 1)

    def _adapted(self) -> int:
        if not self._costs.known:
            return self._start
        if self._left:
            return 0
        alpha = min(self._passed / self._tested, 0.999)

        def rate(gamma: int) -> float:
            return expected_tokens(alpha, gamma) / self._costs.of(gamma)

        best = max(range(1, MAX_GAMMA + 1), key=rate)
        if not self._learns or self._tried < TRIAL_ROUNDS:
            return best
        if rate(best) >= PAYS * rate(0):
            self._pause = PAUSES[0]
            return best
        self._left, self._pause, self._tried = self._pause, min(2 * self._pause, PAUSES[1]), 0
        return 0

    def observe(self, raw: RawRound) -> None:
        accepted, drafted = raw.accepted, len(raw.drafted)
        self._left = max(self._left - 1, 0)
        self._tried += bool(drafted)
        if drafted:
            self._passed = DECAY * self._passed + accepted
            self._tested = DECAY * self._tested + min(accepted + 1, drafted)
        if self._learns:
            self._costs.observe(drafted, raw.phases["draft"], raw.phases["verify"] + raw.phases["other"])
