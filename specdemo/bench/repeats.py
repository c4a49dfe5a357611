"""``python -m specdemo.bench.repeats``: does the interval of *Repeat ×5* cover the median of thirty runs?

A trial repeats a race five times, as the page does. Thirty more races are spread evenly between the trials, so
that a machine that changes changes for all; their median is what the trials' intervals must cover. All of it is
done twice: as the machine is, and beside programs that work now and then on every core. Of each of the thirty the
interval that a single run has is judged too, and whether the page would have called its machine busy.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import replace
from random import Random
from statistics import median
from typing import Any

from specdemo.analysis.speedup import Speedup, speedup_of, speedup_over_repeats
from specdemo.bench.harness import Args, Results, busy_cores, columns, head, load, run_bench, verdict
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.runs.prompts import by_domain
from specdemo.runs.race import race
from specdemo.runs.repeats import REPEATS, repeat_race
from specdemo.settings import Settings

REFERENCE_RUNS = 30
COVERED = 0.9
LONGEST_WORK = 3.0
"""Seconds that a program beside the races works, or rests, at most."""


def work_now_and_then() -> None:
    """Keep a core busy for a while, rest for a while, without end."""
    rng = Random(os.getpid())
    while True:
        until = time.monotonic() + rng.uniform(0, LONGEST_WORK)
        while time.monotonic() < until:
            pass
        time.sleep(rng.uniform(0, LONGEST_WORK))


def single(pair: ModelPair, prompt: str, lanes: list[Settings]) -> Speedup:
    """One race, judged alone."""
    with closing(race(pair, prompt, lanes)) as racing:
        for _ in racing:
            pass
        return speedup_of(*racing.traces())


def measure(pair: ModelPair, prompt: str, lanes: list[Settings], trials: int) -> dict[str, Any]:
    """The figures of one machine, quiet or loaded."""
    if single(pair, prompt, lanes).low is None:
        raise SettingsError("tokens", "they are too few for the interval of one run; give at least 64.")
    singles, repeated = [], []
    for trial in range(trials):
        while len(singles) < REFERENCE_RUNS * (trial + 1) / trials:
            singles.append(single(pair, prompt, lanes))
        speeds = repeat_race(pair, prompt, lanes, REPEATS)
        repeated.append(speedup_over_repeats([drafted / plain for plain, drafted in speeds]))
    middle = median(each.ratio for each in singles)
    known = [each for each in singles if each.low is not None]
    return {
        "median_of_thirty": middle,
        "least": min(each.ratio for each in singles),
        "most": max(each.ratio for each in singles),
        "covered": _covered(repeated, middle),
        "width": median(each.high / each.low for each in repeated),
        "covered_by_one_run": _covered(known, middle),
        "width_of_one_run": median(each.high / each.low for each in known),
        "called_busy": sum(each.doubt is not None for each in singles) / len(singles),
        "trials": [[each.low, each.ratio, each.high] for each in repeated],
        "runs": [[each.low, each.ratio, each.high, each.doubt] for each in singles],
    }


def _covered(found: list[Speedup], value: float) -> float:
    return sum(each.low <= value <= each.high for each in found) / len(found)


def results(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    prompt = next(iter(by_domain().values()))[0].prompt
    drafted = Settings(max_new_tokens=args.tokens, ignore_eos=True)
    lanes = [replace(drafted, strategy="autoregressive"), drafted]
    rows = [{"machine": "as it is", **measure(pair, prompt, lanes, args.trials)}]
    with busy_cores(work_now_and_then):
        rows.append({"machine": "loaded", **measure(pair, prompt, lanes, args.trials)})
    return {**head(args, pair.device, "tokens", "trials", temperature=0), "rows": rows}


COLUMNS = {
    "machine": "{machine}",
    "median of 30": "{median_of_thirty:.2f}×",
    "least": "{least:.2f}×",
    "most": "{most:.2f}×",
    "five cover": "{covered:.0%}",
    "high / low": "{width:.2f}",
    "one covers": "{covered_by_one_run:.0%}",
    "its high / low": "{width_of_one_run:.2f}",
    "called busy": "{called_busy:.0%}",
}


def conclusion(found: dict[str, Any]) -> str:
    """The table, and the figures against their bar."""
    bars = [
        verdict(row["covered"] >= COVERED, f"five runs cover the median in {row['covered']:.0%}, {row['machine']}")
        for row in found["rows"]
    ]
    return "\n".join([columns(COLUMNS, found["rows"]), *bars])


if __name__ == "__main__":
    run_bench("repeats", __doc__, results, conclusion, pair="builtin", tokens=64, trials=40, threads=None)
