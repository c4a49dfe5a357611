"""Who proposes the tokens of a round, for all rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import NOTHING_DRAFTED, Draft, Proposal

if TYPE_CHECKING:
    from specdemo.decoding.drafters.base import Drafter


class BatchDrafter(Protocol):
    """Proposes for each row what may follow its committed tokens; rows are always given in the same order."""

    def prefill(self, rows: Sequence[Lane]) -> None:
        """Take in the prompts."""

    def propose(self, rows: Sequence[Lane], gammas: Sequence[int]) -> list[Proposal]:
        """For each row up to its own γ tokens; none for γ = 0."""

    def commit(self, rows: Sequence[Lane]) -> None:
        """The round ended: the rows' committed tokens hold what was kept and the target's own."""

    def keep(self, places: Sequence[int]) -> None:
        """All rows but these have left."""


class SeparateDrafters:
    """A drafter of its own for each row: without a model, nothing is won by working together."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = list(drafters)

    def prefill(self, rows: Sequence[Lane]) -> None:
        for drafter, row in zip(self._drafters, rows, strict=True):
            drafter.prefill(row.prompt_ids)

    def propose(self, rows: Sequence[Lane], gammas: Sequence[int]) -> list[Proposal]:
        return [
            drafter.propose(row.committed, gamma) if gamma else NOTHING_DRAFTED
            for drafter, row, gamma in zip(self._drafters, rows, gammas, strict=True)
        ]

    def commit(self, rows: Sequence[Lane]) -> None:
        for drafter, row in zip(self._drafters, rows, strict=True):
            drafter.commit(row.committed)

    def keep(self, places: Sequence[int]) -> None:
        self._drafters = [self._drafters[place] for place in places]


class BatchModelDrafter:
    """A smaller model that decodes ahead in all rows at once; each draws with its own sampler.

    Rows that asked for fewer tokens wait for the others: they are fed along, and what comes of it is dropped.
    """

    def __init__(self, runner: RaggedRunner) -> None:
        self._runner = runner
        self.keep = runner.keep

    def prefill(self, rows: Sequence[Lane]) -> None:
        self._runner.forward([row.prompt_ids for row in rows], last=True)

    def propose(self, rows: Sequence[Lane], gammas: Sequence[int]) -> list[Proposal]:
        drafts = [Draft(row.sampler, row.committed) for row in rows]
        # What the cache lacks: the target's last token, and the last drafted one if all were kept.
        feeds: Sequence[Sequence[int]] | torch.Tensor
        feeds = [row.committed[held:] for row, held in zip(rows, self._runner.lengths, strict=True)]
        nothing = torch.zeros(1, dtype=torch.long, device=rows[0].sampler.device)
        for step in range(max(gammas)):
            logits = self._runner.forward(feeds, last=True).split(1)
            taken = zip(drafts, logits, gammas, strict=True)
            feeds = torch.stack([draft.take(row) if step < gamma else nothing for draft, row, gamma in taken])
        return [draft.proposal() for draft in drafts]

    def commit(self, rows: Sequence[Lane]) -> None:
        # Everything before the target's new token is common ground, unless it was never fed.
        held = zip(rows, self._runner.lengths, strict=True)
        self._runner.rollback_to([min(length, len(row.committed) - 1) for row, length in held])
