"""The shape of a draft tree: who follows whom, and so what each token may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """Where the tokens of a forward stand that do not all follow one another.

    The slots from ``begin`` on hold a tree: those of earlier forwards, then the n of this one.

    Attributes:
        begin: slots before the tree, which every token sees.
        depths: (m,) of all slots of the tree; a token's position in the text is ``begin`` + its depth.
        sees: (n, m) bool, the slots of the tree that each token fed looks at, itself included.
    """

    begin: int
    depths: Sequence[int]
    sees: torch.Tensor

    @property
    def positions(self) -> torch.Tensor:
        """(n,) of the tokens fed."""
        return self.begin + torch.tensor(self.depths[-len(self.sees) :])

    def mask(self, window: int | None = None) -> torch.Tensor:
        """(n, begin + m) bool: what each token looks at, of a sliding ``window`` only what lies within it."""
        seen = torch.cat([self.sees.new_ones(len(self.sees), self.begin), self.sees], dim=1)
        if window is None:
            return seen
        slots = torch.cat([torch.arange(self.begin), self.begin + torch.tensor(self.depths)])
        return seen & (slots > self.positions.unsqueeze(1) - window)


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
        depths: list[int] = [0]
        self.children: list[list[int]] = [[]]
        for slot, parent in enumerate(self.parents, start=1):
            if not 0 <= parent < slot:
                raise ValueError(f"slot {slot} of a tree cannot follow slot {parent}")
            depths.append(depths[parent] + 1)
            self.children[parent].append(slot)
            self.children.append([])
        self.depths = tuple(depths)

    @property
    def depth(self) -> int:
        """Drafted tokens on the longest path."""
        return max(self.depths)

    def path(self, slot: int) -> tuple[int, ...]:
        """The slots from the root's child down to ``slot``; none of the root."""
        path = []
        while slot:
            path.append(slot)
            slot = self.parents[slot - 1]
        return tuple(reversed(path))

    @cached_property
    def sees(self) -> torch.Tensor:
        """(n + 1, n + 1) bool: a token looks at itself and at its ancestors."""
        sees = torch.eye(len(self.depths), dtype=torch.bool)
        for slot, parent in enumerate(self.parents, start=1):
            sees[slot] |= sees[parent]
        return sees

    def branches(self, begin: int) -> Branches:
        """How the target reads root and tree behind ``begin`` tokens."""
        return Branches(begin, self.depths, self.sees)
