"""What every strategy shares: the committed tokens, the one place that ends a lane, and what a round computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from specdemo.decoding.acceptance import TreeVerdict, judge
from specdemo.decoding.clock import LaneClock, Phase
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.models.pair import ModelPair, device_of
from specdemo.rounds import Stop
from specdemo.settings import Settings

Texts = Sequence[Sequence[int]]
"""Token ids of each."""


@dataclass(slots=True, eq=False)
class RawRound:
    """One round as the loop gives it; the recorder, outside the loop, makes the round's record of it."""

    scores: torch.Tensor  # (γ+1, V) the target's processed scores
    token: int  # the target's own token
    # how many of the accepted tokens and the target's own entered the output; fewer where the lane ended
    kept: int
    drafted: Sequence[int] = ()  # ids of the γ drafted tokens
    proposal: Proposal = NOTHING_DRAFTED  # where they came from
    verdict: TreeVerdict | None = None  # what was decided of them; None in a plain step
    seconds: float = 0.0  # the lane clock at the round's end
    # seconds of this round spent drafting, verifying, and on all else
    phases: dict[Phase, float] = field(default_factory=dict)
    stop: Stop | None = None  # why the lane ends with this round, if it does

    @property
    def path(self) -> Sequence[int]:
        """Slots of the tokens that the rule accepted, from a child of the root down."""
        return () if self.verdict is None else self.verdict.path

    @property
    def end(self) -> int:
        """The slot of the last token accepted; the root's where there is none."""
        return self.path[-1] if self.path else 0

    @property
    def passed(self) -> int:
        """How many drafted tokens the rule accepted."""
        return len(self.path)

    @property
    def accepted(self) -> int:
        """Drafted tokens that entered the output."""
        return min(self.passed, self.kept)

    @property
    def tested(self) -> int:
        """Depth to which the rule looked at drafted tokens: the first rejected too, none behind an end token."""
        return self.accepted + (self.kept > self.passed)


@dataclass(slots=True)
class Lane:
    """The state of one lane."""

    settings: Settings
    prompt_ids: Sequence[int]
    eos_ids: frozenset[int]
    budget: int  # tokens the lane may emit in all
    limited_by: Stop  # what the budget comes from, the asked length or the models' context
    sampler: Sampler
    clock: LaneClock
    stop: Stop | None = None
    committed: list[int] = field(default_factory=list)  # prompt and output ids
    earlier: Texts = ()  # outputs of before, which a drafter may copy from

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

    def accept(self, proposal: Proposal, logits: torch.Tensor) -> RawRound:
        """Judge the drafted tokens by the target's ``logits`` (γ+1, V), commit those that pass and one more."""
        scores = self.sampler.scores(logits, self.committed, proposal.paths())
        drafted, verdict = judge(self.settings, scores, proposal, self.sampler)
        kept = self.commit([*(drafted[slot - 1] for slot in verdict.path), verdict.token])
        return RawRound(scores, verdict.token, kept, drafted, proposal, verdict)

    def emit(self, logits: torch.Tensor) -> RawRound:
        """Take one token from the target's ``logits`` (1, V): the prefill, or a step of plain decoding."""
        scores = self.sampler.scores(logits, self.committed)
        token = int(self.sampler.pick(scores))
        return RawRound(scores, token, self.commit([token]))

    def ended(self, raw: RawRound) -> RawRound:
        """The round, which just ended, with the clock's readings."""
        raw.seconds, raw.phases, raw.stop = self.clock.seconds, self.clock.phases, self.stop
        return raw


def new_lane(
    pair: ModelPair, ids: Sequence[int], settings: Settings, clock: LaneClock | None = None, earlier: Texts = ()
) -> Lane:
    """A lane that has not begun; rows of a batch share a ``clock``."""
    context = pair.context_for(settings)
    space = settings.max_new_tokens if context is None else context - len(ids)
    if context is not None and settings.strategy == "assisted" and settings.needs is None:
        # transformers looks up γ tokens however few are left, and the target reads all of them.
        space = max(min(space, space - settings.gamma + 2), 1)
    return Lane(
        settings=settings,
        prompt_ids=ids,
        eos_ids=frozenset() if settings.ignore_eos else pair.eos_ids,
        budget=min(settings.max_new_tokens, space),
        limited_by="length" if settings.max_new_tokens <= space else "context",
        sampler=Sampler(settings, pair.vocabulary, pair.device),
        clock=clock or lane_clock(pair),
        earlier=earlier,
    )


def lane_clock(pair: ModelPair) -> LaneClock:
    """A clock that waits for all devices of a pair."""
    devices = [device_of(model) for model in pair.models]
    return LaneClock(*devices, *(head.device for head in pair.heads))
