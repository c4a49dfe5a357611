"""``python -m specdemo.bench.repeats``: do the intervals of one run and of *Repeat ×5* cover the usual speed-up?

One race is run again and again, as the machine is, and then beside programs that work now and then on every core.
The median of all runs is what the interval of each run, and that of every five runs in a row, has to cover.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median
from typing import Any

from specdemo.analysis.speedup import Speedup, speedup_of, speedup_over_repeats
from specdemo.bench.harness import Args, Results, busy_cores, columns, prompts_of, run_bench, verdict
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.runs.race import race
from specdemo.settings import Settings

TOGETHER = 5
COVERED = 0.9


def measure(args: Args) -> Results:
    pair = load_pair(args.pair)
    prompt = prompts_of(None, 1).popitem()[1][0]
    quiet = [_run(pair, prompt, args.tokens) for _ in range(args.runs)]
    with busy_cores():
        loaded = [_run(pair, prompt, args.tokens) for _ in range(args.runs)]
    rows = [{"machine": "as it is", **judged(quiet)}, {"machine": "loaded", **judged(loaded)}]
    return {"device": str(pair.device), "rows": rows}


def _run(pair: ModelPair, prompt: str, tokens: int) -> Speedup:
    drafted = Settings(max_new_tokens=tokens, ignore_eos=True)
    with closing(race(pair, prompt, [replace(drafted, strategy="autoregressive"), drafted])) as racing:
        for _ in racing:
            pass
        found = speedup_of(*racing.traces())
    if found is None or found.low is None:
        raise SettingsError("tokens", "they are too few for the interval of one run; give at least 64.")
    return found


def judged(runs: Sequence[Speedup]) -> dict[str, Any]:
    """How often the intervals cover the median of these runs, and how wide they are."""
    ratios = [run.ratio for run in runs]
    five = [speedup_over_repeats(ratios[n : n + TOGETHER]) for n in range(len(runs) - TOGETHER + 1)]
    found: dict[str, Any] = {"median": median(ratios), "least": min(ratios), "most": max(ratios)}
    for name, some in {"one": runs, "five": five}.items():
        ends = [(each.low or each.ratio, each.high or each.ratio) for each in some]
        found[f"{name}_covers"] = sum(low <= found["median"] <= high for low, high in ends) / len(ends)
        found[f"{name}_width"] = median(high / low for low, high in ends)
    return found | {
        "called_busy": sum(run.doubt is not None for run in runs) / len(runs),
        "runs": [[run.low, run.ratio, run.high, run.doubt] for run in runs],
    }


COLUMNS = {
    "machine": "{machine}",
    "median": "{median:.2f}×",
    "least": "{least:.2f}×",
    "most": "{most:.2f}×",
    "five cover": "{five_covers:.0%}",
    "high / low": "{five_width:.2f}",
    "one covers": "{one_covers:.0%}",
    "its high / low": "{one_width:.2f}",
    "called busy": "{called_busy:.0%}",
}


def table(found: Results) -> str:
    claims = [
        verdict(row["five_covers"] >= COVERED, f"{row['machine']}: five cover it in {row['five_covers']:.0%}")
        for row in found["rows"]
    ]
    return "\n".join([columns(COLUMNS, found["rows"]), "", *claims])


if __name__ == "__main__":
    run_bench("repeats", __doc__, measure, table, pair="builtin", tokens=64, runs=40, threads=1)
