"""What speculative decoding should gain, from measured costs."""

from __future__ import annotations


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
