"""Grows a draft tree level by level: one forward of the drafting model for all of a level's tokens that go on.

Two ways to choose. :class:`BestFirst` keeps the tokens with the most likely paths; their q is one-hot.
:class:`WithoutReplacement` fixes the shape first and then draws siblings from q, each from what those before it
left: a drawn token must never be dropped for what it is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal, TreeMask
from specdemo.decoding.sampling import Sampler
from specdemo.models.failures import not_finite

KEPT_FIRST, KEPT_NEXT = 0.7, 0.3
"""How often a drawn token is taken to pass, and each sibling tested after it: they shape a drawn tree."""


@dataclass(eq=False, slots=True)
class Place:
    """A place in a tree whose shape is fixed before its tokens are drawn."""

    score: float
    children: list[Place] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Node:
    """A token of a growing tree."""

    token: int  # its id
    parent: Node | None  # None if it follows the last committed token
    row: int  # of the scores that it was taken from
    score: float = 0.0  # log of its path's probability; of a drawn token, of its place's
    children: list[Place] = field(default_factory=list)  # the places behind a drawn one that are to be filled
    path: tuple[int, ...] = field(init=False)  # ids from the root's child down to this token

    def __post_init__(self) -> None:
        self.path = (self.token,) if self.parent is None else (*self.parent.path, self.token)


LevelForward = Callable[[Sequence[Node], torch.Tensor, TreeMask], torch.Tensor]
"""(nodes (w,), their tokens (w,), what they attend to) → logits (w, V) behind each of them."""


def grow(
    sampler: Sampler,
    committed: Sequence[int],
    begin: int,
    logits: torch.Tensor,
    forward: LevelForward,
    selector: BestFirst | WithoutReplacement,
) -> Proposal:
    """Draft a tree behind ``committed``.

    ``begin`` tokens are in the drafting model's cache, to which all of the tree attends, and ``logits`` (1, V) are
    the model's behind them; ``forward`` feeds it more.
    """
    parents: list[Node | None] = [None]
    slots: dict[Node, int] = {}  # of the tokens fed, behind ``begin``
    rows: list[torch.Tensor] = []
    while True:
        paths = (() if node is None else node.path for node in parents)
        scores = sampler.scores(logits.to(sampler.device), committed, paths)
        frontier = selector.extend(scores, parents, sum(map(len, rows)))
        rows.append(scores)
        if not frontier:
            return _proposal(selector.chosen(), torch.cat(rows), selector.q())
        slots |= {node: slot for slot, node in enumerate(frontier, start=len(slots))}
        ancestors = torch.zeros(len(frontier), len(slots), dtype=torch.bool)
        for row, node in enumerate(frontier):
            above: Node | None = node
            while above is not None:
                ancestors[row, slots[above]] = True
                above = above.parent
        looks = TreeMask(begin, [len(node.path) - 1 for node in slots], ancestors)
        logits = forward(frontier, torch.tensor([node.token for node in frontier]), looks)
        parents = list(frontier)


def _proposal(nodes: Sequence[Node], scores: torch.Tensor, q: torch.Tensor | None) -> Proposal:
    """The nodes, parents first, as what is verified."""
    if not nodes:
        return NOTHING_DRAFTED
    slots: dict[Node | None, int] = {None: 0} | {node: slot for slot, node in enumerate(nodes, start=1)}
    return Proposal(
        torch.tensor([node.token for node in nodes]),
        q,
        scores,
        parents=tuple(slots[node.parent] for node in nodes),
        rows=tuple(node.row for node in nodes),
    )


def selector_for(
    sampler: Sampler, depth: int, nodes: int, beam: int | None = None
) -> BestFirst | WithoutReplacement:
    """Draws siblings where the acceptance rule asks for it, else takes the likeliest; see :class:`BestFirst`."""
    if sampler.draws_siblings:
        return WithoutReplacement(sampler, depth, nodes)
    return BestFirst(depth, nodes, beam, sampler.p_min)


class BestFirst:
    """The ``nodes`` tokens with the most likely paths of at most ``depth`` tokens.

    A level goes on only from tokens that are among the best so far. Since a path only gets less likely, that finds
    the same tokens as a search that always takes the best token next (arXiv 2604.12989, section 3), with a forward
    a level instead of one a token.

    Args:
        depth, nodes: of the tree, at the most.
        beam: tokens of a level that go on, at the most (Li et al., arXiv 2406.16858, section 4.1).
        p_min: nothing follows where no token is as likely as that.
    """

    def __init__(self, depth: int, nodes: int, beam: int | None = None, p_min: float = 0.0) -> None:
        self._depth, self._nodes, self._beam, self._p_min = depth, nodes, beam, p_min
        self._kept: list[Node] = []

    def extend(self, scores: torch.Tensor, parents: Sequence[Node | None], first_row: int) -> list[Node]:
        """The nodes whose followers are wanted, given the processed scores (w, V) behind each parent."""
        logs = scores.log_softmax(-1)
        best = logs.topk(min(self._nodes, logs.shape[1]))
        unsure = best.values[:, :1].exp() < self._p_min
        before = torch.tensor([0.0 if node is None else node.score for node in parents], device=logs.device)
        paths = (best.values + before.unsqueeze(1)).masked_fill(unsure, -torch.inf).flatten()
        chosen = paths.topk(min(self._nodes, len(paths)))
        tokens = best.indices.flatten()[chosen.indices].tolist()
        values = chosen.values.tolist()
        if any(map(math.isnan, values)):
            raise not_finite("drafter")
        found = []
        for score, place, token in zip(values, chosen.indices.tolist(), tokens, strict=True):
            row = place // best.values.shape[1]
            parent = parents[row]
            if score > -torch.inf:  # a token that was cut from q is never drafted
                # A probability of 1 may be rounded to more, and no path is likelier than its beginning.
                score = min(score, 0.0 if parent is None else parent.score)
                found.append(Node(token, parent, first_row + row, score))
        # Stable: of two alike the one found first stays, so that no token stays without its parent.
        self._kept = sorted([*self._kept, *found], key=lambda node: -node.score)[: self._nodes]
        staying = set(self._kept)
        return [node for node in found if node in staying and len(node.path) < self._depth][: self._beam]

    def chosen(self) -> list[Node]:
        return sorted(self._kept, key=lambda node: (len(node.path), -node.score))

    def q(self) -> None:
        """One-hot."""


class WithoutReplacement:
    """A tree of a fixed shape whose siblings are drawn from q, each from what the ones before it left.

    The shape does not depend on what is drawn: it is the best for drafts that pass as often as ``KEPT_FIRST`` and
    ``KEPT_NEXT`` say (after Chen et al., arXiv 2402.12374, section 3.1, whose shapes also are fixed).
    """

    def __init__(self, sampler: Sampler, depth: int, nodes: int) -> None:
        self._sampler = sampler
        self._first = drawn_shape(depth, nodes)
        self._drawn: list[Node] = []
        self._q: list[torch.Tensor] = []

    def extend(self, scores: torch.Tensor, parents: Sequence[Node | None], first_row: int) -> list[Node]:
        """As of :class:`BestFirst`."""
        q = self._sampler.probabilities(scores)
        self._q.append(q)
        found = []
        for row, parent in enumerate(parents):
            places = self._first if parent is None else parent.children
            # torch draws no more than there are; top-k or top-p may leave one token.
            count = 0 if q[row].max() < self._sampler.p_min else min(len(places), int((q[row] > 0).sum()))
            tokens = self._sampler.draw_apart(q[row], count, "drafter").tolist() if count else []
            for place, token in zip(places, tokens, strict=False):
                found.append(Node(token, parent, first_row + row, place.score, place.children))
        self._drawn += found
        return [node for node in found if node.children]

    def chosen(self) -> list[Node]:
        return self._drawn

    def q(self) -> torch.Tensor:
        """(rows, V) that siblings were drawn from."""
        return torch.cat(self._q)


def drawn_shape(depth: int, nodes: int) -> list[Place]:
    """The places behind the last committed token in the tree of ``nodes`` places that keeps the most tokens.

    A greedy choice is the best: a place never counts more than its parent, and a sibling no more than the one
    before, since later ones pass no more often than first ones.
    """
    first: list[Place] = []
    heap: list[tuple[float, int, list[Place], float, int]] = [(-KEPT_FIRST, 0, first, 1 - KEPT_FIRST, 1)]
    for count in range(1, nodes + 1):
        weight, _, siblings, left, level = heapq.heappop(heap)
        place = Place(-weight)
        siblings.append(place)
        # The next sibling is tested where this one failed.
        heapq.heappush(heap, (-left * KEPT_NEXT, 2 * count, siblings, left * (1 - KEPT_NEXT), level))
        if level < depth:
            child = place.score * KEPT_FIRST
            heapq.heappush(heap, (-child, 2 * count + 1, place.children, place.score - child, level + 1))
    return first
