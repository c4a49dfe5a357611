"""The interface of drafters: who proposes the tokens of a round, and how one is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from specdemo.decoding.batch.loop import BatchDrafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.head import HeadRunner
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Draft, Proposal, TreeMask
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.tree_draft import Node, grow, selector_for
from specdemo.models.pair import ModelPair
from specdemo.models.types import PreTrainedModel
from specdemo.settings import Settings


class Drafter:
    """Proposes tokens after the committed ones and is told what was kept; only ``propose`` must be written."""

    @property
    def engine(self) -> str | None:
        """What runs the drafting model's layers; None if no model drafts."""
        return None

    def prefill(self, ids: Sequence[int]) -> None:
        """Take in the prompt (n,)."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        """Up to ``gamma`` tokens that may follow ``committed``; it may not have been asked for some rounds."""
        raise NotImplementedError

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        """A tree of at most ``nodes`` tokens, none deeper than ``depth``, if its row says ``trees``."""
        raise NotImplementedError

    def observe(self, hidden: torch.Tensor) -> None:
        """The hidden states (n, layers · Ht) of the prompt, then of the tokens that each round kept.

        It comes after ``prefill``, and after every verification before ``commit``; to who names ``aux_layers``.
        """

    def commit(self, committed: Sequence[int]) -> None:
        """The round ended: ``committed`` now holds the kept drafted tokens and the target's own."""


class SteppingDrafter(Drafter):
    """A model that drafts a chain token by token, or a tree level by level; a subclass says how it is fed."""

    beam: int | None = None  # tokens of a tree's level that go on, at the most; None for no limit

    def __init__(self, runner: Runner | HeadRunner, sampler: Sampler) -> None:
        self._runner, self._sampler = runner, sampler

    @property
    def engine(self) -> str:
        return self._runner.engine

    def _begin(self, committed: Sequence[int]) -> torch.Tensor:
        """Take in what is committed and not in the cache; the logits (1, V) behind it."""
        raise NotImplementedError

    def _step(self, token: torch.Tensor) -> torch.Tensor:
        """The logits (1, V) behind one more token (1,)."""
        raise NotImplementedError

    def _level(self, nodes: Sequence[Node], tokens: torch.Tensor, tree_mask: TreeMask) -> torch.Tensor:
        """The logits (w, V) behind each token (w,) of a tree's level."""
        raise NotImplementedError

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        draft = Draft(self._sampler, committed)
        token = draft.take(self._begin(committed))
        for _ in range(gamma - 1):
            if token is None:
                break
            token = draft.take(self._step(token))
        return draft.proposal()

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        logits = self._begin(committed)
        begin, selector = self._runner.length, selector_for(self._sampler, depth, nodes, self.beam)
        proposal = grow(self._sampler, committed, begin, logits, self._level, selector)
        # The kept path is fed again with the target's own token: the same forward, and no slots to move.
        self._runner.rollback_to(begin)
        return proposal


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """How a drafter is opened."""

    # (pair, the target's runner, lane) → a fresh drafter for one lane, after ``check``
    open: Callable[[ModelPair, Runner, Lane], Drafter]
    # raises SettingsError where this pair cannot draft so
    check: Callable[[ModelPair, Settings], None] = lambda pair, settings: None
    # → a fresh drafter for all rows of a batch; None if it has none
    open_batch: Callable[[ModelPair, Sequence[Lane]], BatchDrafter] | None = None
    # the target's layers whose input its ``observe`` is given
    aux_layers: Callable[[ModelPair], tuple[int, ...]] = lambda pair: ()
    # the model, over the target's tokens, whose distribution its tokens come from; None for none
    reference: Callable[[ModelPair, Settings], PreTrainedModel | None] = lambda pair, settings: None
