"""The verdict between two lanes, and what is said of other weights, from hand-made traces."""

from __future__ import annotations

import pytest
from made_traces import PLAIN, lane_of, plain_lane, round_of

from specdemo.analysis.diagnosis import explain, explain_race
from specdemo.analysis.repetition import distinct_share, loops
from specdemo.losslessness.compare import compare
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.view.headline import verdict

SPECULATIVE = Settings(gamma=2)
WARM = Settings(strategy="autoregressive", temperature=1.0)
LOSSY = Settings(acceptance="top_k", gamma=2)
LOSSY_WARM = Settings(acceptance="top_k", temperature=1.0)
IDS = [5, 6, 7, 8, 9, 10]


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
        (trace([5, 6], margin=1e-6), trace([5, 9], LOSSY, margin=1e-6), "diverged", 1),  # a tie is no excuse
        (trace([5, 6], WARM), trace([5, 9], WARM), "sampled", 0),
        (trace([5], WARM), trace([6], LOSSY_WARM), "sampled", 0),
    ],
)
def test_every_outcome_is_told_apart(left: Trace, right: Trace, outcome: str, position: int) -> None:
    """Guards the order of the checks: a stopped lane is not a divergence, a shorter finished one is."""
    judgement = compare(left, right)
    assert (judgement.outcome, judgement.position) == (outcome, position)
    assert ("lossy" in judgement.text) == (not right.settings.lossless)


def half_kept(quantization: str | None = None) -> Trace:
    """A lane that keeps one of two drafted tokens: τ 2, draft steps of 0.01 s, forwards of 0.12 s."""
    kinds = ["accepted", "rejected", "corrected"]
    return lane_of(SPECULATIVE, [(kinds, (0.02, 0.12, 0.0))] * 10, quantization=quantization)


def test_the_reason_is_made_of_the_measured_numbers() -> None:
    """τ 2, c 0.1, v 1.2, γ 2: predicted 2 / (2 · 0.1 + 1.2) = 1.4."""
    reason = explain(plain_lane([0.1] * 17), half_kept())
    for part in ("1.4×", "50%", "τ 2.0", "10%", "1.2 steps", "predict 1.4×"):
        assert part in reason


def test_rounds_that_drafted_nothing_are_predicted_as_what_they_cost() -> None:
    """A drafter that proposes now and then must not be charged a full verification in every round."""
    single, drafted = (["target"], (0.0, 0.1, 0.0)), (["accepted", "bonus"], (0.0, 0.15, 0.0))
    reason = explain(plain_lane([0.1] * 17), lane_of(SPECULATIVE, [single, single, single, drafted] * 4))
    assert reason.startswith("1.1×"), "20 tokens in 1.8 s, where plain decoding takes 2.0"
    assert "predict 1.1×" in reason, "1.25 tokens a round over 1 + (1.5 − 1) · 0.25 steps"


def test_rows_of_a_table_are_no_loop() -> None:
    """Keys and brackets come back in every row; sentences that come back are a loop."""
    rows = [token for row in range(5) for token in (1, 2, 3, 100 + row, 4, 5, 6, 7, 200 + row, 8, 9)]
    assert not loops(rows)
    assert loops(list(range(20)) * 5)
    assert distinct_share([1, 2, 3, 4, 1, 2, 3, 4, 1]) == pytest.approx(4 / 6)
    assert distinct_share([1, 2]) == 1.0


def test_a_lane_is_judged_against_the_first_of_its_own_weights() -> None:
    """Guards against blaming speculation for what quantisation changed, and its costs for a quantised step."""
    quantised, names = [5, 6, 7, 1, 1, 1], ["Plain 1", "Plain 2", "Speculative"]
    lanes = [trace(IDS), trace(quantised, PLAIN, "int8"), trace(quantised, PLAIN, "int8")]
    said = "Speculative: identical to plain 2, checked at all 6 tokens"
    assert verdict(lanes, names) == {"kind": "identical", "text": said}
    assert verdict(lanes[:2], names[:2])["kind"] == "partial"
    assert verdict([*lanes[:2], trace(IDS, PLAIN, "int8")], names)["kind"] == "diverged"
    long = [*range(20)]
    reason = explain_race([trace(long, step=0.09), half_kept("int8"), trace(long, PLAIN, "int8")])
    assert reason.startswith("1.4× as fast as int8 plain because")
    assert "1.2 steps" in reason
    assert "int8 weights of this lane" in explain_race([trace(IDS), half_kept("int8")])


def test_a_verdict_on_four_lanes_says_each_thing_once() -> None:
    """Guards the sentence of a race of four, which was one for each lane."""
    names, near = ["Plain", "A", "B", "C"], trace([5, 9, 7], SPECULATIVE, margin=1e-5)
    plain, same = trace([5, 6, 7], margin=1e-5), trace([5, 6, 7], SPECULATIVE)
    assert verdict([plain, same, same, same], names)["text"] == "Identical to plain, checked at all 3 tokens"
    text = verdict([plain, same, same, near], names)["text"]
    assert text.startswith("A and B: identical to plain, checked at all 3 tokens; C: numerical tie at token 2")
