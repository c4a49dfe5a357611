"""The verdict between two lanes, from hand-made traces."""

from __future__ import annotations

import pytest
from made_traces import PLAIN, lane_of, plain_lane, round_of

from specdemo.analysis.diagnosis import explain_quantization, explain_race
from specdemo.analysis.reasons import explain
from specdemo.analysis.repetition import distinct_share, loops
from specdemo.losslessness.compare import compare
from specdemo.settings import Settings
from specdemo.theory import expected_speedup
from specdemo.trace import Trace
from specdemo.view.verdict import verdict

SPECULATIVE = Settings(gamma=2)


def trace(
    ids: list[int],
    settings: Settings = PLAIN,
    quantization: str | None = None,
    *,
    margin: float = 1.0,
    stop: str | None = "length",
    step: float = 0.1,
) -> Trace:
    """A lane of these tokens, one a round."""
    ends = [None] * (len(ids) - 1) + [stop]
    rounds = [
        round_of(i, ["target"], step * (i + 1), (0.0, step, 0.0), id=t, margin=margin, stop=end)
        for i, (t, end) in enumerate(zip(ids, ends, strict=True))
    ]
    return Trace(settings, (1, 2), tuple(rounds), quantization=quantization)


@pytest.mark.parametrize(
    ("left", "right", "outcome", "position"),
    [
        (trace([5, 6, 7]), trace([5, 6, 7], SPECULATIVE), "identical", 3),
        (trace([5, 6, 7]), trace([5, 9, 7], SPECULATIVE), "diverged", 1),
        (trace([5, 6, 7], margin=1e-5), trace([5, 9, 7], SPECULATIVE, margin=1e-5), "tie", 1),
        (trace([5, 6, 7]), trace([5, 6], SPECULATIVE), "diverged", 2),
        (trace([5, 6, 7]), trace([5, 6], SPECULATIVE, stop=None), "partial", 2),
        (trace([5, 6, 7]), trace([5, 9], SPECULATIVE, stop=None), "diverged", 1),
        (trace([5, 6, 7]), trace([5, 6], SPECULATIVE, stop="context"), "partial", 2),
    ],
)
def test_every_outcome_is_told_apart(left: Trace, right: Trace, outcome: str, position: int) -> None:
    """Guards the order of the checks: a stopped lane is not a divergence, a shorter finished one is."""
    judgement = compare(left, right)
    assert (judgement.outcome, judgement.position) == (outcome, position)


def test_a_tie_under_a_lossy_rule_is_no_excuse() -> None:
    """A lossy rule takes other tokens on purpose; a small margin must not hide that."""
    lossy = Settings(acceptance="top_k", gamma=2)
    judgement = compare(trace([5, 6], margin=1e-6), trace([5, 9], lossy, margin=1e-6))
    assert judgement.outcome == "diverged"
    assert "lossy" in judgement.text


def test_sampled_lanes_are_not_compared_token_by_token() -> None:
    """Two draws from one distribution differ; that is no divergence."""
    warm = Settings(strategy="autoregressive", temperature=1.0)
    assert compare(trace([5, 6], warm), trace([5, 9], warm)).outcome == "sampled"
    assert "lossy" in compare(trace([5], warm), trace([6], Settings(acceptance="top_k", temperature=1.0))).text


def half_kept(quantization: str | None = None) -> Trace:
    """A lane that keeps one of two drafted tokens: τ 2, draft steps of 0.01 s, forwards of 0.12 s."""
    kinds = ["accepted", "rejected", "corrected"]
    return lane_of(SPECULATIVE, [(kinds, (0.02, 0.12, 0.0))] * 4, quantization=quantization)


def test_the_reason_is_made_of_the_measured_numbers() -> None:
    """τ 2, c 0.1, v 1.2, γ 2: predicted 2 / (2 · 0.1 + 1.2) = 1.4."""
    baseline = plain_lane([0.1] * 7)
    lane = half_kept()
    metrics = lane.metrics(baseline)
    assert metrics.draft_cost == pytest.approx(0.1)
    assert metrics.verify_cost == pytest.approx(1.2)
    reason = explain(baseline, lane)
    assert reason is not None
    for part in ("1.4×", "50%", "τ 2.0", "10%", "1.2 steps", "predict 1.4×"):
        assert part in reason


def test_rounds_that_drafted_nothing_are_predicted_as_what_they_cost() -> None:
    """A drafter that proposes now and then must not be charged a full verification in every round."""
    single, drafted = (["target"], (0.0, 0.1, 0.0)), (["accepted", "bonus"], (0.0, 0.15, 0.0))
    reason = explain(plain_lane([0.1] * 7), lane_of(SPECULATIVE, [single, single, single, drafted] * 2))
    assert reason is not None
    assert reason.startswith("1.1×"), "10 tokens in 0.9 s, where plain decoding takes 1.0"
    assert "predict 1.1×" in reason, "1.25 tokens a round over 1 + (1.5 − 1) · 0.25 steps"


def test_no_reason_is_given_without_a_measured_baseline() -> None:
    """Two speculative lanes have no single target steps to divide by."""
    lane = trace([5, 6, 7], SPECULATIVE)
    assert explain(lane, lane) is None


def test_theory_and_repetition_on_numbers_done_by_hand() -> None:
    """Guards the two formulas against a swapped γ and c, and against counting duplicates."""
    assert expected_speedup(3.0, 4, 0.1, 1.1) == pytest.approx(2.0)
    assert distinct_share([1, 2, 3, 4, 1, 2, 3, 4, 1]) == pytest.approx(4 / 6)
    assert distinct_share([1, 2]) == 1.0


def test_rows_of_a_table_are_no_loop() -> None:
    """Keys and brackets come back in every row; sentences that come back are a loop."""
    rows = [token for row in range(5) for token in (1, 2, 3, 100 + row, 4, 5, 6, 7, 200 + row, 8, 9)]
    assert not loops(rows)
    assert loops(list(range(20)) * 5)


# --- lanes of other weights ---------------------------------------------------------------------------------


IDS = [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (0.24, "int8 weights make the target 2.4× slower here (4.2 against 10.0 tokens/s"),
        (0.05, "int8 weights make the target 2.0× as fast here"),
        (0.101, "int8 weights leave the target as fast as it was"),
    ],
)
def test_what_quantisation_does_to_a_step_is_said_from_two_plain_lanes(step: float, said: str) -> None:
    """Guards the honest baseline: measured beside it, never estimated, slower or not."""
    lanes = [trace(IDS, PLAIN, "int8", step=step), trace(IDS)]
    assert said in explain_quantization(lanes)
    assert explain_quantization(lanes) == explain_quantization(lanes[::-1])
    assert explain_quantization(lanes[:1]) is None
    assert explain_quantization([lanes[0], Trace(SPECULATIVE, (1, 2), lanes[1].rounds)]) is None


def test_a_lane_is_judged_against_the_first_of_its_own_weights() -> None:
    """Guards against blaming speculation for what quantisation changed."""
    quantised, whole = [5, 6, 7, 1, 1, 1], IDS
    lanes = [trace(whole), trace(quantised, PLAIN, "int8"), trace(quantised, PLAIN, "int8")]
    found = verdict(lanes, ["Plain 1", "Plain 2", "Speculative"])
    said = "Speculative: identical output, checked at all 6 tokens (against Plain 2)"
    assert found == {"kind": "identical", "text": said}
    assert verdict(lanes[:2], ["Plain 1", "Plain 2"])["kind"] == "partial"
    broken = [*lanes[:2], trace(whole, PLAIN, "int8")]
    assert verdict(broken, ["Plain 1", "Plain 2", "Speculative"])["kind"] == "diverged"


def test_the_reason_compares_with_plain_decoding_of_the_same_weights() -> None:
    """Guards c and v, which would otherwise divide a quantised step by an unquantised one."""
    lane = half_kept("int8")
    reason = explain_race([trace(IDS, step=0.09), lane, trace(IDS, PLAIN, "int8")])
    assert reason.startswith("1.4× over int8 plain because")
    assert "1.2 steps" in reason
    assert "int8 weights make the target 1.1× slower" in reason
    assert "int8 weights of this lane" in explain_race([trace(IDS), lane])
