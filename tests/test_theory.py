"""The theory against its limits, its own special cases, and a simulation that counts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.theory import (
    expected_speedup,
    expected_tokens,
    predicted_speedup,
    tokens_per_round,
    verify_cost,
)

shares = st.floats(0, 1)
gammas = st.integers(1, 16)
costs = st.floats(0, 1)
verifies = st.floats(1, 4)


@given(shares, gammas)
def test_equal_acceptance_at_every_position_is_leviathans_formula(alpha: float, gamma: int) -> None:
    assert tokens_per_round([alpha] * gamma) == pytest.approx(expected_tokens(alpha, gamma))
    assert expected_speedup(3.0, 4, 0.1, 1.1) == pytest.approx(2.0), "by hand: γ and c are not swapped"


@given(st.lists(shares, min_size=1, max_size=16), st.data())
def test_tokens_a_round_grow_with_every_share_and_lie_between_1_and_one_more_than_gamma(
    kept: list[float], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(kept) - 1))
    more = [*kept]
    more[place] = data.draw(st.floats(kept[place], 1))
    assert 1 <= tokens_per_round(kept) <= tokens_per_round(more) + 1e-12
    assert tokens_per_round(more) <= len(kept) + 1 + 1e-12
    assert tokens_per_round([0.0, *kept]) == 1
    assert tokens_per_round([1.0] * len(kept)) == len(kept) + 1


@given(st.lists(shares, min_size=2, max_size=8), costs, verifies, st.floats(0, 1), st.floats(0, 1))
def test_a_round_that_drafts_nothing_is_a_plain_step_and_overhead_only_costs(
    kept: list[float], c: float, v: float, overhead: float, plain_overhead: float
) -> None:
    assert predicted_speedup(kept, {0: 5}, c, v, overhead, overhead) == pytest.approx(1)
    full = expected_speedup(tokens_per_round(kept), len(kept), c, v)
    assert predicted_speedup(kept, {len(kept): 7}, c, v) == pytest.approx(full)
    rounds = {len(kept): 9, 1: 2, 0: 1}
    lean = predicted_speedup(kept, rounds, c, v, 0.0, plain_overhead)
    assert predicted_speedup(kept, rounds, c, v, overhead, plain_overhead) <= lean + 1e-12


def test_the_prediction_agrees_with_runs_that_are_played_to_their_end() -> None:
    """Brute force: runs of 64 tokens whose last rounds draft less, at costs that follow the model.

    The mean of 4,000 runs is within 1 % of the prediction; its standard error is about 0.1 %.
    """
    kept, c, v, overhead, plain_overhead = [0.9, 0.8, 0.6, 0.5], 0.1, 1.4, 0.05, 0.02
    dice = random.Random(1)
    rounds: dict[int, int] = {}
    spent = emitted = 0.0
    for _ in range(4000):
        left = 64
        while left:
            drafted = min(4, left - 1)
            failed = next((j for j in range(drafted) if dice.random() >= kept[j]), drafted)
            left -= failed + 1
            emitted += failed + 1
            spent += drafted * c + verify_cost(drafted, 4, v) + overhead
            rounds[drafted] = rounds.get(drafted, 0) + 1
    measured = emitted * (1 + plain_overhead) / spent
    assert predicted_speedup(kept, rounds, c, v, overhead, plain_overhead) == pytest.approx(measured, rel=0.01)
    assert expected_speedup(tokens_per_round(kept), 4, c, v) > 1.01 * measured  # what the two terms are for
