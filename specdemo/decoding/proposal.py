"""What a drafter offers for one round, a tree or a chain of tokens, and how a model makes a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from specdemo.decoding.sampling import Sampler


@dataclass(frozen=True, slots=True, eq=False)
class TreeMask:
    """What the tokens of a forward attend to that do not all follow one another.

    The slots from ``begin`` on hold a tree: those of earlier forwards, then the n of this one.
    """

    begin: int  # slots before the tree, which every token attends to
    depths: Sequence[int]  # (m,) of all slots of the tree; a token's position in the text is ``begin`` + its depth
    ancestors: torch.Tensor  # (n, m) bool, the slots of the tree that each token fed attends to, itself included

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
    """

    def __init__(self, parents: Sequence[int]) -> None:
        self.parents = tuple(parents)
        self.depths: list[int] = [0]  # (n + 1,) of each slot, 0 of the root
        # (n + 1,) the slots that follow each slot, in the order in which they are tested
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


@dataclass(frozen=True, eq=False)
class Proposal:
    """The drafted tokens of one round."""

    # (γ,) the drafted ids, at most the number asked for, on the device where they were chosen
    tokens: torch.Tensor
    # (γ, V) the distributions the tokens were really drawn from; None if they are one-hot
    q: torch.Tensor | None = None
    # (γ, ≤V) what the distributions came from, for the record; None if there were none
    scores: torch.Tensor | None = None
    source: int | None = None  # where in prompt and output the tokens were copied from, if they were
    # (γ,) the slot that each token follows in a draft tree, see :class:`Tree`; None of a chain, where they are 0,
    # 1, 2, …
    parents: tuple[int, ...] | None = None
    # (γ,) the row of ``q`` and ``scores`` that each token of a tree was taken from; siblings share one
    rows: tuple[int, ...] = ()
    # of copied tokens how many are likely to be kept, by those copied before; None of a model's
    expected: float | None = None
    drafter: str | None = None  # which of several in a row drafted

    @staticmethod
    def known(ids: Sequence[int], scores: torch.Tensor | None = None) -> Proposal:
        """Tokens chosen with certainty, whose ids the host knows already."""
        return Proposal(torch.tensor(ids, dtype=torch.long), None, scores)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def tree(self) -> Tree:
        """Who follows whom."""
        return Tree(range(len(self)) if self.parents is None else self.parents)

    @property
    def is_chain(self) -> bool:
        """Whether each token follows the one before."""
        return self.parents is None

    def tree_mask(self, begin: int) -> TreeMask | None:
        """How the target reads the last committed token and these behind ``begin`` tokens; None of a chain."""
        return None if self.is_chain else self.tree.mask(begin)

    def paths(self) -> Iterator[list[int]]:
        """The drafted ids on the way to each slot, its own included; none to that of the last committed token."""
        for slot in range(len(self) + 1):
            yield [self.ids[each - 1] for each in self.tree.path(slot)]

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The tokens on the host; the first reading waits for the device."""
        return tuple(self.tokens.tolist())


NOTHING_DRAFTED = Proposal.known(())
"""The round will be a plain step of the target."""


class Draft:
    """The tokens a model drafts in one round, one after the other.

    It ends before a token whose distribution has none as likely as the sampler's ``p_min``: that is decided by q
    and never by the token that was drawn, which would change the output's distribution.
    """

    def __init__(self, sampler: Sampler, committed: Sequence[int]) -> None:
        self._sampler, self._committed = sampler, committed
        self._tokens: list[torch.Tensor] = []
        self._scores: list[torch.Tensor] = []
        self._q: list[torch.Tensor] = []

    def take(self, logits: torch.Tensor) -> torch.Tensor | None:
        """The next drafted token, (1,), from the logits (1, V) that the model gave for it; None where it ends."""
        sampler = self._sampler
        drafted = [[int(t) for t in self._tokens]] if sampler.history_dependent else ()
        # Judged, drawn and recorded on the target's device, wherever the draft runs.
        scores = sampler.scores(logits.to(sampler.device), self._committed, drafted)
        if sampler.p_min and bool(scores.softmax(-1).max() < sampler.p_min):
            return None
        self._scores.append(scores)
        if sampler.greedy:
            self._tokens.append(scores.argmax(-1))
        else:
            self._q.append(sampler.probabilities(scores))
            self._tokens.append(sampler.draw(self._q[-1], "drafter"))
        return self._tokens[-1]

    def proposal(self) -> Proposal:
        if not self._tokens:
            return NOTHING_DRAFTED
        q = torch.cat(self._q) if self._q else None
        return Proposal(torch.cat(self._tokens), q, torch.cat(self._scores))
