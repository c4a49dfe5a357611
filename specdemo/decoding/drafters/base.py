"""Who proposes the tokens of a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch

from specdemo.decoding.engines.eager import Runner
from specdemo.decoding.sampling import Sampler

if TYPE_CHECKING:
    from specdemo.decoding.engines.graph_runner import StaticRunner


@dataclass(frozen=True, eq=False)
class Proposal:
    """What a drafter offers for one round.

    Attributes:
        tokens: (γ,) the drafted ids, at most the number asked for, on the device where they were chosen.
        q: (γ, V) the distributions the tokens were really drawn from; None if the choice was certain.
        scores: (γ, ≤V) what the distributions came from, for the record; None if there were none.
        source: where in prompt and output the tokens were copied from, if they were.
    """

    tokens: torch.Tensor
    q: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    source: int | None = None

    @staticmethod
    def known(ids: Sequence[int], scores: torch.Tensor | None = None, source: int | None = None) -> Proposal:
        """Tokens that no device need be asked for, chosen with certainty."""
        return Proposal(torch.tensor(ids, dtype=torch.long), None, scores, source)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The tokens; the first reading waits for the device."""
        return tuple(self.tokens.tolist())


NOTHING_DRAFTED = Proposal.known(())
"""The round will be a plain step of the target."""


class Drafter(Protocol):
    """Proposes tokens after the committed ones and is told how many were kept."""

    def prefill(self, ids: Sequence[int]) -> None:
        """Take in the prompt (n,)."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        """Up to ``gamma`` tokens that may follow ``committed``."""

    def settle(self, committed: Sequence[int]) -> None:
        """The round ended: ``committed`` now holds the kept drafted tokens and the target's own."""


class Draft:
    """The tokens a model drafts in one round, one after the other."""

    def __init__(self, sampler: Sampler, committed: Sequence[int]) -> None:
        self._sampler, self._committed = sampler, committed
        self._tokens: list[torch.Tensor] = []
        self._scores: list[torch.Tensor] = []
        self._q: list[torch.Tensor] = []

    def take(self, logits: torch.Tensor) -> torch.Tensor:
        """The next drafted token, (1,), from the logits (1, V) that the model gave for it."""
        drafted = [int(t) for t in self._tokens] if self._sampler.remembers else ()
        # Judged, drawn and recorded on the target's device, wherever the draft runs.
        scores = self._sampler.scores(logits.to(self._sampler.device), [*self._committed, *drafted])
        self._scores.append(scores)
        if self._sampler.greedy:
            self._tokens.append(scores.argmax(-1))
        else:
            self._q.append(self._sampler.probabilities(scores))
            self._tokens.append(self._sampler.draw(self._q[-1]))
        return self._tokens[-1]

    def proposal(self) -> Proposal:
        """All of them."""
        if not self._tokens:
            return NOTHING_DRAFTED
        q = torch.cat(self._q) if self._q else None
        return Proposal(torch.cat(self._tokens), q, torch.cat(self._scores))


class ModelDrafter:
    """A smaller model that decodes ahead, from its own KV cache.

    Args:
        runner: of the draft model.
        sampler: chooses the tokens.
        whole: drafts all tokens of a round at once, from the same cache; None feeds them one by one.
    """

    def __init__(
        self,
        runner: Runner | StaticRunner,
        sampler: Sampler,
        whole: Callable[[Sequence[int], int], Proposal] | None = None,
    ) -> None:
        self._runner = runner
        self._sampler = sampler
        self._whole = whole

    def prefill(self, ids: Sequence[int]) -> None:
        self._runner.forward(ids, keep=0)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        if self._whole is not None:
            return self._whole(committed, gamma)
        draft = Draft(self._sampler, committed)
        # What the cache lacks: the target's last token, and the last drafted one if all were kept.
        feed: Sequence[int] | torch.Tensor = committed[self._runner.length :]
        for _ in range(gamma):
            feed = draft.take(self._runner.forward(feed))
        return draft.proposal()

    def settle(self, committed: Sequence[int]) -> None:
        # Everything before the target's new token is common ground, unless it was never fed.
        self._runner.rollback_to(min(self._runner.length, len(committed) - 1))
