"""What every strategy shares: the committed tokens, the one place that ends a lane, and what a round computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from specdemo.decoding.acceptance import Verdict
from specdemo.decoding.clock import LaneClock
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings
from specdemo.trace import Stop


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one round computed; the recorder, outside the loop, makes the round's record of it.

    Attributes:
        drafted: ids of the drafted tokens, γ of them.
        passed: how many leading drafted tokens the rule accepted.
        token: the target's own token after them.
        kept: how many of the accepted tokens and the target's own entered the output; fewer where the lane ended.
        scores: (γ+1, V) the target's processed scores.
        draft_scores: (γ, ≤V) the drafter's; None if it has none.
        probability: (γ,) the probability with which each drafted token would be accepted, if tested; None where
            nothing was drafted.
        overlap: (γ,) sum over the vocabulary of min(p, q); None where the distributions are not used.
        source: where in prompt and output the drafted tokens were copied from, if they were.
        seconds: the lane clock at the round's end.
        draft_seconds, verify_seconds, other_seconds: of this round.
        stop: why the lane ends with this round, if it does.
    """

    drafted: Sequence[int]
    passed: int
    token: int
    kept: int
    scores: torch.Tensor
    draft_scores: torch.Tensor | None
    probability: torch.Tensor | None
    overlap: torch.Tensor | None
    source: int | None
    seconds: float
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    stop: Stop | None

    @property
    def accepted(self) -> int:
        """Drafted tokens that entered the output."""
        return min(self.passed, self.kept)

    @property
    def tested(self) -> int:
        """Drafted tokens that the rule looked at: the first rejected one too, none behind an end token."""
        return min(self.accepted + 1, len(self.drafted)) if self.kept > self.passed else self.accepted


@dataclass(slots=True)
class Lane:
    """The state of one lane.

    Attributes:
        budget: tokens the lane may emit in all.
        limited_by: what the budget comes from, the asked length or the models' context.
        committed: prompt and output ids.
    """

    settings: Settings
    prompt_ids: Sequence[int]
    eos_ids: frozenset[int]
    budget: int
    limited_by: Stop
    sampler: Sampler
    clock: LaneClock
    stop: Stop | None = None
    committed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.committed = list(self.prompt_ids)

    @property
    def remaining(self) -> int:
        """Tokens the lane may still emit."""
        return self.budget - (len(self.committed) - len(self.prompt_ids))

    def commit(self, tokens: Sequence[int]) -> int:
        """Append ``tokens`` up to an end token or the budget; returns how many were kept.

        The only place where an output is cut, so that no strategy can disagree about its end.
        """
        kept = 0
        for token in tokens:
            self.committed.append(token)
            kept += 1
            if token in self.eos_ids:
                self.stop = "eos"
            elif self.remaining == 0:
                self.stop = self.limited_by
            if self.stop:
                break
        return kept

    def step(
        self,
        scores: torch.Tensor,
        token: int,
        kept: int,
        *,
        passed: int = 0,
        drafted: Sequence[int] = (),
        proposal: Proposal = NOTHING_DRAFTED,
        verdict: Verdict | None = None,
    ) -> Step:
        """What the round that just ended computed, with the clock's readings.

        There is no ``verdict`` where nothing was drafted.
        """
        return Step(
            drafted=drafted,
            passed=passed,
            token=token,
            kept=kept,
            scores=scores,
            draft_scores=proposal.scores,
            probability=None if verdict is None else verdict.probability[0],
            overlap=None if verdict is None or verdict.overlap is None else verdict.overlap[0],
            source=proposal.source,
            seconds=self.clock.seconds,
            draft_seconds=self.clock.phases["draft"],
            verify_seconds=self.clock.phases["verify"],
            other_seconds=self.clock.phases["other"],
            stop=self.stop,
        )


def new_lane(pair: ModelPair, ids: Sequence[int], settings: Settings, clock: LaneClock | None = None) -> Lane:
    """A lane that has not begun; rows of a batch share a ``clock``."""
    room = settings.max_new_tokens if pair.context is None else pair.context - len(ids)
    return Lane(
        settings=settings,
        prompt_ids=ids,
        eos_ids=pair.eos_ids,
        budget=min(settings.max_new_tokens, room),
        limited_by="length" if settings.max_new_tokens <= room else "context",
        sampler=Sampler(settings, pair.vocabulary, pair.device),
        clock=clock or lane_clock(pair),
    )


def lane_clock(pair: ModelPair) -> LaneClock:
    """A clock that waits for all devices of a pair."""
    models = [m for m in (pair.target, pair.draft) if m is not None]
    return LaneClock(*(m.get_input_embeddings().weight.device for m in models))
