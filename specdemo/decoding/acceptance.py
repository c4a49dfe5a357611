"""Which drafted tokens are kept: the rules of chains and of trees, and :func:`judge`, which asks one of a round.

Shapes of chains: B rounds, γ drafted tokens each, V tokens in the vocabulary. Row i of a round's target scores is
the prediction after the first i drafted tokens, so there is one row more than drafted tokens. Of trees: n drafted
tokens, and row i of the scores (n + 1, V) is the prediction behind slot i. On a chain a tree's rule decides and
draws as the chain's of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from specdemo.decoding.proposal import Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.settings import Settings

TYPICAL_EPSILON, TYPICAL_DELTA = 0.09, 0.3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule of chains decided."""

    accepted: torch.Tensor  # (B,) how many leading drafted tokens are kept
    token: torch.Tensor  # (B,) the target's own token that follows them
    probability: torch.Tensor  # (B, γ) the probability with which each drafted token would be accepted, if tested
    # (B, γ) sum over the vocabulary of min(p, q), the acceptance rate to expect; None at temperature 0, where the
    # distributions are not used
    overlap: torch.Tensor | None = None
    # (B, γ) the numbers drawn: a token passes where its own is below ``probability``; or None
    uniforms: torch.Tensor | None = None
    # (B, V) what ``token`` was drawn from where a drafted one was rejected; None of other rules
    residual: torch.Tensor | None = None


Rule = Callable[[torch.Tensor, torch.Tensor, "torch.Tensor | None", Sampler], Verdict]
"""(target scores (B, γ+1, V), drafted (B, γ), q (B, γ, V) or None for one-hot, sampler) -> Verdict."""


def leading(passed: torch.Tensor) -> torch.Tensor:
    """How many of the first positions all passed: bool (B, γ) gives int64 (B,)."""
    return passed.long().cumprod(dim=1).sum(dim=1)


def row_after(rows: torch.Tensor, accepted: torch.Tensor) -> torch.Tensor:
    """The row that predicts the token after the accepted ones: (B, n, V) and (B,) give (B, V)."""
    return rows[torch.arange(len(rows), device=rows.device), accepted]


def of_drafted(rows: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
    """Each row's value at its drafted token: (B, γ or γ+1, V) and (B, γ) give (B, γ)."""
    return rows[:, : drafted.shape[1]].gather(2, drafted.unsqueeze(-1)).squeeze(-1)


def one_hot(drafted: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The q of tokens that were not drawn: (B, γ) gives (B, γ, V), as wide and of the type of ``p``."""
    return torch.nn.functional.one_hot(drafted, p.shape[-1]).to(p.dtype)


def exact(scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler) -> Verdict:
    """Keep a drafted token while it is the target's most likely one; lossless for greedy decoding.

    The temperature-0 limit of rejection sampling (Leviathan et al., arXiv 2211.17192, section 2.3).
    """
    best = scores.argmax(-1)
    passed = best[:, :-1] == drafted
    accepted = leading(passed)
    return Verdict(accepted, best.gather(1, accepted[:, None]).squeeze(1), passed.float())


def rejection_sampling(
    scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler
) -> Verdict:
    """Speculative sampling: accept with probability min(1, p/q), else draw from max(p − q, 0). Lossless.

    Leviathan et al., arXiv 2211.17192, algorithm 1; Chen et al., arXiv 2302.01318, algorithm 2.
    """
    p = sampler.probabilities(scores)
    q = one_hot(drafted, p) if q is None else q
    p_drafted, q_drafted = of_drafted(p, drafted), of_drafted(q, drafted)
    # Strictly less: with p = 0 and u = 0 the token must not pass.
    uniforms = sampler.uniforms(*drafted.shape)
    accepted = leading(uniforms * q_drafted < p_drafted)
    following = residual(row_after(p, accepted), row_after(torch.nn.functional.pad(q, (0, 0, 0, 1)), accepted))
    return Verdict(
        accepted,
        sampler.draw(following),
        (p_drafted / q_drafted).clamp(max=1.0),
        torch.minimum(p[:, :-1], q).sum(-1),
        uniforms,
        following,
    )


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """max(p − q, 0), normalised; p itself where nothing is left (p = q up to rounding). Both (B, V).

    After a fully accepted draft there is no q: pass zeros, and the residual is p.
    """
    return normalised((p - q).clamp(min=0.0), p)


def normalised(weights: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """Weights (B, V) that sum to 1; rows of ``otherwise`` where there are none."""
    total = weights.sum(-1, keepdim=True)
    some = total > 0  # a total below the least normal number is one too
    return torch.where(some, weights / torch.where(some, total, 1.0), otherwise)


def token_match(scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler) -> Verdict:
    """Sample the target at every position and accept while the draft said the same. Lossless.

    What transformers and many engines call speculative decoding by exact match; p(x) is accepted where
    rejection sampling accepts min(1, p(x)/q(x)), which is never less (Leviathan et al., arXiv 2211.17192, A.5).
    """
    p = sampler.probabilities(scores)
    rounds, positions, vocabulary = p.shape
    sampled = sampler.draw(p.reshape(-1, vocabulary)).view(rounds, positions)
    accepted = leading(sampled[:, :-1] == drafted)
    chance = of_drafted(p, drafted)
    return Verdict(accepted, sampled.gather(1, accepted[:, None]).squeeze(1), chance)


def block_verification(
    scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler
) -> Verdict:
    """Judge the drafted block as a whole: keep the longest prefix that passes. Lossless.

    Sun et al., "Block Verification Accelerates Speculative Decoding", arXiv 2403.10444, algorithm 2. With
    w₀ = 1 and wᵢ = min(1, wᵢ₋₁·p(xᵢ)/q(xᵢ)), prefix i passes with probability rᵢ/(rᵢ + 1 − wᵢ), where rᵢ is the
    sum of max(wᵢ·p − q, 0) over the next token, and the whole block with probability w_γ. The token after
    the longest passing prefix is drawn from max(wᵢ·p − q, 0), after the whole block from p.
    Keeps at least as many tokens as rejection sampling in expectation (theorem 2).
    The recorded acceptance probability of token i is wᵢ, that of its whole prefix.
    """
    p = sampler.probabilities(scores)
    q = one_hot(drafted, p) if q is None else q
    ratios = of_drafted(p, drafted) / of_drafted(q, drafted)
    weights = [p.new_ones(len(p))]
    for ratio in ratios.unbind(1):
        weights.append((weights[-1] * ratio).clamp(max=1.0))
    weight = torch.stack(weights, dim=1)
    # Behind the last drafted token there is no q: zeros make its remainder the target's own distribution.
    rest = (weight.unsqueeze(-1) * p - torch.nn.functional.pad(q, (0, 0, 0, 1))).clamp(min=0.0)
    left = rest[:, 1:-1].sum(-1)
    inner = left / (left + 1 - weight[:, 1:-1]).clamp(min=torch.finfo(p.dtype).tiny)
    passes = torch.cat([inner, weight[:, 1:][:, -1:]], dim=1)
    lengths = torch.arange(1, drafted.shape[1] + 1, device=drafted.device)
    longest = (sampler.uniforms(*drafted.shape) < passes) * lengths
    accepted = torch.nn.functional.pad(longest, (1, 0)).amax(dim=1)
    following = normalised(row_after(rest, accepted), row_after(p, accepted))
    return Verdict(accepted, sampler.draw(following), weight[:, 1:])


def naive(scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler) -> Verdict:
    """Accept with probability p(x), else draw afresh from p. **Lossy**: a rule found in tutorials.

    The output is p(x)·(q(x) + 1 − Σq·p), not p(x): what both models like comes out too often.
    """
    p = sampler.probabilities(scores)
    chance = of_drafted(p, drafted)
    uniforms = sampler.uniforms(*drafted.shape)
    accepted = leading(uniforms < chance)
    return Verdict(accepted, sampler.draw(row_after(p, accepted)), chance, uniforms=uniforms)


def typical(scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler) -> Verdict:
    """Medusa's typical acceptance: keep what is plausible for the target. **Lossy.**

    Accept x if p(x) > min(ε, δ·exp(−H(p))) with ε = 0.09, δ = 0.3: the surer the target, the more is asked
    (Cai et al., arXiv 2401.10774, section 2.3.1).
    """
    p = sampler.probabilities(scores)
    entropy = -torch.special.xlogy(p[:, :-1], p[:, :-1]).sum(-1)
    threshold = (TYPICAL_DELTA * torch.exp(-entropy)).clamp(max=TYPICAL_EPSILON)
    passed = of_drafted(p, drafted) > threshold
    accepted = leading(passed)
    return Verdict(accepted, sampler.pick(row_after(scores, accepted)), passed.float())


def among_top_k(k: int) -> Rule:
    """A rule that keeps a drafted token if fewer than ``k`` tokens score above it. **Lossy.**"""

    def top_k(scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler) -> Verdict:
        chosen = scores[:, :-1].gather(2, drafted.unsqueeze(-1))
        # A token that the warpers cut from p has score −inf and must never pass.
        passed = ((scores[:, :-1] > chosen).sum(-1) < k) & chosen.squeeze(-1).isfinite()
        accepted = leading(passed)
        return Verdict(accepted, sampler.pick(row_after(scores, accepted)), passed.float())

    return top_k


RULES: dict[str, Rule] = {
    "sampling": rejection_sampling,
    "token_match": token_match,
    "block": block_verification,
    "naive": naive,
}
"""Rules of distributions; at temperature 0 these are single tokens, and all the rules are ``exact``."""


def rule_for(settings: Settings) -> Rule:
    if settings.acceptance == "top_k":
        return among_top_k(settings.accept_top_k)
    if settings.acceptance == "typical":
        return typical
    return exact if settings.greedy else RULES[settings.acceptance]


UNTESTED = float("nan")


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """What was decided of one round, a chain or a tree."""

    path: Sequence[int]  # the slots accepted, from a child of the root down; of a chain the first ones
    token: int  # the target's own token that follows them
    # (n,) the probability with which each drafted token would be accepted once its parent was and the siblings
    # before it were not; NaN of those that were not tested
    probability: torch.Tensor
    # (n,) sum over the vocabulary of min(p, q); None where the distributions are not used, and of trees, whose
    # positions have several chances
    overlap: torch.Tensor | None = None
    # uniforms, residual: see :class:`Verdict`; no residual of trees, which have several
    uniforms: torch.Tensor | None = None
    residual: torch.Tensor | None = None


TreeRule = Callable[[torch.Tensor, Proposal, Sampler], TreeVerdict]
"""(target scores (n+1, V), the tree, sampler) -> TreeVerdict."""


def _descend(
    proposal: Proposal, siblings: Callable[[int], Iterator[tuple[float, bool]]], token: Callable[[int], int]
) -> TreeVerdict:
    """Go down while a child passes.

    Args:
        proposal: the tree.
        siblings: tests the children of a slot, as long as it is asked: (probability to pass, whether it did).
        token: the target's own behind the slot where none passed.
    """
    tree, slot = proposal.tree, 0
    probability = [UNTESTED] * len(proposal)
    while True:
        found = None
        for (chance, passed), child in zip(siblings(slot), tree.children[slot], strict=False):
            probability[child - 1] = chance
            if passed:
                found = child
                break
        if found is None:
            return TreeVerdict(tree.path(slot), token(slot), torch.tensor(probability))
        slot = found


def _matching(proposal: Proposal, chosen: list[int], chance: Callable[[int, int], float]) -> TreeVerdict:
    """Go down while a child is what the target chose, one token a slot; ``chance`` of (slot, token) to be so."""

    def siblings(slot: int) -> Iterator[tuple[float, bool]]:
        left = 1.0
        for child in proposal.tree.children[slot]:
            token = proposal.ids[child - 1]
            p = min(1.0, chance(slot, token) / left) if left > 0 else 0.0
            yield p, token == chosen[slot]
            left *= 1 - p

    return _descend(proposal, siblings, chosen.__getitem__)


def exact_path(scores: torch.Tensor, proposal: Proposal, sampler: Sampler) -> TreeVerdict:
    """Descend while a child is the target's most likely token; lossless for greedy decoding."""
    best = scores.argmax(-1).tolist()
    return _matching(proposal, best, lambda slot, token: float(token == best[slot]))


def matching_path(scores: torch.Tensor, proposal: Proposal, sampler: Sampler) -> TreeVerdict:
    """Sample the target behind every token, and descend while a child is what was drawn. Lossless.

    For trees whose tokens were chosen with certainty; one of the children passes with probability Σ p of them. It
    equals the loop of EAGLE (Li et al., arXiv 2406.16858): a child passes with p, else its p becomes 0.
    """
    p = sampler.probabilities(scores)
    return _matching(proposal, sampler.draw(p).tolist(), lambda slot, token: float(p[slot, token]))


def recursive_rejection(scores: torch.Tensor, proposal: Proposal, sampler: Sampler) -> TreeVerdict:
    """Rejection sampling of siblings that were drawn without replacement, one after the other. Lossless.

    A rejected sibling leaves the residual max(p − q, 0) as the target of the next one, which was drawn from q
    without it; both are normalised again (Chen et al., arXiv 2402.12374, algorithm 3; Jeon et al., arXiv
    2402.14160).
    """
    p, q = sampler.probabilities(scores), proposal.q
    assert q is not None, "these siblings are drawn"
    drawn = sampler.uniforms(len(proposal))
    uniforms, left = drawn.tolist(), p[0]

    def siblings(slot: int) -> Iterator[tuple[float, bool]]:
        nonlocal left
        left, children = p[slot], proposal.tree.children[slot]
        drawn_from = q[proposal.rows[children[0] - 1]] if children else left
        for child in children:
            token = proposal.ids[child - 1]
            p_token, q_token = float(left[token]), float(drawn_from[token])
            # Strictly less: with p = 0 and u = 0 the token must not pass.
            yield min(1.0, p_token / q_token), uniforms[child - 1] * q_token < p_token
            left = residual(left[None], drawn_from[None])[0]
            drawn_from = without(drawn_from, token)

    verdict = _descend(proposal, siblings, lambda slot: int(sampler.draw(left[None])))
    return replace(verdict, uniforms=drawn)


def without(q: torch.Tensor, token: int) -> torch.Tensor:
    """q (V,) of the next draw, which cannot be ``token`` again; all zeros where nothing else was left."""
    rest = q.clone()[None]
    rest[0, token] = 0.0
    return normalised(rest, rest)[0]


RULES_OF_TREES: dict[str, TreeRule] = {
    "exact": exact_path,
    "token_match": matching_path,
    "sampling": recursive_rejection,
}
"""By ``Settings.acceptance``; at temperature 0 all of them are ``exact_path``."""


def judge(
    settings: Settings, scores: torch.Tensor, proposal: Proposal, sampler: Sampler
) -> tuple[Sequence[int], TreeVerdict]:
    """The drafted ids, and which of them pass the rule of the settings, by the target's ``scores`` (n+1, V).

    Only here is anything asked of the device, of a chain once: on a GPU all of the round has been on its way.
    """
    if not proposal.is_chain:
        # Siblings that were not drawn pass as they are drawn from p: EAGLE's loop, see :func:`matching_path`.
        drawn = RULES_OF_TREES[settings.acceptance] if proposal.q is not None else matching_path
        rule = exact_path if settings.greedy else drawn
        return proposal.ids, rule(scores, proposal, sampler)
    drafted = proposal.tokens.to(scores.device)
    q = None if proposal.q is None else proposal.q.unsqueeze(0)
    verdict = rule_for(settings)(scores.unsqueeze(0), drafted.unsqueeze(0), q, sampler)
    *ids, passed, token = torch.cat([drafted, verdict.accepted, verdict.token]).tolist()
    rest = verdict.probability, verdict.overlap, verdict.uniforms, verdict.residual
    return ids, TreeVerdict(range(1, passed + 1), token, *rest)
