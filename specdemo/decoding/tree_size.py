"""Chooses nodes and depth of the next tree from what this lane's own rounds cost and kept."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate

from specdemo.decoding.draft_shape import Chains, DraftShape, FixedTree, ShapePolicy
from specdemo.decoding.gamma import DECAY, PRIOR_TESTED, Decayed, Line, gamma_policy
from specdemo.decoding.lane import Step
from specdemo.decoding.tree_draft import KEPT_FIRST, KEPT_NEXT, weights
from specdemo.settings import MAX_GAMMA, MAX_TREE_NODES, Settings
from specdemo.theory import expected_tokens

PATIENCE = 16
"""Plain rounds in a row after which a draft is tried again, since texts change."""


class _Share:
    """A share in which older rounds count less, from a guess that counts as so many observations."""

    def __init__(self, prior: float) -> None:
        self._passed, self._tested = prior * PRIOR_TESTED, PRIOR_TESTED

    def add(self, passed: int, tested: int) -> None:
        if tested:
            self._passed = DECAY * self._passed + passed
            self._tested = DECAY * self._tested + tested

    @property
    def value(self) -> float:
        return min(self._passed / self._tested, 0.99)


class AdaptiveTree:
    """The tree, chain or plain step with the most expected tokens a second.

    Expected tokens are 1 + the sum over the tree's places of the chance that the place is kept, which follows from
    two measured shares: how often first guesses pass where tested, and how often later ones. A round costs
    depth · d + V(n): d is the decayed time of a draft step, V the time of a verify of n drafted tokens and of all
    else, a straight line through the decayed observations (Chen et al., arXiv 2402.12374, section 3.3, choose a
    tree's size by measured times too).

    Args:
        depth: of the first rounds, which try several sizes: V is a line only through several.
    """

    def __init__(self, depth: int) -> None:
        sizes = (
            DraftShape(depth),
            DraftShape(depth, 2 * depth + 2),
            DraftShape(depth, 4 * depth + 4),
            DraftShape(0),
        )
        self._trials = [shape._replace(nodes=min(shape.nodes, MAX_TREE_NODES)) for shape in sizes]
        self._first, self._later = _Share(KEPT_FIRST), _Share(KEPT_NEXT)
        self._step, self._rest = Decayed(), Line()
        self._plain = 0

    def next(self) -> DraftShape:
        if self._trials:
            return self._trials.pop(0)
        if self._plain >= PATIENCE or not self._step.weight:
            return DraftShape(1, 2)
        return self._best()

    def _best(self) -> DraftShape:
        first, later = round(self._first.value, 2), round(self._later.value, 2)
        rest = [self._rest.at(nodes) for nodes in range(MAX_TREE_NODES + 1)]
        best, most = DraftShape(0), 1 / rest[0]
        for depth in range(1, MAX_GAMMA + 1):
            drafting = depth * self._step.mean
            chain = expected_tokens(first, depth) / (drafting + rest[depth])
            trees = [
                kept / (drafting + cost) for kept, cost in zip(_expected(depth, first, later), rest, strict=True)
            ]
            tree = max(trees[depth + 1 :])
            if max(chain, tree) > most:
                most = max(chain, tree)
                best = DraftShape(depth, trees.index(tree, depth + 1) if tree > chain else 0)
        return best

    def observe(self, step: Step) -> None:
        outcome, drafted = step.outcome, len(step.outcome.drafted)
        self._rest.add(drafted, step.phases["verify"] + step.phases["other"])
        self._plain = 0 if drafted else self._plain + 1
        if not drafted:
            return
        tree = outcome.proposal.tree
        self._step.add(step.phases["draft"] / tree.depth)
        path = [0, *outcome.path[: outcome.accepted]]
        tests = [(tree.children[slot], kept) for slot, kept in zip(path, [*path[1:], None], strict=True)]
        if outcome.kept <= outcome.passed:  # an end token: nothing was tested behind it
            tests.pop()
        tests = [(children, kept) for children, kept in tests if children]
        self._first.add(sum(children[0] == kept for children, kept in tests), len(tests))
        later = [
            (kept is not None, children.index(kept) if kept is not None else len(children) - 1)
            for children, kept in tests
            if children[0] != kept
        ]
        self._later.add(sum(passed for passed, _ in later), sum(tested for _, tested in later))


@lru_cache(maxsize=512)
def _expected(depth: int, first: float, later: float) -> tuple[float, ...]:
    """Tokens a round of the best tree of 0, 1, 2, … places that is no deeper."""
    return tuple(accumulate(weights(depth, MAX_TREE_NODES, first, later), initial=1.0))


def shape_policy(settings: Settings) -> ShapePolicy:
    """What these settings ask for."""
    if not settings.drafts_trees:
        return Chains(gamma_policy(settings))
    if isinstance(settings.tree_nodes, int):
        return FixedTree(settings.gamma, settings.tree_nodes)
    return AdaptiveTree(settings.gamma)
