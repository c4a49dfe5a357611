"""How many tokens to draft in the next round."""

from __future__ import annotations

from typing import Protocol

from specdemo.decoding.lane import Step
from specdemo.settings import MAX_GAMMA, Settings
from specdemo.theory import expected_tokens

DECAY = 0.9  # of what older rounds count, per round
PRIOR_TESTED, PRIOR_ALPHA = 4.0, 0.7  # what acceptance is taken for before anything was tested


class GammaPolicy(Protocol):
    """Chooses γ before a round and sees what came of it."""

    def next(self) -> int:
        """Tokens to draft in the next round."""

    def observe(self, step: Step) -> None:
        """A round ended."""


class FixedGamma:
    """The γ of the settings, always."""

    def __init__(self, gamma: int) -> None:
        self._gamma = gamma

    def next(self) -> int:
        return self._gamma

    def observe(self, step: Step) -> None:
        """Nothing to learn."""


class Costs:
    """What rounds cost: the decayed seconds of a drafted token, and a line through those of all else."""

    def __init__(self) -> None:
        self._draft = _Decayed()
        self._rest = _Line()

    @property
    def known(self) -> bool:
        """Whether anything was drafted yet."""
        return bool(self._draft.weight and self._rest.weight)

    def observe(self, drafted: int, draft_seconds: float, rest_seconds: float) -> None:
        """A round ended that drafted so many tokens."""
        if drafted:
            self._draft.add(draft_seconds / drafted)
        self._rest.add(drafted, rest_seconds)

    def of(self, gamma: int) -> float:
        """Seconds of a round with γ drafted tokens."""
        return gamma * self._draft.mean + self._rest.at(gamma)


class AdaptiveGamma:
    """The γ with the most expected tokens a second, from what this lane's own rounds cost and kept.

    Maximises (1 − α^{γ+1})/(1 − α) over γ·d + V(γ) (Leviathan et al., arXiv 2211.17192, equation 1 over the time
    of a round): α is the decayed share of tested tokens that passed, d the decayed seconds of a drafted token,
    V(γ) the seconds of a verify and of all else, a straight line through the decayed observations.

    Args:
        start: γ until something was measured.
        longest: γ at most.
        shared: the costs of a batch, which the batch itself tells of its rounds; None learns them from the lane.
    """

    def __init__(self, start: int, longest: int, shared: Costs | None = None) -> None:
        self._start, self._longest = start, longest
        self._passed, self._tested = PRIOR_ALPHA * PRIOR_TESTED, PRIOR_TESTED
        self._costs, self._learns = shared or Costs(), shared is None

    def next(self) -> int:
        if not self._costs.known:
            return self._start
        alpha = min(self._passed / self._tested, 0.999)

        def rate(gamma: int) -> float:
            return expected_tokens(alpha, gamma) / self._costs.of(gamma)

        return max(range(1, self._longest + 1), key=rate)

    def observe(self, step: Step) -> None:
        accepted, drafted = step.outcome.accepted, len(step.outcome.drafted)
        if drafted:
            self._passed = DECAY * self._passed + accepted
            self._tested = DECAY * self._tested + min(accepted + 1, drafted)
        if self._learns:
            self._costs.observe(drafted, step.phases["draft"], step.phases["verify"] + step.phases["other"])


def gamma_policy(settings: Settings, shared: Costs | None = None) -> GammaPolicy:
    """What these settings ask for; adaptive γ starts at the settings' γ."""
    if not settings.adaptive_gamma:
        return FixedGamma(settings.gamma)
    return AdaptiveGamma(settings.gamma, MAX_GAMMA, shared)


class _Decayed:
    """A mean in which older values count less."""

    def __init__(self) -> None:
        self.weight = self._sum = 0.0

    def add(self, value: float) -> None:
        self.weight = DECAY * self.weight + 1
        self._sum = DECAY * self._sum + value

    @property
    def mean(self) -> float:
        return self._sum / self.weight


class _Line:
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
