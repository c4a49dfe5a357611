"""The interface of drafters: who proposes the tokens of a round, and how one is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch

from specdemo.decoding.engines.base import Runner
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Proposal
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdemo.decoding.batch.drafters import BatchDrafter


class Drafter(Protocol):
    """Proposes tokens after the committed ones and is told how many were kept."""

    @property
    def engine(self) -> str | None:
        """What runs the drafting model's layers; None if no model drafts."""

    def prefill(self, ids: Sequence[int]) -> None:
        """Take in the prompt (n,)."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        """Up to ``gamma`` tokens that may follow ``committed``; it may not have been asked for some rounds."""

    def commit(self, committed: Sequence[int]) -> None:
        """The round ended: ``committed`` now holds the kept drafted tokens and the target's own."""


class TreeDrafter(Protocol):
    """What a drafter has besides if its row says that it drafts ``trees``."""

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        """A tree of at most ``nodes`` tokens, none deeper than ``depth``, that may follow ``committed``."""


@runtime_checkable
class Observer(Protocol):
    """What a drafter has besides if it drafts from the target's hidden states."""

    def observe(self, hidden: torch.Tensor) -> None:
        """The auxiliary hidden states (n, layers · Ht) of the prompt, then of the tokens that each round kept.

        It comes after ``prefill``, and after every verification before ``commit``.
        """


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """How a drafter is opened.

    Attributes:
        open: (pair, the target's runner, lane) → a fresh drafter for one lane, after ``check``.
        check: raises SettingsError where this pair cannot draft so.
        open_batch: → a fresh drafter for all rows of a batch; None if it has none.
        aux_layers: the target's layers whose input its ``observe`` is given.
        reference: the model, over the target's tokens, whose distribution its tokens come from; None for none.
    """

    open: Callable[[ModelPair, Runner, Lane], Drafter]
    check: Callable[[ModelPair, Settings], None] = lambda pair, settings: None
    open_batch: Callable[[ModelPair, Sequence[Lane]], BatchDrafter] | None = None
    aux_layers: Callable[[ModelPair], tuple[int, ...]] = lambda pair: ()
    reference: Callable[[ModelPair, Settings], PreTrainedModel | None] = lambda pair, settings: None
