"""Who proposes the tokens of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from specdemo.decoding.runner import Runner
from specdemo.decoding.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter offers for one round.

    Attributes:
        ids: the drafted tokens, at most the number asked for.
        q: (γ, V) the distributions the tokens were really drawn from; None if the choice was certain.
        scores: (γ, ≤V) what the distributions came from, for the record; None if there were none.
        source: where in prompt and output the tokens were copied from, if they were.
    """

    ids: tuple[int, ...]
    q: torch.Tensor | None
    scores: torch.Tensor | None
    source: int | None = None


NOTHING_DRAFTED = Proposal((), None, None)
"""The round will be a plain step of the target."""


class Drafter(Protocol):
    """Proposes tokens after the committed ones and is told how many were kept."""

    def prefill(self, ids: Sequence[int]) -> None:
        """Take in the prompt (n,)."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        """Up to ``gamma`` tokens that may follow ``committed``."""

    def settle(self, committed: Sequence[int]) -> None:
        """The round ended: ``committed`` now holds the kept drafted tokens and the target's own."""


class ModelDrafter:
    """A smaller model that decodes ahead, from its own KV cache."""

    def __init__(self, runner: Runner, sampler: Sampler) -> None:
        self._runner = runner
        self._sampler = sampler

    def prefill(self, ids: Sequence[int]) -> None:
        self._runner.forward(ids)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        # What the cache lacks: the target's last token, and the last drafted one if all were kept.
        feed: Sequence[int] | torch.Tensor = committed[self._runner.length :]
        tokens: list[torch.Tensor] = []
        scores: list[torch.Tensor] = []
        q: list[torch.Tensor] = []
        for _ in range(gamma):
            drafted = [int(t) for t in tokens] if self._sampler.remembers else ()
            # Judged, drawn and recorded on the target's device, wherever the draft runs.
            logits = self._runner.forward(feed).to(self._sampler.device)
            scores.append(self._sampler.scores(logits, [*committed, *drafted]))
            if self._sampler.greedy:
                tokens.append(scores[-1].argmax(-1))
            else:
                q.append(self._sampler.probabilities(scores[-1]))
                tokens.append(self._sampler.draw(q[-1]))
            feed = tokens[-1]
        return Proposal(tuple(torch.cat(tokens).tolist()), torch.cat(q) if q else None, torch.cat(scores))

    def settle(self, committed: Sequence[int]) -> None:
        # Everything before the target's new token is common ground, unless it was never fed.
        self._runner.rollback_to(min(self._runner.length, len(committed) - 1))
