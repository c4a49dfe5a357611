"""The interface of drafters: who proposes the tokens of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from specdemo.decoding.proposal import Proposal
from specdemo.decoding.tree_draft import Choice


class Drafter(Protocol):
    """Proposes tokens after the committed ones and is told how many were kept."""

    engine: str | None
    """What runs the drafting model's layers; None if no model drafts."""

    def prefill(self, ids: Sequence[int]) -> None:
        """Take in the prompt (n,)."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        """Up to ``gamma`` tokens that may follow ``committed``."""

    def commit(self, committed: Sequence[int]) -> None:
        """The round ended: ``committed`` now holds the kept drafted tokens and the target's own."""


class TreeDrafter(Protocol):
    """What a drafter has besides if its row says that it drafts ``trees``."""

    def propose_tree(self, committed: Sequence[int], choice: Choice) -> Proposal:
        """A tree of tokens that may follow ``committed``, of the tokens that ``choice`` takes at each level."""


class Observer(Protocol):
    """What a drafter has besides if its row names ``taps``: it drafts from the target's hidden states."""

    def observe(self, hidden: torch.Tensor) -> None:
        """What entered the tapped layers (n, taps · width) for the tokens the target was fed last.

        It comes after ``prefill``, and after every verification before ``commit``.
        """
