"""The interface of drafters: who proposes the tokens of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specdemo.decoding.proposal import Proposal


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
