"""What every strategy shares: the committed tokens, the one place that ends a lane, and the prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdemo.decoding.clock import LaneClock
from specdemo.decoding.recorder import Recorder
from specdemo.decoding.sampling import Sampler
from specdemo.settings import Settings
from specdemo.trace import Stop


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
    recorder: Recorder
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
