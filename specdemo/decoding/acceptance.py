"""Which drafted tokens are kept: pure functions over a batch of rounds, and the table of rules.

Shapes: B rounds, γ drafted tokens each, V tokens in the vocabulary. Row i of a round's target scores is
the prediction after the first i drafted tokens, so there is one row more than drafted tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from specdemo.decoding.sampling import Sampler
from specdemo.settings import Settings

TYPICAL_EPSILON, TYPICAL_DELTA = 0.09, 0.3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decided.

    Attributes:
        accepted: (B,) how many leading drafted tokens are kept.
        token: (B,) the target's own token that follows them.
        probability: (B, γ) the probability with which each drafted token would be accepted, if tested.
        overlap: (B, γ) sum over the vocabulary of min(p, q), the acceptance rate to expect; None at
            temperature 0, where the distributions are not used.
    """

    accepted: torch.Tensor
    token: torch.Tensor
    probability: torch.Tensor
    overlap: torch.Tensor | None = None


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
    accepted = leading(sampler.uniforms(*drafted.shape) * q_drafted < p_drafted)
    following = residual(row_after(p, accepted), row_after(torch.nn.functional.pad(q, (0, 0, 0, 1)), accepted))
    return Verdict(
        accepted,
        sampler.draw(following),
        (p_drafted / q_drafted).clamp(max=1.0),
        torch.minimum(p[:, :-1], q).sum(-1),
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
    accepted = leading(sampler.uniforms(*drafted.shape) < chance)
    return Verdict(accepted, sampler.draw(row_after(p, accepted)), chance)


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
    """The rule that these settings name."""
    if settings.acceptance == "top_k":
        return among_top_k(settings.accept_top_k)
    if settings.acceptance == "typical":
        return typical
    return exact if settings.greedy else RULES[settings.acceptance]
