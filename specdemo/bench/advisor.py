"""``python -m specdemo.bench.advisor``: the advisor's choice against an exhaustive grid that is measured apart.

One call of the advisor gives a choice for every domain. Then every contender decodes every prompt, interleaved
with plain decoding, which judges: how much slower is the choice than the best of the grid?
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from math import exp, log
from statistics import fmean
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.advice_rows import settings_of
from specdemo.analysis.racing import PLAIN
from specdemo.bench.contenders import Sample, ours
from specdemo.bench.harness import Args, Results, columns, head, interleaved, load, run_bench, verdict
from specdemo.models.pair import ModelPair
from specdemo.runs.advise import advise
from specdemo.runs.encode import encode
from specdemo.runs.prompts import Example, by_domain
from specdemo.settings import Settings

WITHIN = 0.05


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    examples = [e for found in by_domain().values() for e in found[: args.prompts]]
    settings, kinds = Settings(max_new_tokens=args.tokens), [e.domain for e in examples]
    report = advise(pair, [e.prompt for e in examples], settings, args.budget, kinds=kinds)
    print(report.recommendation, flush=True)
    grid = exhaustive(pair, report, examples, args.repeats)
    return {
        **head(args, pair.device, "budget", "tokens", "repeats", "prompts", temperature=0),
        "dtype": pair.dtype,
        "recommendation": report.recommendation,
        "seconds": report.seconds,
        "domains": [judge(report, kind, speedups) for kind, speedups in grid.items()],
        "time": [{"name": row.name, "seconds": row.seconds, "runs": row.runs} for row in report.rows],
    }


def exhaustive(
    pair: ModelPair, report: AdviceReport, examples: list[Example], repeats: int
) -> dict[str, dict[str, float]]:
    """By domain, each contender's speed-up: the geometric mean over its prompts and the repeats."""
    lanes = {n: settings_of(c, report.base) for n, c in enumerate(report.contenders)}
    logs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for example in examples:
        ids = encode(pair, example.prompt)
        runs = {n: partial(ours(pair, lane), ids) for n, lane in lanes.items()}
        found = interleaved(runs, repeats, int(example is examples[0]), f"grid, {example.domain}: {example.title}")
        for place, samples in found.items():
            for mine, plain in zip(samples, found[PLAIN], strict=True):
                logs[example.domain][report.names[place]].append(log(_pace(mine) / _pace(plain)))
    return {kind: {name: exp(fmean(all_)) for name, all_ in some.items()} for kind, some in logs.items()}


def _pace(sample: Sample) -> float:
    return sample.trace.metrics().tokens_per_second


def judge(report: AdviceReport, kind: str, speedups: dict[str, float]) -> dict[str, Any]:
    """One domain's choice by the grid's figures; the overall choice where the domain was not reached."""
    rows = {row.kind: row for row in report.by_kind}
    row = rows.get(kind)
    chosen = row.method if row is not None else report.names[report.race.leader]
    best = max(speedups, key=speedups.__getitem__)
    return {
        "domain": kind,
        "chosen": chosen,
        "said": row.speedup if row is not None else None,
        "measured": speedups[chosen],
        "best": best,
        "best_measured": speedups[best],
        "share": speedups[chosen] / speedups[best],
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
    spent = "; ".join(f"{each['name']} {each['seconds']:.1f} s" for each in found["time"])
    lines = [columns(formats, found["domains"]), f"time spent: {spent}"]
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
        repeats=3,
        prompts=4,
        threads=None,
    )
