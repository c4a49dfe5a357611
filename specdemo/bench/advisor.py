"""``python -m specdemo.bench.advisor``: the advisor's choice against an exhaustive grid that is measured apart.

The advisor is asked once for each domain, with its whole budget, and once for the prompts of all domains. Then
every contender decodes every prompt, interleaved with plain decoding; each domain's fastest do so again several
times. These times judge: how much slower is the choice than the best of the grid?
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from math import exp, log
from statistics import fmean
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.racing import PLACE_OF_PLAIN
from specdemo.bench.contenders import Sample, ours
from specdemo.bench.harness import Args, Results, columns, head, interleaved, load, run_bench, verdict
from specdemo.models.pair import ModelPair
from specdemo.runs.advise import advise
from specdemo.runs.encode import encode
from specdemo.runs.prompts import Example, by_domain
from specdemo.settings import Settings

WITHIN = 0.05
"""Of the best's speed a choice may miss."""
FINALISTS = 8
ALL = "all domains"


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    domains = {domain: found[: args.prompts] for domain, found in by_domain().items()}
    settings = Settings(max_new_tokens=args.tokens)
    asked = {**domains, ALL: [example for found in domains.values() for example in found]}
    reports = {}
    for domain, examples in asked.items():
        reports[domain] = advise(pair, [e.prompt for e in examples], settings, args.budget)
        print(f"{domain}: {reports[domain].recommendation}", flush=True)
    chosen = {report.race.leader for report in reports.values()}
    grids = {
        domain: exhaustive(pair, reports[domain], examples, args.repeats, chosen)
        for domain, examples in domains.items()
    }
    every = {name: [grid[name] for grid in grids.values()] for name in reports[ALL].names}
    grids[ALL] = {name: exp(fmean(map(log, found))) for name, found in every.items()}
    return {
        **head(args, pair.device, "budget", "tokens", "repeats", "prompts", temperature=0),
        "dtype": pair.dtype,
        "domains": [judge(domain, reports[domain], grid) for domain, grid in grids.items()],
    }


def exhaustive(
    pair: ModelPair, report: AdviceReport, examples: list[Example], repeats: int, chosen: set[int]
) -> dict[str, float]:
    """Each contender's speed-up over plain decoding: the geometric mean over one domain's prompts.

    Args:
        pair: which decodes.
        report: which names the contenders.
        examples: the domain's.
        repeats: how often those decode each prompt that may be the fastest, which are the ``FINALISTS`` of a first
            time, and those that were chosen. The first time does not count for them; the others have no other.
        chosen: their places.
    """
    lanes = {n: c.settings(report.base) for n, c in enumerate(report.contenders)}
    first = _speedups(pair, lanes, examples, 1)
    finalists = sorted({PLACE_OF_PLAIN, *chosen, *sorted(lanes, key=first.__getitem__)[-FINALISTS:]})
    again = _speedups(pair, {n: lanes[n] for n in finalists}, examples, repeats)
    return {report.names[n]: speedup for n, speedup in {**first, **again}.items()}


def _speedups(
    pair: ModelPair, lanes: dict[int, Settings], examples: list[Example], repeats: int
) -> dict[int, float]:
    logs: dict[int, list[float]] = defaultdict(list)
    for example in examples:
        ids = encode(pair, example.prompt)
        runs = {n: partial(ours(pair, lane), ids) for n, lane in lanes.items()}
        label = f"grid of {len(lanes)}, {example.domain}: {example.title}"
        found = interleaved(runs, repeats, 0, label)  # the advisor warmed everything up
        for place, samples in found.items():
            for mine, plain in zip(samples, found[PLACE_OF_PLAIN], strict=True):
                logs[place].append(log(_pace(mine) / _pace(plain)))
    return {place: exp(fmean(found)) for place, found in logs.items()}


def _pace(sample: Sample) -> float:
    return sample.trace.metrics().tokens_per_second


def judge(domain: str, report: AdviceReport, speedups: dict[str, float]) -> dict[str, Any]:
    """One domain's choice by the grid's figures."""
    chosen = report.names[report.race.leader]
    best = max(speedups, key=speedups.__getitem__)
    return {
        "domain": domain,
        "chosen": chosen,
        "said": report.best and report.best.speedup,
        "interval": report.best and report.best.interval,
        "measured": speedups[chosen],
        "best": best,
        "best_measured": speedups[best],
        "share": speedups[chosen] / speedups[best],
        "recommendation": report.recommendation,
        "seconds": report.seconds,
        "time": [{"name": row.name, "seconds": row.seconds, "runs": row.runs} for row in report.rows],
        "grid": speedups,
    }


def table(found: Results) -> str:
    """The results for people."""
    formats = {
        "domain": "{domain}",
        "chosen": "{chosen}",
        "by the grid": "{measured:.2f}×",
        "best of the grid": "{best}",
        "its speed-up": "{best_measured:.2f}×",
        "share": "{share:.1%}",
    }
    lines = [columns(formats, found["domains"])]
    for each in found["domains"]:
        spent = "; ".join(f"{row['name']} {row['seconds']:.1f} s" for row in each["time"])
        lines.append(f"{each['domain']}, time spent: {spent}")
    lines += [
        verdict(each["share"] >= 1 - WITHIN, f"{each['domain']}: {each['share']:.1%} of the best")
        for each in found["domains"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_bench(
        "advisor",
        __doc__,
        measure,
        table,
        pair="builtin",
        device=None,
        dtype=None,
        budget=120.0,
        tokens=64,
        repeats=5,
        prompts=3,
        threads=None,
    )
