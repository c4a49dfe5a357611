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
