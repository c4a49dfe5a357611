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
    if q is None:
        q = torch.nn.functional.one_hot(drafted, p.shape[-1]).to(p.dtype)
    p_drafted = p[:, :-1].gather(2, drafted.unsqueeze(-1)).squeeze(-1)
    q_drafted = q.gather(2, drafted.unsqueeze(-1)).squeeze(-1)
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
    rest = (p - q).clamp(min=0.0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total.clamp(min=torch.finfo(p.dtype).tiny), p)


def among_top_k(k: int) -> Rule:
    """A rule that keeps a drafted token if fewer than ``k`` tokens score above it. **Lossy.**"""

    def top_k(scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler) -> Verdict:
        chosen = scores[:, :-1].gather(2, drafted.unsqueeze(-1))
        # A token that the warpers cut from p has score −inf and must never pass.
        passed = ((scores[:, :-1] > chosen).sum(-1) < k) & chosen.squeeze(-1).isfinite()
        accepted = leading(passed)
        return Verdict(accepted, sampler.pick(row_after(scores, accepted)), passed.float())

    return top_k


def rule_for(settings: Settings) -> Rule:
    """The rule that these settings name. At temperature 0 both sides are greedy and ``sampling`` is ``exact``."""
    if settings.acceptance == "top_k":
        return among_top_k(settings.accept_top_k)
    return exact if settings.greedy else rejection_sampling
