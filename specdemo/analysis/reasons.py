"""The reasons why a lane may be fast or slow, as a table: specific ones before general ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdemo.analysis.wording import ratio

PAYS = 1.05
"""The smallest speed-up that counts as one."""
MUCH_OVERHEAD = 0.2
FEW_DRAFTS = 0.35
COSTLY_DRAFT = 0.3
COSTLY_CHECK = 1.6
LEAST_CHECK = 0.9
"""No target checks several tokens in less than one step; a measured v(γ) below this is an accident of timing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured of a lane, and the speed-up that follows from it.

    Attributes:
        speedup: its decode speed over the baseline's.
        predicted: the speed-up that acceptance and costs lead to.
        rate: acceptance rate.
        tau: mean acceptance length.
        gamma, longest: drafted tokens a round, in the mean and in most rounds.
        c, v: cost of a draft step and of checking ``longest`` + 1 tokens, in single target steps.
        overhead: share of the time outside model forwards.
        drafting: share of the rounds in which anything was drafted.
        quantization: of the target's weights.
        head: whether a head drafted, which comes in one size.
        remedy: a sentence on how the target would check more cheaply, if that is known.
        shorter: a smaller γ and the speed-up it promises, if that is clearly more.
    """

    speedup: float
    predicted: float
    rate: float
    tau: float
    gamma: float
    longest: int
    c: float
    v: float
    overhead: float
    drafting: float
    quantization: str | None = None
    head: bool = False
    remedy: str | None = None
    shorter: tuple[int, float] | None = None

    @property
    def hopeless(self) -> bool:
        """Whether a round costs more than it gives even if every drafted token is kept."""
        return self.longest + 1 <= self.longest * self.c + self.v

    @property
    def pays(self) -> bool:
        return self.speedup >= PAYS


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason: when it applies, and its text, which follows the speed-up."""

    name: str
    applies: Callable[[Evidence], bool]
    text: Callable[[Evidence], str]


RULES = (
    Rule(
        "costs that cannot be",
        lambda e: e.v < LEAST_CHECK or (e.hopeless and e.pays),
        lambda e: (
            f"with {e.rate:.0%} of drafted tokens kept (τ {e.tau:.1f}). The step times do not fit together: "
            f"checking {e.longest + 1} tokens took {e.v:.2f} single steps, so this run cannot say why; repeat it."
        ),
    ),
    Rule(
        "draft too costly at any acceptance",
        lambda e: e.hopeless and e.longest * e.c >= e.v - 1,
        lambda e: (
            f"because a draft step costs {e.c:.0%} of a target step: {_even_if_all(e)} "
            f"{e.rate:.0%} were kept (τ {e.tau:.1f}); only {_smaller(e)} can help."
        ),
    ),
    Rule(
        "check too costly at any acceptance",
        lambda e: e.hopeless,
        lambda e: f"because {_check(e)}: {_even_if_all(e)} {e.rate:.0%} were kept (τ {e.tau:.1f}).{_remedy(e)}",
    ),
    Rule(
        "time outside the models",
        lambda e: not e.pays and e.overhead >= MUCH_OVERHEAD,
        lambda e: (
            f"because {e.overhead:.0%} of the time goes outside the models; {_costs(e)}, "
            f"which with {e.rate:.0%} kept (τ {e.tau:.1f}) would give {ratio(e.predicted)}."
        ),
    ),
    Rule(
        "few rounds draft",
        lambda e: not e.pays and e.drafting <= FEW_DRAFTS,
        lambda e: (
            f"because tokens were drafted in only {e.drafting:.0%} of the rounds, and {e.rate:.0%} of them kept; "
            "other rounds are plain steps."
        ),
    ),
    Rule(
        "costly draft",
        lambda e: not e.pays and e.c >= COSTLY_DRAFT and e.gamma * e.c >= e.v - 1,
        lambda e: (
            f"because a draft step costs {e.c:.0%} of a target step, so even {e.rate:.0%} acceptance "
            f"(τ {e.tau:.1f}) hardly pays; try {_smaller(e)}{_or_shorter(e)}."
        ),
    ),
    Rule(
        "costly check",
        lambda e: not e.pays and e.v >= COSTLY_CHECK,
        lambda e: (
            f"because {_check(e)}, and {e.rate:.0%} of drafted tokens were kept (τ {e.tau:.1f}){_try_shorter(e)}."
            f"{_remedy(e)}"
        ),
    ),
    Rule(
        "low acceptance",
        lambda e: not e.pays and e.tau <= e.gamma * e.c + e.v,
        lambda e: (
            f"because only {e.rate:.0%} of drafted tokens were kept (τ {e.tau:.1f}), and at these costs "
            f"a round pays from τ {e.gamma * e.c + e.v:.1f} on: {_costs(e)}{_try_shorter(e)}."
        ),
    ),
    Rule(
        "as the costs predict",
        lambda e: True,
        lambda e: (
            f"{'because' if e.speedup >= 1 else 'even though'} {e.rate:.0%} of drafted tokens were kept "
            f"(τ {e.tau:.1f}); {_costs(e)}.{_seldom(e)} "
            f"These costs predict {ratio(e.predicted)}{_try_shorter(e)}."
        ),
    ),
)
"""The first that applies is given."""


def _costs(e: Evidence) -> str:
    draft = f"a draft step costs {e.c:.0%} of a target step"
    return f"{draft}, and checking {e.longest + 1} tokens costs {e.v:.1f} steps"


def _check(e: Evidence) -> str:
    return f"checking {e.longest + 1} tokens costs {e.v:.1f} single steps{_kernels(e)}"


def _even_if_all(e: Evidence) -> str:
    return f"even if all {e.longest} drafted tokens were kept in every round, it would cost more than it gives."


def _smaller(e: Evidence) -> str:
    return "a head with a smaller draft vocabulary" if e.head else "a smaller draft"


def _kernels(e: Evidence) -> str:
    return f" with {e.quantization} weights" if e.quantization else ""


def _remedy(e: Evidence) -> str:
    return f" {e.remedy}" if e.remedy and e.v >= COSTLY_CHECK else ""


def _seldom(e: Evidence) -> str:
    return "" if e.gamma > 0.9 * e.longest else f" {e.gamma:.1f} tokens were drafted a round."


def _or_shorter(e: Evidence) -> str:
    return f" or γ = {e.shorter[0]}, which promises {ratio(e.shorter[1])}" if e.shorter else ""


def _try_shorter(e: Evidence) -> str:
    return f"; γ = {e.shorter[0]} promises {ratio(e.shorter[1])}" if e.shorter else ""
