"""Every rule of the diagnosis, from evidence in which it is the one to give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_traces import lane_of, plain_lane
from toys import build, build_head, prompt_ids, skilled_head

import specdemo
from specdemo import ModelPair
from specdemo.analysis.diagnosis import explain_race
from specdemo.analysis.reasons import REASONS, Evidence, explain, gather, outside_vocabulary, remarks, sentence
from specdemo.settings import Settings
from specdemo.trace import Trace

GOOD = Evidence(2.4, tau=4.2, rate=0.8, gamma=5.0, longest=5, c=0.08, v=1.3, predicted=2.5, overhead=0.05)
SERVED, TREE = Evidence(0.9, tau=3.0, rate=0.5, server=True), replace(GOOD, saved="Second guesses saved 1 round.")

CASES = [
    (Evidence(2.0, server=True), "the server does not say what it drafted and kept"),
    (
        SERVED,
        "a round takes as long as 3.3 plain steps, and 50% of drafted tokens were kept (τ 3.0): it pays from",
    ),
    (
        replace(SERVED, speedup=2.0),
        "because 50% of drafted tokens were kept (τ 3.0), and a round takes as long as 1.5",
    ),
    (replace(TREE, speedup=0.9, c=2.1), "a round keeps 4.20 tokens and takes 4.67 plain steps: 2.10 for drafting"),
    (replace(GOOD, v=0.7), "checking 6 tokens took 0.70 single steps, so this run cannot say why"),
    (replace(GOOD, speedup=0.9, overhead=0.4), "40% of the time goes outside the models"),
    (replace(GOOD, speedup=1.0, drafting=0.12, gamma=0.5), "tokens were drafted in only 12% of the rounds"),
    (
        replace(GOOD, speedup=1.02, c=0.61, shorter=(2, 1.21)),
        "a draft step costs 61% of a target step; 80% of drafted tokens were kept (τ 4.2). "
        "Try a smaller draft or γ = 2, which promises 1.2×.",
    ),
    (
        replace(GOOD, speedup=0.97, v=2.6, quantization="int8", rate=0.4, tau=2.9),
        "checking 6 tokens costs 2.6 single steps with int8 weights; 40% of drafted tokens were kept",
    ),
    (
        replace(GOOD, speedup=0.93, rate=0.1, tau=1.5, shorter=(1, 1.04)),
        "only 10% of drafted tokens were kept (τ 1.5), and at these costs a round pays from τ 1.7 on",
    ),
    (GOOD, "80% of drafted tokens were kept (τ 4.2)"),
]
HOPELESS = [
    (
        replace(GOOD, speedup=0.55, rate=0.82, c=1.1),
        "a draft step costs 110% of a target step: even if all 5 drafted",
    ),
    (
        replace(GOOD, speedup=0.6, v=6.0, quantization="int8"),
        "checking 6 tokens costs 6.0 single steps with int8 weights: even if all 5 drafted tokens were kept",
    ),
    (replace(GOOD, speedup=0.6, v=6.0, quantization="int8"), "in bfloat16 checks so many for about a step."),
]


@pytest.mark.parametrize(("evidence", "said"), [*CASES, *HOPELESS])
def test_each_reason_is_given_where_it_holds_and_says_the_measured_numbers(evidence: Evidence, said: str) -> None:
    """Guards every line of the table, and the order: a special reason must not hide behind a general one."""
    assert said in sentence(evidence)


def test_every_reason_has_a_case() -> None:
    first = [next(row for row in REASONS if row[0](evidence)) for evidence, _ in CASES]
    assert first == [*REASONS]


def lane(kept: int, gamma: int, step: float, draft: float, check: float, rounds: int = 6) -> Trace:
    """A speculative lane whose rounds are all alike: ``kept`` of ``gamma`` drafted tokens."""
    own = "bonus" if kept == gamma else "corrected"
    kinds = [*["accepted"] * kept, *["rejected"] * (gamma - kept), own]
    return lane_of(Settings(gamma=gamma), [(kinds, (gamma * draft, check, 0.0))] * rounds, step)


def test_a_shorter_draft_is_advised_from_what_was_measured_of_the_first_tokens() -> None:
    """γ 8, 1 kept, c 0.2, v 1.8: τ 2 over 3.4 steps. γ = 1 keeps as much for 0.2 + 1.1: 1.5×."""
    evidence = gather(plain_lane([0.1] * 11), lane(1, 8, 0.1, 0.02, 0.18))
    assert evidence.shorter == (1, pytest.approx(2 / 1.3))
    assert "γ = 1 promises 1.5×" in explain(plain_lane([0.1] * 11), lane(1, 8, 0.1, 0.02, 0.18))
    assert gather(plain_lane([0.1] * 11), lane(8, 8, 0.1, 0.005, 0.12)).shorter is None, "the long one is right"


def test_every_lane_has_its_own_line_against_a_plain_lane_and_costs_of_the_usual_length() -> None:
    """Guards against a winner alone, a speculative baseline, and v of the one long draft of an adaptive lane."""
    fixed, plain = lane(3, 4, 0.1, 0.01, 0.13), plain_lane([0.1] * 11)
    kinds = [*["accepted"] * 2, "bonus"], (0.02, 0.12, 0.0)
    long = ["accepted"] * 12 + ["bonus"], (0.12, 0.5, 0.0)
    adaptive = lane_of(Settings(adaptive_gamma=True), [*[kinds] * 5, long], 0.1)
    said = explain_race([fixed, adaptive, plain], ["Fixed", "Adaptive", "Plain"]).split("\n")
    assert said[0].startswith("Fixed: 2.4× over plain because")
    assert said[1].startswith("Adaptive: 2.1× over plain because")
    assert "checking 3 tokens costs 1.2 steps" in said[1]
    alone = explain_race([fixed, adaptive], ["Fixed", "Adaptive"])
    assert alone.startswith("Fixed, Adaptive: no plain lane ran here"), "what holds of several is said once"


def test_a_heads_own_causes_are_named() -> None:
    """Guards the share of rejections outside the draft vocabulary, and the fall of acceptance in the draft."""
    target = build("llama", eos=None)
    pair = ModelPair(target, None, None, head=skilled_head(target, draft_vocabulary=30))
    plain = specdemo.run(pair, prompt_ids(9), Settings(strategy="autoregressive", max_new_tokens=100))
    lane = specdemo.run(pair, prompt_ids(9), Settings(drafter="eagle3", gamma=3, max_new_tokens=100))
    known = set(pair.head.target_ids.tolist())
    corrected = [t for t in lane.output if t.kind == "corrected"]
    outside = sum(t.id not in known for t in corrected) / len(corrected)
    assert 0.1 < outside == outside_vocabulary(lane) < 1.0
    assert f"In {outside:.0%} of the rejected rounds" in explain(plain, lane)
    cut = specdemo.run(
        pair, prompt_ids(9), replace(lane.settings, acceptance="sampling", temperature=1.0, top_k=5)
    )
    assert outside_vocabulary(cut) is None, "top-k leaves out tokens that the head has"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, True),
        ({"acceptance": "sampling", "temperature": 1.0}, False),
        ({"acceptance": "top_k"}, False),
        ({"tree_nodes": 6}, False),
        ({"adaptive_gamma": True}, False),
    ],
)
def test_a_head_is_held_against_trained_ones_where_the_rule_is_theirs(
    fields: dict[str, object], said: bool
) -> None:
    """Guards thresholds of greedy chains against lanes that keep tokens, or count rounds, otherwise."""
    target = build("llama", eos=None)
    pair = ModelPair(target, head=build_head(target))  # untrained
    lane = Settings(drafter="eagle3", gamma=3, max_new_tokens=40, **fields)
    trace = specdemo.run(pair, prompt_ids(9), lane)
    assert any("trained heads keep it in" in sentence for sentence in remarks(trace)) is said
    plain = specdemo.run(pair, prompt_ids(9), replace(lane, strategy="autoregressive"))
    assert ("trained heads" in (explain(plain, trace) or "")) is said
