"""``python -m specdemo.bench.advisor``: the advisor's choice against an exhaustive grid that is measured apart.

The advisor is asked once for each domain, with its whole budget. Then every contender decodes every prompt,
interleaved with plain decoding, and these times judge: how much slower is the choice than the best of the grid?
Of GGUF files the grid has every method and ``p_min`` with some γ; all of its servers run at once.
"""

from __future__ import annotations

from functools import partial
from math import exp, fsum, log
from typing import Any

from specdemo.bench.contenders import ours
from specdemo.bench.harness import Args, Results, columns, interleaved, prompts_of, run_bench, verdict
from specdemo.models.pair import ModelPair
from specdemo.runs.advise import advise
from specdemo.runs.encode import encode
from specdemo.runs.load import load_pair
from specdemo.servers.gguf import GgufPair
from specdemo.settings import MAX_GAMMA, Settings

WITHIN, WITHIN_IN_LLAMA_CPP = 0.05, 0.08
"""Of the best's speed a choice may miss."""
GAMMAS = (2, 4, 8, MAX_GAMMA)
"""Of a grid of GGUF files."""
MOST_SERVERS = 128


def measure(args: Args) -> Results:
    pair, asked = load_pair(args.pair), prompts_of(None, args.prompts)
    served = isinstance(pair, GgufPair)
    if served:
        pair.kept = MOST_SERVERS
    found = [_domain(pair, name, asked[name], args) for name in asked if not args.domains or name in args.domains]
    dtype, within = ("of the files", WITHIN_IN_LLAMA_CPP) if served else (pair.dtype, WITHIN)
    return {"device": str(pair.device), "dtype": dtype, "within": within, "domains": found}


def _domain(pair: ModelPair | GgufPair, domain: str, prompts: list[str], args: Args) -> dict[str, Any]:
    report = advise(pair, prompts, Settings(max_new_tokens=args.tokens), args.budget)
    lanes = {name: c.settings(report.base) for name, c in zip(report.names, report.contenders, strict=True)}
    chosen = next(name for name, settings in lanes.items() if settings == report.settings())
    if isinstance(pair, GgufPair):
        every = zip(report.names, report.contenders, strict=True)
        lanes = {n: lanes[n] for n, c in every if not c.family or c.gamma in GAMMAS or n == chosen}
    speedups = grid(pair, lanes, prompts, args.repeats, domain)
    best = max(speedups, key=speedups.__getitem__)
    return {
        "domain": domain,
        "chosen": chosen,
        "said": report.best and report.best.speedup,
        "measured": speedups[chosen],
        "best": best,
        "best_measured": speedups[best],
        "share": speedups[chosen] / speedups[best],
        "seconds": report.seconds,
        "runs": {row.name: row.runs for row in report.rows},
        "grid": speedups,
    }


def grid(
    pair: ModelPair | GgufPair, lanes: dict[str, Settings], prompts: list[str], repeats: int, label: str
) -> dict[str, float]:
    """Each lane's speed-up over the first one: the geometric mean over all prompts and repeats."""
    logs: dict[str, list[float]] = {name: [] for name in lanes}
    for prompt in prompts:
        given = prompt if isinstance(pair, GgufPair) else encode(pair, prompt)
        runs = {name: partial(ours(pair, lane), given) for name, lane in lanes.items()}
        for name, samples in interleaved(runs, repeats, 0, label).items():  # the advisor warmed everything up
            logs[name] += [log(sample.decode_speed or 0.0) for sample in samples]
    means = {name: fsum(some) / len(some) for name, some in logs.items()}
    first = next(iter(means.values()))
    return {name: exp(mean - first) for name, mean in means.items()}


COLUMNS = {
    "domain": "{domain}",
    "chosen": "{chosen}",
    "it says": "{said:.2f}×",
    "by the grid": "{measured:.2f}×",
    "best of the grid": "{best}",
    "its speed-up": "{best_measured:.2f}×",
    "share": "{share:.1%}",
}


def table(found: Results) -> str:
    claims = [
        verdict(d["share"] >= 1 - found["within"], f"{d['domain']}: {d['share']:.1%} in {d['seconds']:.0f} s")
        for d in found["domains"]
    ]
    return "\n".join([columns(COLUMNS, found["domains"]), "", *claims])


if __name__ == "__main__":
    options = {"pair": "builtin", "budget": 120.0, "tokens": 64, "repeats": 2, "prompts": 3, "threads": 1}
    run_bench("advisor", __doc__, measure, table, **options, domains=[])
