"""Every rule of the diagnosis, from evidence in which it is the one to give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_traces import lane_of, plain_lane
from toys import build, build_head, prompt_ids

import specdemo
from specdemo import ModelPair
from specdemo.analysis.diagnosis import TOO_FEW, explain, explain_race
from specdemo.analysis.reasons import REASONS, Evidence, gather, sentence, unhealthy
from specdemo.analysis.speedup import Speedup, speedup_of
from specdemo.models.request import catalog
from specdemo.settings import Settings
from specdemo.trace import Trace

GOOD = Evidence(Speedup(2.4), tau=4.2, rate=0.8, gamma=5.0, longest=5, c=0.08, v=1.3, predicted=2.5, overhead=0.05)
SERVED, TREE = (
    Evidence(Speedup(0.9), tau=3.0, rate=0.5, server=True),
    replace(GOOD, saved="Second guesses saved 1 round."),
)


def as_measured(speedup: float, **fields: object) -> Evidence:
    """Evidence whose costs lead to what was measured."""
    return replace(GOOD, found=Speedup(speedup), predicted=speedup, **fields)


CASES = [
    (
        Evidence(Speedup(1.0), drafting=0.0),
        "As fast as plain: nothing was drafted, so every round was a plain step.",
    ),
    (
        Evidence(Speedup(2.0), server=True),
        "2.0× as fast as plain by the client's clock; the server does not say what",
    ),
    (
        replace(GOOD, found=Speedup(2.4, doubt="busy")),
        "The times of this run were not steady, so it cannot say why; 80% of drafted",
    ),
    (replace(GOOD, found=Speedup(0.64, 0.5, 1.2)), "Cannot be told apart from plain by one run; 80% of drafted"),
    (
        SERVED,
        "10% slower than plain because a round takes as long as 3.3 plain steps, and 50% of drafted tokens were "
        "kept (τ 3.0): it pays from",
    ),
    (
        replace(SERVED, found=Speedup(2.0)),
        "because 50% of drafted tokens were kept (τ 3.0), and a round takes as long as 1.5",
    ),
    (
        replace(TREE, found=Speedup(0.9), c=2.1),
        "a round keeps 4.20 tokens and takes 4.67 plain steps: 2.10 for drafting",
    ),
    (
        replace(GOOD, found=Speedup(3.7)),
        "3.7× as fast as plain, where 80% of drafted tokens were kept (τ 4.2); a draft step",
    ),
    (as_measured(0.9, overhead=0.4), "40% of the time goes outside the models"),
    (as_measured(1.0, drafting=0.12, gamma=0.5), "tokens were drafted in only 12% of the rounds"),
    (
        as_measured(1.02, c=0.61, shorter=(2, 1.21)),
        "a draft step costs 61% of a target step; 80% of drafted tokens were kept (τ 4.2). "
        "Try a smaller draft or γ = 2, which promises 1.2×.",
    ),
    (
        as_measured(0.97, v=2.6, quantization="int8", rate=0.4, tau=2.9),
        "checking 6 tokens costs 2.6 single steps with int8 weights; 40% of drafted tokens were kept",
    ),
    (
        as_measured(0.93, rate=0.1, tau=1.5, shorter=(1, 1.04)),
        "only 10% of drafted tokens were kept (τ 1.5), and at these costs a round pays from τ 1.7 on",
    ),
    (GOOD, "2.4× as fast as plain because 80% of drafted tokens were kept (τ 4.2)"),
]
HOPELESS = [
    (
        as_measured(0.55, rate=0.82, c=1.1),
        "a draft step costs 110% of a target step: even if all 5 drafted",
    ),
    (
        as_measured(0.6, v=6.0, quantization="int8"),
        "checking 6 tokens costs 6.0 single steps with int8 weights: even if all 5 drafted tokens were kept",
    ),
    (as_measured(0.6, v=6.0, quantization="int8"), "in bfloat16 checks so many for about a step."),
]


@pytest.mark.parametrize(("evidence", "said"), [*CASES, *HOPELESS])
def test_each_reason_is_given_where_it_holds_and_says_the_measured_numbers(evidence: Evidence, said: str) -> None:
    """Guards every line of the table, and the order: a special reason must not hide behind a general one."""
    assert said.lower() in sentence(evidence).lower()


def test_every_reason_has_a_case() -> None:
    first = [next(row for row in REASONS if row[0](evidence)) for evidence, _ in CASES]
    assert first == [*REASONS]


@pytest.mark.parametrize(
    "unsure",
    [
        {"found": Speedup(2.4, doubt="The machine was busy.")},
        {"v": 0.46},
        {"found": Speedup(0.64, 0.4, 1.3)},
        {"found": Speedup(3.7, 3.5, 3.9)},
        {"found": Speedup(1.4)},
    ],
)
def test_where_the_headline_or_the_costs_disagree_there_is_no_because_and_no_advice(unsure: dict) -> None:
    """Guards "36 % slower because" beside "cannot be told apart", and costs that lead to another speed-up."""
    said = sentence(replace(GOOD, shorter=(2, 4.0), **unsure))
    assert "because" not in said
    assert "γ = " not in said
    within = replace(GOOD, found=Speedup(2.9, 2.2, 3.4))
    assert "because" in sentence(within), "costs that lead to a speed-up within the interval explain it"


def lane(kept: int, gamma: int, step: float, draft: float, check: float, rounds: int = 10) -> Trace:
    """A speculative lane whose rounds are all alike: ``kept`` of ``gamma`` drafted tokens."""
    own = "bonus" if kept == gamma else "corrected"
    kinds = [*["accepted"] * kept, *["rejected"] * (gamma - kept), own]
    return lane_of(Settings(gamma=gamma), [(kinds, (gamma * draft, check, 0.0))] * rounds, step)


def test_a_shorter_draft_is_advised_from_what_was_measured_of_the_first_tokens() -> None:
    """γ 8, 1 kept, c 0.2, v 1.8: τ 2 over 3.4 steps. γ = 1 keeps as much for 0.2 + 1.1: 1.5×."""
    plain = plain_lane([0.1] * 20)

    def shorter(drafted: Trace) -> tuple[int, float] | None:
        return gather(plain, drafted, speedup_of(plain, drafted)).shorter

    assert shorter(lane(1, 8, 0.1, 0.02, 0.18)) == (1, pytest.approx(2 / 1.3))
    assert "γ = 1 promises 1.5×" in explain(plain, lane(1, 8, 0.1, 0.02, 0.18))
    assert shorter(lane(8, 8, 0.1, 0.005, 0.12)) is None, "the long one is right"
    assert shorter(lane(1, 8, 0.1, 0.02, 0.18, rounds=4)) is None, "four rounds say nothing of others"


def test_few_tokens_and_lanes_that_drafted_nothing_have_words_of_their_own() -> None:
    """Guards γ advice from five tokens, and "no lane drafts" where one did."""
    plain = plain_lane([0.1] * 20)
    assert explain(plain, lane(1, 8, 0.1, 0.02, 0.18, rounds=3)) == TOO_FEW
    assert explain(plain_lane([0.1] * 5), lane(3, 4, 0.1, 0.01, 0.13)) == TOO_FEW
    single = lane_of(Settings(drafter="prompt_lookup"), [(["target"], (0.0, 0.1, 0.0))] * 20, 0.1)
    assert explain_race([plain, single]).startswith("As fast as plain: nothing was drafted")
    assert explain_race([single]).startswith("No plain lane ran here")
    assert explain_race([plain, plain]) is None


def test_every_lane_has_its_own_line_against_a_plain_lane_and_costs_of_the_usual_length() -> None:
    """Guards against a winner alone, a speculative baseline, and v of the one long draft of an adaptive lane."""
    fixed, plain = lane(3, 4, 0.1, 0.01, 0.13), plain_lane([0.1] * 20)
    kinds = [*["accepted"] * 2, "bonus"], (0.02, 0.12, 0.0)
    long = ["accepted"] * 12 + ["bonus"], (0.12, 0.22, 0.0)
    adaptive = lane_of(Settings(adaptive_gamma=True), [*[kinds] * 5, long], 0.1)
    said = explain_race([fixed, adaptive, plain], ["Fixed", "Adaptive", "Plain"]).split("\n")
    assert said[0].startswith("Fixed: 2.4× as fast as plain because")
    assert said[1].startswith("Adaptive: 2.7× as fast as plain because")
    assert "checking 3 tokens costs 1.2 steps" in said[1]
    alone = explain_race([fixed, adaptive], ["Fixed", "Adaptive"])
    assert alone.startswith("Fixed, Adaptive: no plain lane ran here"), "what holds of several is said once"


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
    own, known = (unhealthy(replace(trace, pair=name)) for name in ("my-head", next(iter(catalog()))))
    assert ("trained heads keep" in own, "trained heads keep" in known) == (said, said)
    assert ("config.json" in own, "config.json" in known) == (said, False), "only one's own can be mended"
    plain = specdemo.run(pair, prompt_ids(9), replace(lane, strategy="autoregressive"))
    assert ("trained heads" in (explain(plain, trace) or "")) is said
