"""Two drafters in a row: the first one copies, and drafts where that promises more; else the other one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from specdemo.decoding.batch.loop import BatchDrafter
from specdemo.decoding.drafters.base import Drafter, DrafterSpec
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Proposal
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

DECAY, PRIOR = 0.9, 4.0  # of what older rounds count, and rounds that the first estimate counts for
KEPT = 0.4
"""Share of γ that the second one is taken to keep before it drafted."""


class RowDrafter(Drafter):
    """Asks ``first``, which says how many tokens it expects to be kept, and drafts with its tokens where these are
    as many as those of ``last`` in the mean of the rounds in which that one drafted. Both follow all rounds.

    Args:
        names: of both, for the record.
        gamma: of the settings.
    """

    def __init__(self, names: Sequence[str], first: Drafter, last: Drafter, gamma: int) -> None:
        self._names, self._first, self._last = names, first, last
        self._kept, self._rounds = PRIOR * KEPT * gamma, PRIOR
        self._begin: int | None = None  # length of the text before a round of the last one

    @property
    def engine(self) -> str | None:
        return self._last.engine

    def prefill(self, ids: Sequence[int]) -> None:
        self._first.prefill(ids)
        self._last.prefill(ids)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        return self._drafted(committed, lambda drafter: drafter.propose(committed, gamma))

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        return self._drafted(committed, lambda drafter: drafter.propose_tree(committed, depth, nodes))

    def _drafted(self, committed: Sequence[int], draft: Callable[[Drafter], Proposal]) -> Proposal:
        copied = draft(self._first)
        if copied and (copied.expected or 0.0) >= self._kept / self._rounds:
            return replace(copied, drafter=self._names[0])
        proposal = draft(self._last)
        if not proposal:  # it is not sure enough: what is copied costs nothing
            return replace(copied, drafter=self._names[0]) if copied else copied
        self._begin = len(committed)
        return replace(proposal, drafter=self._names[1])

    def observe(self, hidden: torch.Tensor) -> None:
        self._last.observe(hidden)

    def commit(self, committed: Sequence[int]) -> None:
        if self._begin is not None:
            self._kept = DECAY * self._kept + len(committed) - self._begin - 1
            self._rounds = DECAY * self._rounds + 1
        self._begin = None
        self._first.commit(committed)
        self._last.commit(committed)


def row_of(names: Sequence[str], first: DrafterSpec, last: DrafterSpec) -> DrafterSpec:
    """How two drafters draft in a row; a batch's rows have it where neither has a model."""

    def check(pair: ModelPair, settings: Settings) -> None:
        first.check(pair, settings)
        last.check(pair, settings)

    def opened(pair: ModelPair, target: Runner | Any, lane: Lane) -> RowDrafter:
        both = (spec.open(pair, target, lane) for spec in (first, last))
        return RowDrafter(names, *both, lane.settings.gamma)

    def open_batch(pair: ModelPair, rows: Sequence[Lane]) -> BatchDrafter:
        return BatchDrafter([opened(pair, None, lane) for lane in rows])

    return DrafterSpec(opened, check, open_batch, last.aux_layers, last.reference)
