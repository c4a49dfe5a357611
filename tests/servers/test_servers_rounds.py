"""Rounds made of a server's own record, compared kind for kind with the local lane that really decoded them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import compress, pairwise
from random import Random

import pytest
from fake_vllm import FakeVLLM
from toys import endless_pair, prompt_ids, toy_pair

import specdemo
from specdemo import Round, ServerPair, Settings, Trace
from specdemo.rounds import Stop
from specdemo.servers.engines.vllm import read_record
from specdemo.servers.response import Chunk, Step
from specdemo.servers.rounds import reconstructed

RUNS = 160
FEATURES = ("end inside a block", "length inside a block", "plain last step", "drafts of several lengths", "bonus")


def shape(rounds: Sequence[Round]) -> list[tuple]:
    """All that a server's record tells of rounds: neither what a rejected token was, nor any probability."""
    told = [
        [(t.kind, t.round, t.position, *((t.id, t.text) if t.kind != "rejected" else ())) for t in r.tokens]
        for r in rounds
    ]
    return [(r.index, r.drafted, r.accepted, r.stop, tokens) for r, tokens in zip(rounds, told, strict=True)]


def remote(**options: object) -> Settings:
    """Settings of a lane on a server."""
    rule = "sampling" if options.get("temperature") else "exact"
    return Settings(engine="server", acceptance=rule, **options)


def test_random_runs_are_the_local_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the whole reading of vLLM's arrays: ends inside a block, plain last steps, drafts of any length."""
    monkeypatch.setattr("specdemo.decoding.gamma.PAYS", 0.0)  # vLLM does not pause drafting in the middle of a run
    dice, seen = Random(9), Counter()
    with ExitStack() as stack:
        # γ 1 to 8, fixed and adaptive, of models that end and of models that do not.
        deployments = [
            stack.enter_context(FakeVLLM(pair, Settings(gamma=gamma, adaptive_gamma=adaptive)))
            for gamma in range(1, 9)
            for adaptive in (False, True)
            for pair in (toy_pair("llama"), endless_pair("llama"))
        ]
        for number in range(RUNS):
            fake = deployments[number % len(deployments)]
            settings = remote(temperature=dice.choice((0.0, 1.0)), max_new_tokens=dice.randint(1, 24), seed=number)
            trace = specdemo.run(ServerPair(None, fake.url, "toy"), prompt_ids(dice.randint(1, 20)), settings)
            own = fake.traces[number]
            assert shape(trace.rounds) == shape(own.rounds), number
            assert (trace.server.level, trace.server.notes) == ("detailed", ())
            assert trace.prompt_ids == own.prompt_ids
            assert_figures(trace, own)
            seen.update(features(own, fake.deployed))
    assert min(seen[name] for name in FEATURES) >= 5, seen


def features(own: Trace, deployed: Settings) -> Iterator[str]:
    """What is hard about this run."""
    last = own.rounds[-1]
    cut = last.drafted and last.tokens[-1].kind in ("accepted", "rejected")
    # The local lane shortens its draft where vLLM cuts the output.
    short = last.stop == "length" and 0 < last.drafted < deployed.gamma
    found = (
        cut and last.stop == "eos",
        (cut and last.stop != "eos") or short,
        last.index and not last.drafted,
        len({r.drafted for r in own.rounds[1:-1]}) > 1,
        any(t.kind == "bonus" for t in own.tokens),
    )
    yield from compress(FEATURES, found)


def assert_figures(trace: Trace, own: Trace) -> None:
    """The counts are those of the local lane; where the time went is unknown."""
    ours, theirs = trace.metrics(), own.metrics()
    same = ("rounds", "proposed", "accepted", "emitted", "wasted", "acceptance_rate", "mean_acceptance_length")
    lists = ("per_position", "conditional_per_position", "accepted_histogram")
    for name in (*same, *lists):
        assert getattr(ours, name) == getattr(theirs, name), name
    unknown = ("draft_seconds", "verify_seconds", "other_share", "draft_cost", "verify_cost", "peak_memory")
    assert {getattr(ours, name) for name in unknown} == {None}


@pytest.mark.parametrize("drafter", ["model", "prompt_lookup"])
def test_merged_chunks_and_unrecorded_steps_are_never_coloured_wrongly(drafter: str) -> None:
    """Guards against guessing: where several arrangements fit, tokens stay uncoloured; all others are right."""
    certain = uncoloured = 0
    with FakeVLLM(toy_pair("llama"), Settings(gamma=4, drafter=drafter), merge=0.3) as fake:
        for seed in range(40):
            settings = remote(temperature=1.0, max_new_tokens=40, seed=seed)
            # A prompt that repeats itself, so that there is something to look up.
            trace = specdemo.run(ServerPair(None, fake.url, "toy"), prompt_ids(4) * 4, settings)
            own = fake.traces[seed]
            assert trace.token_ids == own.token_ids
            for mine, theirs in zip(trace.output, own.output, strict=True):
                assert mine.kind in (theirs.kind, "streamed"), seed
            blank = sum(t.kind == "streamed" for t in trace.output)
            assert bool(blank) == bool(trace.server.notes)
            certain, uncoloured = certain + len(trace.output) - blank, uncoloured + blank
            if blank:  # the totals are the server's all the same
                assert trace.metrics().accepted == trace.server.counts.accepted
    # Where every step drafts, only an end in a merged chunk is in doubt. But a step without a draft, and one of
    # which nothing was accepted, look alike.
    assert certain > (5 * uncoloured if drafter == "model" else 50)


def rounds_of(
    steps: list[tuple[int, int]], ends: list[int], stop: Stop, max_new_tokens: int
) -> tuple[Round, ...] | None:
    chunks = [Chunk(tuple(range(*part)), ("",), 0.1 * part[1]) for part in pairwise([0, *ends])]
    return reconstructed(chunks, [Step(*s) for s in steps], max_new_tokens, stop)


def test_a_server_that_drafts_past_the_length_is_read_as_it_is() -> None:
    """vLLM drafts γ tokens up to the end: what its last step accepted is counted whole there, and cut here."""
    rounds = rounds_of([(4, 3), (4, 4)], [1, 5, 8], "length", 8)  # one, then 3 + 1, then 3 of 5
    assert [[t.kind for t in r.tokens] for r in rounds] == [
        ["target"],
        ["accepted"] * 3 + ["rejected", "corrected"],
        ["accepted"] * 3 + ["rejected"],
    ]
    assert [r.stop for r in rounds] == [None, None, "length"]


@pytest.mark.parametrize(
    ("steps", "ends", "stop", "kinds"),
    [
        # Nothing was drafted at all.
        ([], [1, 2, 3], "eos", ["target", "target", "target"]),
        # Two tokens, one of them from a step without a draft: which one is unknown.
        ([(2, 0)], [1, 2, 3], "eos", ["target", "streamed", "streamed"]),
        # The same, where the requested length leaves no room for two drafted tokens but at the first.
        ([(1, 0)], [1, 2, 3], "length", ["target", "rejected", "corrected", "target"]),
        # A chunk of three cannot hold a step of two and begin another.
        ([(1, 1)], [1, 2, 4], "eos", ["target", "target", "accepted", "bonus"]),
        # Three steps that accepted one token each do not fit four tokens.
        ([(2, 1), (2, 1), (2, 1)], [1, 4], "eos", None),
    ],
)
def test_steps_are_laid_on_the_output(
    steps: list[tuple[int, int]], ends: list[int], stop: Stop, kinds: list[str] | None
) -> None:
    rounds = rounds_of(steps, ends, stop, 3 if kinds else 9)
    assert (rounds and [t.kind for r in rounds for t in r.tokens]) == kinds


@pytest.mark.parametrize(
    "change",
    [
        {"num_draft_tokens": 9},
        {"num_spec_steps": 1},
        {"per_step_accepted": [1, 3]},
        {"per_step_accepted": [1]},
        {"per_step_accepted": [1, "1"]},
        {"per_step_drafted": None},
    ],
)
def test_a_record_that_contradicts_itself_is_reported_and_its_steps_are_not_used(change: dict) -> None:
    record = {
        "acceptance_histogram": [0, 2, 0],
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 2,
        "num_draft_tokens": 4,
        "num_spec_tokens": 2,
        "per_step_accepted": [1, 1],
        "per_step_drafted": [2, 2],
    }
    assert read_record(record).steps == (Step(2, 1), Step(2, 1))
    spoilt = read_record({**record, **change})
    assert spoilt.steps is None
    assert spoilt.complaints
