"""How sure a speed-up is: intervals by simulation, and what makes a run doubtful."""

from __future__ import annotations

from dataclasses import replace
from math import exp, pi, sin
from random import Random
from statistics import median

import pytest
from made_traces import PLAIN, lane_of

from specdemo import Settings, Trace
from specdemo.analysis.diagnosis import explain_race
from specdemo.analysis.speedup import Speedup, compared, interval, speedup_of, speedup_over_repeats
from specdemo.metrics import RoundCounts, counts_of
from specdemo.server_record import ServerRecord
from specdemo.view.headline import headline, headline_text
from specdemo.view.lane_headers import trace_headers

STEP, ROUND, KEPT = 0.01, 0.018, 3
"""Seconds of a plain step and of a round on a machine at rest, and drafted tokens kept in each round."""
TRUE = (KEPT + 1) * STEP / ROUND


def moods(rng: Random, busy: float) -> list[float]:
    """How slow the machine is in each tenth of a second, 1 at rest: other work comes and goes."""
    found, working = [], False
    for _ in range(80):
        working = rng.random() < (0.6 if working else busy)
        found.append((2.0 if working else 1.0) * rng.lognormvariate(0, 0.03))
    return found


def raced(rng: Random, busy: float, tokens: int = 128) -> tuple[list[RoundCounts], list[RoundCounts]]:
    """The rounds of a plain and of a drafting lane that take turns of 0.1 s on such a machine."""
    mood, now, clocks = moods(rng, busy), 0.0, [0.0, 0.0]
    done, rounds = [0, 0], ([], [])
    while min(done) < tokens:
        lane = min((n for n in (0, 1) if done[n] < tokens), key=clocks.__getitem__)
        until = clocks[lane] + 0.1
        while clocks[lane] < until and done[lane] < tokens:
            took = (STEP, ROUND)[lane] * mood[min(int(now / 0.1), len(mood) - 1)] * rng.lognormvariate(0, 0.05)
            clocks[lane], now = clocks[lane] + took, now + took
            done[lane] += (1, KEPT + 1)[lane]
            rounds[lane].append(RoundCounts((0, 5)[lane], (0, KEPT)[lane], (1, KEPT + 1)[lane], 0.0, took, 0.0))
    return rounds


def ratio_of(plain: list[RoundCounts], drafted: list[RoundCounts]) -> float:
    speeds = [sum(r.emitted for r in rounds) / sum(r.seconds for r in rounds) for rounds in (plain, drafted)]
    return speeds[1] / speeds[0]


@pytest.mark.parametrize(("busy", "least"), [(0.0, 0.9), (0.15, 0.85)])
def test_the_interval_of_one_run_covers_the_true_ratio(busy: float, least: float) -> None:
    """Guards the batch means: nominally 95 %, on a machine at rest and on one where other work comes and goes."""
    rng, covered, wide = Random(5), 0, 0.0
    for _ in range(100):
        rounds = raced(rng, busy)
        low, high = interval(ratio_of(*rounds), *rounds)
        covered += low <= TRUE <= high
        wide += high / low / 100
    assert covered / 100 >= least
    assert wide < (1.15 if busy == 0 else 2.2), "an interval that covers everything says nothing"


def test_repeats_know_of_the_drift_that_five_neighbours_do_not_show() -> None:
    """Guards the interval where a machine changes within minutes, so that five runs in a row are nearly alike."""
    rng = Random(2)
    drift = [sin(2 * pi * minute / 3) for minute in (n / 30 for n in range(900))]
    speeds = [2 * exp(0.035 * slow + rng.gauss(0, 0.007)) for slow in drift]
    trials = [speedup_over_repeats(speeds[n : n + 5]) for n in range(0, 900, 5)]
    alone = [(min(speeds[n : n + 5]), max(speeds[n : n + 5])) for n in range(0, 900, 5)]
    middle = median(speeds)
    assert sum(each.low <= middle <= each.high for each in trials) / len(trials) >= 0.9
    assert sum(low <= middle <= high for low, high in alone) / len(alone) < 0.7, "the range alone would do"


def lanes(steps: list[float], checks: list[float], kept: int = KEPT, **fields: object) -> list[Trace]:
    """A plain and a drafting lane whose target forwards took these seconds, γ 4."""
    kinds = [*["accepted"] * kept, *["rejected"] * (4 - kept), "corrected"]
    return [
        lane_of(PLAIN, [(["target"], (0.0, step, 0.0)) for step in steps], **fields),
        lane_of(Settings(gamma=4), [(kinds, (0.004, check, 0.0)) for check in checks], **fields),
    ]


def test_a_quiet_run_is_taken_at_its_word_and_a_disturbed_one_is_not() -> None:
    """Guards each sign of other work on the machine, and silence where there is none."""
    quiet = [0.0100, 0.0101, 0.0099, 0.0102] * 12
    checks = [0.0130, 0.0131, 0.0129] * 4
    assert speedup_of(*lanes(quiet, checks)).doubt is None
    busier = speedup_of(*lanes([*quiet[:36], *(2 * s for s in quiet[:12])], checks))
    assert "The machine was busy" in busier.doubt
    assert "10.1 ms at one time and 20.1" in busier.doubt
    assert busier.low < busier.ratio < busier.high
    cheap = speedup_of(*lanes(quiet, [0.7 * s for s in quiet[:12]]))
    assert "Checking several tokens took 0.70 of a plain step" in cheap.doubt
    hiccups = lanes(quiet, [*checks[:-2], 0.1, 0.1])
    found = speedup_of(*hiccups)
    assert found.high > 1.5 * found.ratio, "which is what steps of usual length would give"
    assert found.doubt is not None


def test_few_rounds_and_servers_have_no_interval() -> None:
    few = speedup_of(*lanes([0.01] * 8, [0.013] * 2))
    assert (few.low, few.doubt) == (None, None)
    assert interval(2.0, counts_of(lanes([0.01] * 48, [0.013])[0].rounds), ()) is None
    disturbed = speedup_of(*lanes([*[0.01] * 24, *[0.03] * 12], [0.013] * 9))
    assert "The machine was busy" in disturbed.doubt, "too few rounds for an interval are enough to see a drift"
    served = ServerRecord("s", "m", chat=False, token_ids=True)
    steady, slowed = (
        lanes(steps, [0.02] * 9, server=served) for steps in ([0.01] * 36, [*[0.01] * 24, *[0.03] * 12])
    )
    assert speedup_of(*steady) == Speedup(speedup_of(*steady).ratio)
    assert "10 ms at one time and 30 at another" in speedup_of(*slowed).doubt


def ended(traces: list[Trace]) -> list[Trace]:
    return [replace(t, rounds=(*t.rounds[:-1], replace(t.rounds[-1], stop="length"))) for t in traces]


def said(traces: list[Trace], repeats: tuple[tuple[float, ...], ...] = ()) -> str:
    return headline_text(headline(ended(traces), trace_headers(traces), repeats))


def test_the_headline_does_not_shout_and_names_what_it_compares() -> None:
    """Guards its words: even results, slower ones, several runs, several plain lanes, and a run cut short."""
    plain, fast = lanes([0.01] * 48, [0.0132] * 12)
    assert said([plain, fast]) == "Draft model: 2.3× as fast as plain."
    (even,) = lanes([0.01] * 48, [0.037] * 12)[1:]
    assert said([plain, even]) == "Draft model is as fast as plain."
    (slow,) = lanes([0.01] * 48, [0.05] * 12)[1:]
    assert said([plain, slow]) == "Draft model: 26% slower than plain."
    assert said([plain, fast], tuple((10.0, speed) for speed in (19.0, 21.0, 23.0, 20.0, 22.0))) == (
        "Draft model: 2.1× as fast as plain (1.9 to 2.3, 5 runs; the one shown: 2.3×)."
    )
    quantised = [replace(t, quantization="int8") for t in lanes([0.02] * 48, [0.0232] * 12)]
    assert said([plain, *quantised]).startswith(
        "Draft model: 2.9× as fast as int8 plain, 1.5× as fast as unquantised plain"
    )
    assert said([plain, quantised[1]]).startswith(
        "Draft model with int8 weights: 1.5× as fast as plain with unquantised weights"
    )
    assert compared([fast, plain]) == (plain, fast)


def test_a_run_that_was_stopped_early_or_is_short_has_no_speed_up() -> None:
    """Guards 7.5× after a second, from three rounds of six tokens, and figures of a few tokens."""
    (plain, fast), (short, few) = lanes([0.01] * 48, [0.0132] * 12), lanes([0.01] * 8, [0.0132] * 2)
    quick = lane_of(Settings(gamma=5), [([*["accepted"] * 5, "bonus"], (0.0, 0.005, 0.0))] * 3)
    for stopped in ([short, fast], [plain, quick]):
        found = headline(stopped, trace_headers(stopped))
        assert (found["figure"], found["text"]) == ("", "Too few tokens for a speed-up")
    assert said([short, few]) == "Too few tokens for a speed-up."
    assert said([short, few], ((10.0, 20.0),) * 5).startswith("Draft model: 2.0×"), "five runs more are enough"


def test_the_headline_is_of_the_fastest_lane_wherever_it_stands() -> None:
    """The first lane may draft as well: it is judged by its plain lane, like the others."""
    plain, fast = lanes([0.01] * 48, [0.0132] * 12)
    (slow,) = lanes([0.01] * 48, [0.03] * 12)[1:]
    assert compared([fast, slow, plain]) == (plain, fast)
    assert said([fast, slow, plain]).endswith("the fastest of 2 others.")
    assert compared([fast, slow]) == (fast, slow), (
        "without a plain lane the first is what others are compared with"
    )
    restless = lanes([0.01] * 48, [*[0.0132] * 6, *[0.03] * 6])[1]
    assert "plain step" not in (speedup_of(restless, slow).doubt or ""), "no plain step was measured"


def test_what_is_not_sure_is_not_said_in_large_type() -> None:
    """Guards a figure whose interval holds both a gain and a loss, in the headline and in the reason."""
    unsure = lanes([*[0.01] * 24, *[0.05] * 12, *[0.01] * 12], [*[0.02] * 6, *[0.1] * 3, *[0.03] * 3])
    found = speedup_of(*unsure)
    assert found.open, (found.low, found.high)
    assert "Draft model and plain cannot be told apart: between " in said(unsure)
    assert "because" not in explain_race(unsure)
    quantised = [unsure[0], replace(unsure[1], quantization="int8")]
    assert "Draft model with int8 weights and plain with unquantised weights cannot be told apart" in said(
        quantised
    )
    found = headline(ended(unsure), trace_headers(unsure))
    assert (found["lane"], found["figure"], found["trend"]) == ("", "", "even")
