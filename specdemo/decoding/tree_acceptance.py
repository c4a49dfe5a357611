"""Which path of a draft is kept: what judges one round, and the rules of trees, pure functions over it.

Shapes: n drafted tokens, V tokens in the vocabulary. Row i of the target's scores (n + 1, V) is the prediction
behind slot i of the tree. On a chain each rule decides and draws as the one of its name in
:mod:`specdemo.decoding.acceptance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from specdemo.decoding.acceptance import normalised, residual, rule_for
from specdemo.decoding.proposal import Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.settings import Settings

UNTESTED = float("nan")


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """What was decided of one round, a chain or a tree.

    Attributes:
        path: the slots accepted, from a child of the root down; of a chain the first ones.
        token: the target's own token that follows them.
        probability: (n,) the probability with which each drafted token would be accepted once its parent was and
            the siblings before it were not; NaN of those that were not tested.
        overlap: (n,) sum over the vocabulary of min(p, q); None where the distributions are not used, and of
            trees, whose positions have several chances.
    """

    path: Sequence[int]
    token: int
    probability: torch.Tensor
    overlap: torch.Tensor | None = None


TreeRule = Callable[[torch.Tensor, Proposal, Sampler], TreeVerdict]
"""(target scores (n+1, V), the tree, sampler) -> TreeVerdict."""


def _descend(proposal: Proposal, chosen: list[int], chance: Callable[[int, int, float], float]) -> TreeVerdict:
    """Go down while a child is what the target chose, one token a slot.

    Args:
        proposal: the tree.
        chosen: (n + 1,) the target's token behind each slot.
        chance: (slot, token, what the siblings before it left) → probability that the target chooses the token.
    """
    tree, ids = proposal.tree, proposal.ids
    probability = [UNTESTED] * len(ids)
    slot = 0
    while True:
        found, left = None, 1.0
        for child in tree.children[slot]:
            token = ids[child - 1]
            p = chance(slot, token, left)
            probability[child - 1], left = p, left * (1 - p)
            if token == chosen[slot]:
                found = child
                break
        if found is None:
            return TreeVerdict(tree.path(slot), chosen[slot], torch.tensor(probability))
        slot = found


def exact(scores: torch.Tensor, proposal: Proposal, sampler: Sampler) -> TreeVerdict:
    """Descend while a child is the target's most likely token; lossless for greedy decoding."""
    best = scores.argmax(-1).tolist()
    return _descend(proposal, best, lambda slot, token, left: float(token == best[slot]))


def token_match(scores: torch.Tensor, proposal: Proposal, sampler: Sampler) -> TreeVerdict:
    """Sample the target behind every token, and descend while a child is what was drawn. Lossless.

    For trees whose tokens were chosen with certainty; one of the children passes with probability Σ p of them. It
    equals the loop of EAGLE (Li et al., arXiv 2406.16858): a child passes with p, else its p becomes 0.
    """
    p = sampler.probabilities(scores)
    drawn = sampler.draw(p).tolist()

    def chance(slot: int, token: int, left: float) -> float:
        return min(1.0, float(p[slot, token]) / left) if left > 0 else 0.0

    return _descend(proposal, drawn, chance)


def recursive_rejection(scores: torch.Tensor, proposal: Proposal, sampler: Sampler) -> TreeVerdict:
    """Rejection sampling of siblings that were drawn without replacement, one after the other. Lossless.

    A rejected sibling leaves the residual max(p − q, 0) as the target of the next one, which was drawn from q
    without it; both are normalised again (Chen et al., arXiv 2402.12374, algorithm 3; Jeon et al., arXiv
    2402.14160).
    """
    tree, ids = proposal.tree, proposal.ids
    p, q = sampler.probabilities(scores), proposal.q
    assert q is not None, "these siblings are drawn"
    uniforms = sampler.uniforms(len(ids)).tolist()
    probability = [UNTESTED] * len(ids)
    slot = 0
    while True:
        left, found = p[slot], None
        for i, child in enumerate(tree.children[slot]):
            token = ids[child - 1]
            if i == 0:
                drawn_from = q[proposal.rows[child - 1]]
            p_token, q_token = float(left[token]), float(drawn_from[token])
            probability[child - 1] = min(1.0, p_token / q_token)
            # Strictly less: with p = 0 and u = 0 the token must not pass.
            if uniforms[child - 1] * q_token < p_token:
                found = child
                break
            left = residual(left[None], drawn_from[None])[0]
            drawn_from = without(drawn_from, token)
        if found is None:
            return TreeVerdict(tree.path(slot), int(sampler.draw(left[None])), torch.tensor(probability))
        slot = found


def without(q: torch.Tensor, token: int) -> torch.Tensor:
    """q (V,) of the next draw, which cannot be ``token`` again; all zeros where nothing else was left."""
    rest = q.clone()[None]
    rest[0, token] = 0.0
    return normalised(rest, rest)[0]


RULES_OF_TREES: dict[str, TreeRule] = {"exact": exact, "token_match": token_match, "sampling": recursive_rejection}
"""By ``Settings.acceptance``; at temperature 0 all of them are ``exact``."""


def judge(
    settings: Settings, scores: torch.Tensor, proposal: Proposal, sampler: Sampler
) -> tuple[Sequence[int], TreeVerdict]:
    """The drafted ids, and which of them pass the rule of the settings, by the target's ``scores`` (n+1, V).

    Only here is anything asked of the device, of a chain once: on a GPU all of the round has been on its way.
    """
    if not proposal.is_chain:
        rule = exact if settings.greedy else RULES_OF_TREES[settings.acceptance]
        return proposal.ids, rule(scores, proposal, sampler)
    drafted = proposal.tokens.to(scores.device)
    q = None if proposal.q is None else proposal.q.unsqueeze(0)
    verdict = rule_for(settings)(scores.unsqueeze(0), drafted.unsqueeze(0), q, sampler)
    *ids, passed, token = torch.cat([drafted, verdict.accepted, verdict.token]).tolist()
    return ids, TreeVerdict(range(1, passed + 1), token, verdict.probability, verdict.overlap)
