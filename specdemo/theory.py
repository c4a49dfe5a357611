"""What speculative decoding should gain, from measured acceptance and measured costs.

Costs are in single target steps: c = draft step / target step, v(γ) = verify of γ + 1 tokens / target step,
o = everything else in a round / target step. Acceptance is conditional, by position: a_j is the share of rounds
that kept drafted token j, of those in which it was reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def expected_speedup(tau: float, gamma: float, c: float, v: float) -> float:
    """τ / (γc + v): tokens a round over the round's cost in single target steps.

    Args:
        tau: mean acceptance length, tokens a round.
        gamma: drafted tokens a round.
        c: draft step time / target step time.
        v: verify time of γ+1 tokens / target step time. With v = 1 and τ from a constant α this is
            Leviathan et al., arXiv 2211.17192, theorem 3.8.
    """
    return tau / (gamma * c + v)


def expected_tokens(alpha: float, gamma: int) -> float:
    """(1 − α^{γ+1}) / (1 − α): tokens a round where every drafted token passes with probability α.

    Leviathan et al., arXiv 2211.17192, equation 1; γ + 1 in the limit α = 1.
    """
    return float(gamma + 1) if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def tokens_per_round(kept: Sequence[float]) -> float:
    """τ(γ) = 1 + Σⱼ Πᵢ≤ⱼ aᵢ: drafted tokens are kept up to the first that fails, and the target adds one.

    Args:
        kept: (γ,) conditional acceptance by position. All equal to α, this is :func:`expected_tokens`.
    """
    total = reached = 1.0
    for share in kept:
        reached *= share
        total += reached
    return total


def verify_cost(drafted: float, longest: int, v: float) -> float:
    """v of a shorter round: on the straight line from a single step, v(0) = 1, to the measured v(``longest``)."""
    return 1 + (v - 1) * drafted / longest


def predicted_speedup(
    kept: Sequence[float],
    rounds: Mapping[int, int],
    c: float,
    v: float,
    overhead: float = 0.0,
    plain_overhead: float = 0.0,
) -> float:
    """(1 + o₀) Σᵣ τ(dᵣ) / Σᵣ (dᵣc + v(dᵣ) + o): every round counted at the length that was drafted.

    The speed-up τ/(γc + v) of endless decoding, and the two terms that a real run has besides: time outside
    the models' forwards, and rounds that draft less than γ, because the output ends (a round also emits one
    token of the target's, so the last ones draft less) or because the drafter had less to offer. With all
    rounds of length γ and no overhead it is :func:`expected_speedup`.

    Args:
        kept: (γ,) conditional acceptance by position.
        rounds: number of rounds by drafted tokens.
        c: draft step time / target step time.
        v: verify time of γ+1 tokens / target step time.
        overhead: o, other time of a speculative round / target step time.
        plain_overhead: o₀, other time of a step of plain decoding / target step time.
    """
    gamma = len(kept)
    tokens = sum(count * tokens_per_round(kept[:d]) for d, count in rounds.items())
    cost = sum(count * (d * c + verify_cost(d, gamma, v) + overhead) for d, count in rounds.items())
    return (1 + plain_overhead) * tokens / cost
