"""Reasons, comparisons and figures of lanes on servers: from what is known, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_vllm import FakeVLLM
from toys import endless_pair, prompt_ids

import specdemo
from specdemo import ModelPair, Round, ServerPair, Settings, Token, Trace
from specdemo.analysis.diagnosis import explain_race
from specdemo.losslessness.compare import compare
from specdemo.recording import Recording
from specdemo.server_record import Counts, ServerRecord
from specdemo.view.race_value import replay_value

PLAIN = Settings(engine="server", strategy="autoregressive")
DRAFTED = Settings(engine="server")


def lane(settings: Settings, times: Sequence[float], margin: float | None = None, **fields: object) -> Trace:
    """A lane of one token a round, here if its tokens have a margin."""
    kind = "target" if settings.strategy == "autoregressive" else "streamed"
    p, phases = (None, (None,) * 3) if margin is None else (0.9, (0.0, 0.1, 0.0))
    rounds = tuple(
        Round(
            n, (Token(n, f"{n} ", kind, n, 1, p, None, None, at, margin),), 0, 0, at, *phases,
            stop="length" if n == len(times) - 1 else None,
        )
        for n, at in enumerate(times)
    )  # fmt: skip
    return Trace(settings, (1, 2), rounds, **fields)


def served(settings: Settings, tokens: int, seconds: float, counts: Counts | None = None, **record) -> Trace:
    """A lane whose tokens came evenly after a first one at 0.1 s."""
    times = [0.1 + (seconds - 0.1) * n / (tokens - 1) for n in range(tokens)]
    known = ServerRecord("gpu", "m", False, completion_tokens=tokens, token_ids=True, counts=counts, **record)
    return lane(settings, times, pair="gpu", dtype="unknown", server=known)


def local(settings: Settings, tokens: int, margin: float = 5.0) -> Trace:
    return lane(settings, [n / 10 for n in range(tokens)], margin)


HERE = Settings(strategy="autoregressive")
COUNTS = Counts(steps=20, drafted=80, accepted=40, gamma=4, histogram=(4, 4, 4, 4, 4))


NONE_KEPT, FEW = Counts(60, 240, 0, 4, (60, 0, 0, 0, 0)), Counts(10, 40, 5, 4)


@pytest.mark.parametrize(
    ("seconds", "counts", "reason"),
    [
        (3.1, COUNTS, "2.0× as fast as plain because 50% of drafted tokens were kept (τ 3.0), and a round takes"),
        (7.1, COUNTS, "14% slower than plain because a round takes as long as 3.5 plain steps"),
        (7.1, NONE_KEPT, "14% slower than plain because a round takes as long as 1.2 plain steps, and 0% of"),
        (6.1, FEW, "As fast as plain because tokens were drafted in only 18% of the rounds"),
        (3.1, None, "2.0× as fast as plain by the client's clock; the server does not say"),
    ],
)
def test_a_servers_speed_is_explained_from_acceptance_and_the_clock(
    seconds: float, counts: Counts | None, reason: str
) -> None:
    why = explain_race([served(PLAIN, 61, 6.1), served(DRAFTED, 61, seconds, counts)])
    assert why.startswith(reason), why


def test_a_lane_elsewhere_is_not_compared_with_one_here() -> None:
    """Guards against crediting speculation with a faster machine."""
    fast = served(DRAFTED, 61, 1.1, COUNTS)
    assert "of machines and speculation together" in explain_race([local(HERE, 61), fast])
    both = explain_race([local(HERE, 61), served(PLAIN, 61, 6.1), fast])
    assert both.startswith("6.0× as fast as plain on gpu because")


def test_totals_give_what_they_can_and_no_more() -> None:
    figures = served(DRAFTED, 61, 3.1, COUNTS).metrics()
    assert (figures.rounds, figures.mean_acceptance_length, figures.acceptance_rate) == (20, 3.0, 0.5)
    assert figures.per_position == [0.8, 0.6, 0.4, 0.2]
    assert figures.conditional_per_position == [0.8, 0.75, pytest.approx(2 / 3), 0.5]
    assert figures.alpha == 40 / (20 + 16 + 12 + 8)
    assert figures.tokens_per_second == pytest.approx(20)
    # Drafts of several lengths: how many of each place were tested, nobody knows.
    uneven = served(DRAFTED, 61, 3.1, replace(COUNTS, drafted=70)).metrics()
    assert (uneven.alpha, uneven.conditional_per_position) == (None, [])
    # Ten tokens that no step explains are steps without a draft.
    plain_too = served(DRAFTED, 71, 3.6, COUNTS).metrics()
    assert plain_too.rounds == 30
    assert plain_too.accepted_histogram == [14, 4, 4, 4, 4]


def test_a_server_that_counts_no_tokens_has_no_speed() -> None:
    trace = served(DRAFTED, 61, 3.1)
    trace = replace(trace, server=replace(trace.server, completion_tokens=None, token_ids=False))
    figures = trace.metrics()
    assert (figures.emitted, figures.tokens_per_second, figures.tpot) == (None, None, None)
    assert figures.ttft == pytest.approx(0.1)


def changed(trace: Trace, place: int, **fields: object) -> Trace:
    rounds = [*trace.rounds]
    rounds[place] = replace(rounds[place], tokens=(replace(rounds[place].tokens[0], **fields),))
    return replace(trace, rounds=tuple(rounds))


def test_outputs_are_compared_as_far_as_they_are_known() -> None:
    one, two = served(PLAIN, 9, 1.0), served(DRAFTED, 9, 1.0)
    assert compare(one, two).outcome == "identical"
    other = changed(two, 4, id=99, text="x")
    # Between servers there are no margins; against a lane here there is one.
    assert compare(one, other).outcome == "partial"
    assert "may be a tie" in compare(one, other).text
    assert compare(local(HERE, 9, margin=5.0), other).outcome == "diverged"
    assert compare(local(HERE, 9, margin=0.2), other).outcome == "tie"  # a server may compute in 16 bit


def test_without_ids_the_texts_are_compared() -> None:
    one = served(PLAIN, 9, 1.0)
    pieces = changed(served(DRAFTED, 9, 1.0), 4, id=None)
    assert pieces.token_ids == []
    assert compare(one, pieces).outcome == "identical"
    differs = compare(one, changed(pieces, 5, text="x"))
    assert (differs.outcome, "character 11 on" in differs.text) == ("partial", True)


def test_a_replay_shows_what_is_known_of_the_server() -> None:
    lanes = (
        served(PLAIN, 9, 1.0, network_seconds=0.012),
        served(DRAFTED, 9, 0.6, COUNTS, level="summary", notes=("it said so.",)),
    )
    value = replay_value(Recording(lanes))
    assert value["replay"]["label"] == "Recorded on server gpu"
    facts = dict(value["replay"]["facts"])
    assert "12 ms there and back" in facts["Plain"]
    assert "totals from the server's own record. it said so." in facts["Speculative"]
    assert "gamma 5" not in facts["Speculative"], "the server has a γ of its own"
    assert '"verify_seconds"' not in "".join(value["rounds"])


def test_vllm_deployments_are_told_apart_by_ids_and_log_probabilities() -> None:
    """Against the same weights with a draft, also sampled, and against other weights."""
    pair, prompts = endless_pair("llama"), [prompt_ids(9), prompt_ids(7)]
    other = ModelPair(pair.draft, pair.target, None)
    with (
        FakeVLLM(pair, listing=True) as base,
        FakeVLLM(pair, Settings(gamma=3)) as same,
        FakeVLLM(other, Settings(gamma=3)) as strange,
    ):
        alike, parted = (
            specdemo.compare_deployments(ServerPair(base.url, url, "toy"), prompts, Settings(max_new_tokens=24))
            for url in (same.url, strange.url)
        )
        warm = Settings(temperature=0.8, acceptance="sampling")
        tested = specdemo.compare_deployments(ServerPair(base.url, same.url, "toy"), prompts, warm, 4, 4)
    assert alike.outcome in ("identical", "tie")
    assert (tested.outcome, tested.certificate.runs) == ("undecided", 4)
    assert (parted.outcome, parted.engines[0]) == ("diverged", "vLLM")
    found = parted.decisive.difference
    assert found.gap > parted.rounding
    assert found.own.id != found.other.id
    assert len(found.prefix_ids) == found.position
