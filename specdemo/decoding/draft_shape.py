"""What to draft in the next round: a chain of γ tokens, or a tree."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from specdemo.decoding.gamma import GammaPolicy, gamma_policy
from specdemo.decoding.lane import Step
from specdemo.settings import Settings


class DraftShape(NamedTuple):
    """The size of a draft.

    Attributes:
        depth: tokens on its longest path, at the most; 0 for a plain step.
        nodes: tokens of a tree, at the most; 0 for a chain.
    """

    depth: int
    nodes: int = 0


class ShapePolicy(Protocol):
    """Chooses the shape before a round and sees what came of it."""

    def next(self) -> DraftShape:
        """Of the next round's draft."""

    def observe(self, step: Step) -> None:
        """A round ended."""


class Chains:
    """Chains of the γ that a policy chooses."""

    def __init__(self, policy: GammaPolicy) -> None:
        self._policy = policy

    def next(self) -> DraftShape:
        return DraftShape(self._policy.next())

    def observe(self, step: Step) -> None:
        self._policy.observe(step)


class FixedTree:
    """Always a tree of the settings' size."""

    def __init__(self, depth: int, nodes: int) -> None:
        self._shape = DraftShape(depth, nodes)

    def next(self) -> DraftShape:
        return self._shape

    def observe(self, step: Step) -> None:
        """Nothing to learn."""


def shape_policy(settings: Settings) -> ShapePolicy:
    """What these settings ask for."""
    if settings.drafts_trees:
        return FixedTree(settings.gamma, settings.tree_nodes)
    return Chains(gamma_policy(settings))
