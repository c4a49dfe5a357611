"""The figures of a lane, recomputed here from the trace's JSON by other means."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_traces import lane_of, plain_lane, round_of
from toys import endless_pair, prompt_ids

import specdemo
from specdemo import Settings, Trace

durations = st.floats(1e-6, 10.0)


@st.composite
def lanes(draw: st.DrawFn) -> Trace:
    """Any lane that the loop could have recorded, speculative or plain, finished or not."""
    clock = draw(durations)
    rounds = [round_of(0, ["target"], clock, (clock / 4, clock / 2, clock / 4))]
    with_overlaps = draw(st.booleans())
    for index in range(1, draw(st.integers(0, 12)) + 1):
        drafted = draw(st.integers(0, 6))
        accepted = draw(st.integers(0, drafted))
        phases = draw(durations) if drafted else 0.0, draw(durations), draw(durations)
        clock += sum(phases)
        tested = min(accepted + 1, drafted)
        own = "target" if not drafted else "corrected" if accepted < drafted else "bonus"
        kinds = [*["accepted"] * accepted, *["rejected"] * (drafted - accepted), own]
        overlaps = tuple(draw(st.floats(0.0, 1.0)) for _ in range(tested)) if with_overlaps and drafted else None
        rounds.append(round_of(index, kinds, clock, phases, overlaps=overlaps))
    return Trace(Settings(), (1, 2), tuple(rounds))


def share(amount: float, of: float) -> float | None:
    return amount / of if of else None


@given(lanes())
def test_figures_equal_those_recomputed_from_json(trace: Trace) -> None:
    """Guards the definition of every figure to the last digit, the prefill left out of all but TTFT."""
    metrics = trace.metrics()
    first, *decode = json.loads(trace.to_json())["rounds"]
    kinds = [[t["kind"] for t in r["tokens"]] for r in decode]
    drafted = np.array([k.count("accepted") + k.count("rejected") for k in kinds], dtype=int)
    accepted = np.array([k.count("accepted") for k in kinds], dtype=int)
    emitted = int(sum(len(k) - k.count("rejected") for k in kinds))
    tested = sum(t["acceptance"] is not None for r in decode for t in r["tokens"])
    overlaps = [o for r in decode for o in r["overlaps"] or []]
    end = (decode or [first])[-1]["seconds"]
    time = end - first["seconds"]

    assert metrics.rounds == len(decode)
    assert metrics.proposed == drafted.sum() == sum(r["drafted"] for r in decode)
    assert metrics.accepted == accepted.sum() == sum(r["accepted"] for r in decode)
    assert metrics.emitted == emitted == len(trace.token_ids) - 1
    assert metrics.wasted == sum(k.count("rejected") for k in kinds)
    assert metrics.acceptance_rate == share(accepted.sum(), drafted.sum())
    expected_alpha = math.fsum(overlaps) / len(overlaps) if overlaps else share(accepted.sum(), tested)
    assert metrics.alpha == expected_alpha
    assert metrics.mean_acceptance_length == share(emitted, len(decode))
    longest = int(drafted.max(initial=0))
    assert metrics.accepted_histogram == np.bincount(accepted, minlength=longest + 1).tolist()
    assert metrics.per_position == [share((accepted > j).sum(), len(decode)) for j in range(longest)]
    assert metrics.conditional_per_position == [
        share((accepted > j).sum(), ((accepted >= j) & (drafted > j)).sum()) for j in range(longest)
    ]
    assert metrics.ttft == first["seconds"]
    assert metrics.seconds == end
    assert metrics.tokens_per_second == share(emitted, time)
    assert metrics.end_to_end_tokens_per_second == (emitted + 1) / end
    assert metrics.tpot == share(time, emitted)
    spent = {phase: math.fsum(r[f"{phase}_seconds"] for r in decode) for phase in ("draft", "verify", "other")}
    for phase, seconds in spent.items():
        assert getattr(metrics, f"{phase}_seconds") == seconds
        assert getattr(metrics, f"{phase}_share") == share(seconds, math.fsum(spent.values()))


@pytest.mark.parametrize("strategy", ["autoregressive", "speculative"])
def test_figures_of_real_lanes(strategy: str) -> None:
    """Guards the recorder and the figures together; τ of plain decoding is 1."""
    settings = Settings(strategy=strategy, gamma=4, max_new_tokens=30)
    metrics = specdemo.run(endless_pair("gpt2"), prompt_ids(5), settings).metrics()
    assert metrics.emitted == 29 == metrics.accepted + metrics.rounds
    times = metrics.draft_seconds + metrics.verify_seconds + metrics.other_seconds
    assert times == pytest.approx(metrics.seconds - metrics.ttft)
    assert json.loads(json.dumps(metrics.as_dict())) == metrics.as_dict(), "tables and exports write them as JSON"
    if strategy == "speculative":
        assert metrics.mean_acceptance_length > 1.0
        return
    assert (metrics.mean_acceptance_length, metrics.proposed, metrics.alpha) == (1.0, 0, None)
    assert (metrics.accepted_histogram, metrics.draft_seconds) == ([29], 0.0)


@given(lanes(), st.lists(durations, max_size=7))
def test_costs_are_medians_over_the_rounds_of_the_usual_length(trace: Trace, steps: list[float]) -> None:
    """Guards c = draft step / target step and v(γ) = verify / target step against other rounds mixed in."""
    assert trace.metrics().draft_cost is trace.metrics().verify_cost is None, "costs need a baseline"
    metrics = trace.metrics(plain_lane(steps))
    decode = [r for r in trace.rounds if r.index > 0]
    lengths = [r.drafted for r in decode if r.drafted]
    usual = max(lengths, key=lambda d: (lengths.count(d), d), default=0)
    assert metrics.usual_draft == usual
    if usual == 0 or not steps:  # the prefill of a baseline of one token is no decode step
        assert metrics.draft_cost is None
        assert metrics.verify_cost is None
        return
    full = [r for r in decode if r.drafted == usual]
    step = np.median(steps)
    assert metrics.draft_cost == np.median([r.draft_seconds / usual for r in full]) / step
    assert metrics.verify_cost == np.median([r.verify_seconds for r in full]) / step


def test_figures_of_a_lane_worked_out_by_hand() -> None:
    """Guards against a definition that this file and the code misread alike."""
    kinds = [
        ["accepted", "accepted", "accepted", "bonus"],
        ["accepted", "rejected", "rejected", "corrected"],
        ["rejected", "rejected", "rejected", "corrected"],
        ["accepted", "accepted", "rejected", "corrected"],
    ]
    lane = lane_of(Settings(gamma=3), [(names, (0.3, 0.6, 0.1)) for names in kinds], 1.0)
    metrics = lane.metrics(plain_lane([0.5, 0.5, 0.5]))
    assert (metrics.rounds, metrics.proposed, metrics.accepted, metrics.emitted) == (4, 12, 6, 10)
    assert (metrics.acceptance_rate, metrics.mean_acceptance_length, metrics.wasted) == (0.5, 2.5, 6)
    assert metrics.alpha == pytest.approx(6 / 9)
    assert metrics.accepted_histogram == [1, 1, 1, 1]
    assert metrics.per_position == [0.75, 0.5, 0.25]
    assert metrics.conditional_per_position == [3 / 4, 2 / 3, 1 / 2]
    assert (metrics.draft_share, metrics.other_share) == pytest.approx((0.3, 0.1))
    assert (metrics.draft_cost, metrics.verify_cost) == pytest.approx((0.2, 1.2))
    assert (metrics.ttft, metrics.seconds, metrics.tpot) == pytest.approx((1.0, 5.0, 0.4))
    assert (metrics.tokens_per_second, metrics.end_to_end_tokens_per_second) == (2.5, 2.2)
