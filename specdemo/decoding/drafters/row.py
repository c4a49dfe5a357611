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

DECAY, PRIOR = 0.9, 4.0  # of what older rounds count, and rounds that the first estimate counts for
KEPT = 0.4
"""Share of γ that the last drafter is taken to keep before it drafted."""
DRAFTED, VERIFIED = 0.15, 0.05
"""Usual costs in steps of the target: of a token that a model drafts, and of one more to verify. By measured ones
the rounds of a lane, and what it draws, would differ from run to run."""


class RowDrafter(Drafter):
    """``first`` drafts where it promises as many tokens for their cost as ``last`` gave in its rounds.

    Both follow all rounds. ``names`` are those of both, for the record.
    """

    def __init__(self, names: Sequence[str], first: Drafter, last: Drafter, gamma: int) -> None:
        self._names, self._first, self._last = names, first, last
        # Tokens and costs of the last one's rounds, and of the one that is not yet verified its cost and begin.
        self._tokens, self._cost = PRIOR * (1 + KEPT * gamma), PRIOR * (1 + (DRAFTED + VERIFIED) * gamma)
        self._open: tuple[float, int] | None = None

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
        promised = (1 + (copied.expected or 0.0)) / (1 + VERIFIED * len(copied))
        if (promised < self._tokens / self._cost or not copied) and (proposal := draft(self._last)):
            self._open = 1 + DRAFTED * max(proposal.tree.depths) + VERIFIED * len(proposal), len(committed)
            return replace(proposal, drafter=self._names[1])
        # The last one may not be sure enough to draft at all: a copy costs nothing.
        return replace(copied, drafter=self._names[0]) if copied else copied

    def observe(self, hidden: torch.Tensor) -> None:
        self._last.observe(hidden)

    def commit(self, committed: Sequence[int]) -> None:
        if self._open is not None:
            cost, begin = self._open
            self._tokens = DECAY * self._tokens + len(committed) - begin
            self._cost = DECAY * self._cost + cost
        self._open = None
        self._first.commit(committed)
        self._last.commit(committed)


def row_of(names: Sequence[str], first: DrafterSpec, last: DrafterSpec) -> DrafterSpec:
    """How two drafters draft in a row, of which the first one needs nothing; in batches where no model drafts."""

    def opened(pair: ModelPair, target: Runner | Any, lane: Lane) -> RowDrafter:
        copier = first.open(pair, target, lane)
        return RowDrafter(names, copier, last.open(pair, target, lane), lane.settings.gamma)

    def open_batch(pair: ModelPair, rows: Sequence[Lane]) -> BatchDrafter:
        return BatchDrafter([opened(pair, None, lane) for lane in rows])

    return replace(last, open=opened, open_batch=open_batch)
