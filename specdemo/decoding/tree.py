"""The shape of a draft tree: who follows whom, and so what each token may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True, slots=True, eq=False)
class TreeMask:
    """What the tokens of a forward attend to that do not all follow one another.

    The slots from ``begin`` on hold a tree: those of earlier forwards, then the n of this one.

    Attributes:
        begin: slots before the tree, which every token attends to.
        depths: (m,) of all slots of the tree; a token's position in the text is ``begin`` + its depth.
        ancestors: (n, m) bool, the slots of the tree that each token fed attends to, itself included.
    """

    begin: int
    depths: Sequence[int]
    ancestors: torch.Tensor

    @property
    def positions(self) -> torch.Tensor:
        """(n,) of the tokens fed."""
        return self.begin + torch.tensor(self.depths[-len(self.ancestors) :])

    def mask(self, window: int | None = None) -> torch.Tensor:
        """(n, begin + m) bool: what each token attends to, of a sliding ``window`` only what lies within it."""
        before = self.ancestors.new_ones(len(self.ancestors), self.begin)
        mask = torch.cat([before, self.ancestors], dim=1)
        if window is None:
            return mask
        slots = torch.cat([torch.arange(self.begin), self.begin + torch.tensor(self.depths)])
        return mask & (slots > self.positions.unsqueeze(1) - window)


class Tree:
    """The tokens that a verification reads: slot 0 is the last committed token, slot i the i-th drafted one.

    Args:
        parents: (n,) the slot that each drafted token follows, smaller than its own; a chain's are 0, 1, 2, …

    Attributes:
        depths: (n + 1,) of each slot, 0 of the root.
        children: (n + 1,) the slots that follow each slot, in the order in which they are tested.
    """

    def __init__(self, parents: Sequence[int]) -> None:
        self.parents = tuple(parents)
        self.depths: list[int] = [0]
        self.children: list[list[int]] = [[]]
        for slot, parent in enumerate(self.parents, start=1):
            if not 0 <= parent < slot:
                raise ValueError(f"slot {slot} of a tree cannot follow slot {parent}")
            self.depths.append(self.depths[parent] + 1)
            self.children[parent].append(slot)
            self.children.append([])

    def path(self, slot: int) -> tuple[int, ...]:
        """The slots from the root's child down to ``slot``; none of the root."""
        path = []
        while slot:
            path.append(slot)
            slot = self.parents[slot - 1]
        return tuple(reversed(path))

    @cached_property
    def ancestors(self) -> torch.Tensor:
        """(n + 1, n + 1) bool: the ancestors of each slot, itself included."""
        ancestors = torch.eye(len(self.depths), dtype=torch.bool)
        for slot, parent in enumerate(self.parents, start=1):
            ancestors[slot] |= ancestors[parent]
        return ancestors

    def mask(self, begin: int) -> TreeMask:
        """How the target reads root and tree behind ``begin`` tokens."""
        return TreeMask(begin, self.depths, self.ancestors)
