"""``python -m specdemo.bench.drafters``: every drafter of a pair against plain decoding, by domain, at one γ.

All contenders answer each prompt once, in turn. A speed-up is the ratio of the paces over all prompts of a domain,
beside it the middle half of the prompts' own ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median, quantiles
from typing import Any

from specdemo.bench.asked import prompts_of
from specdemo.bench.contenders import (
    Contender,
    Sample,
    assisted_generate,
    generate,
    lookup_generate,
    ours,
)
from specdemo.bench.harness import Args, Results, columns, head, interleaved, load, median_of, run_bench, spread
from specdemo.drafters import DRAFTERS
from specdemo.metrics import counts_of, totals
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.settings import Settings

PLAIN, GENERATE, ASSISTED, LOOKUP_GENERATE = "plain", "generate", "assisted generate", "prompt lookup of generate"
LOOKUP = "prompt_lookup"
LOOKUP_GAMMA = 8
"""Its drafts cost nothing, so that more of them pay."""


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    ways = _ways(pair, args)
    domains = [_domain(pair, name, some, ways, args) for name, some in prompts_of(args).items()]
    names = [row["way"] for row in domains[0]["ways"]]
    medians = {name: median_of(_row(domain, name)["speedup"] for domain in domains) for name in names}
    return {
        **head(args, pair.device, "gamma", "tokens", "temperature", lookup_gamma=LOOKUP_GAMMA),
        "dtype": pair.dtype,
        "prompts": "held-out tasks" if args.corpus else "example prompts",
        "median_speedups": medians,
        "domains": domains,
    }


def _ways(pair: ModelPair, args: Args) -> dict[str, Contender]:
    """Our drafters; greedily also what transformers has to put beside them."""
    common = {"max_new_tokens": args.tokens, "temperature": args.temperature}
    common |= {"acceptance": "sampling"} if args.temperature else {}
    ways = {PLAIN: ours(pair, Settings(strategy="autoregressive", **common))}
    for spec in DRAFTERS.values():
        if spec.needs is None or spec.needs in pair.parts:
            gamma = LOOKUP_GAMMA if spec.name == LOOKUP else args.gamma
            ways[spec.name] = ours(pair, Settings(drafter=spec.name, gamma=gamma, **common))
    if not args.temperature:
        ways[GENERATE] = generate(pair, args.tokens)
        ways[ASSISTED] = assisted_generate(pair, args.tokens, args.gamma)
        ways[LOOKUP_GENERATE] = lookup_generate(pair, args.tokens, LOOKUP_GAMMA, Settings().lookup_ngram)
    return ways


def _domain(
    pair: ModelPair, name: str, prompts: Sequence[str], ways: dict[str, Contender], args: Args
) -> dict[str, Any]:
    found: dict[str, list[Sample]] = {way: [] for way in ways}
    for number, prompt in enumerate(prompts):
        turns = {way: partial(decode, encode(pair, prompt)) for way, decode in ways.items()}
        for way, samples in interleaved(turns, 1, int(number == 0)).items():
            found[way] += samples
    plain = found[PLAIN]
    same = all(a.ids == b.ids for some in found.values() for a, b in zip(plain, some, strict=True))
    return {
        "domain": name,
        "prompts": len(prompts),
        "tokens": median(len(sample.ids) for sample in plain),
        "identical": same if not args.temperature else None,
        "tokens_per_second": {way: _pace(samples) for way, samples in found.items()},
        "ways": [_figures(way, some, plain, args.gamma) for way, some in found.items() if way in DRAFTERS],
        "over_generate": _over(found, GENERATE, PLAIN),
        "over_assisted": _over(found, ASSISTED, "model"),
        "over_lookup": _over(found, LOOKUP_GENERATE, LOOKUP),
    }


def _figures(way: str, found: list[Sample], plain: list[Sample], gamma: int) -> dict[str, Any]:
    traces = [sample.trace for sample in found]
    rounds = [r for trace in traces for r in counts_of(trace.rounds)]
    sums = totals(rounds, LOOKUP_GAMMA if way == LOOKUP else gamma)
    ratios = [_pace([fast]) / _pace([slow]) for fast, slow in zip(found, plain, strict=True)]
    metrics = [t.metrics(s.trace) for t, s in zip(traces, plain, strict=True)]
    return {
        "way": way,
        "speedup": _pace(found) / _pace(plain),
        "middle_half": quantiles(ratios, n=4)[::2] if len(ratios) > 1 else 2 * ratios,
        "tokens_a_round": sums.mean_acceptance_length,
        "per_position": sums.per_position,
        "draft_cost": median_of(m.draft_cost for m in metrics),
        "verify_cost": median_of(m.verify_cost for m in metrics),
    }


def _pace(samples: Sequence[Sample]) -> float:
    """Tokens a second; sampled texts of one prompt differ in length."""
    return sum(len(s.ids) for s in samples) / sum(s.seconds for s in samples)


def _over(found: dict[str, list[Sample]], slow: str, fast: str) -> float | None:
    if slow not in found or fast not in found:
        return None
    return _pace(found[fast]) / _pace(found[slow])


def _row(domain: dict[str, Any], way: str) -> dict[str, Any]:
    return next(row for row in domain["ways"] if row["way"] == way)


ROWS = {
    "drafter": "{way}",
    "domain": "{domain}",
    "speed-up": spread("speedup", "middle_half"),
    "τ": "{rate}",
    "kept by position": "{kept}",
    "c": "{c}",
    "v(γ)": "{v}",
}


def table(results: Results) -> str:
    """The results for people."""
    settings, domains = results["settings"], results["domains"]
    rows = [_cells(row, domain["domain"]) for domain in domains for row in domain["ways"]]
    medians = ", ".join(f"{way} {value:.2f}×" for way, value in results["median_speedups"].items())
    lines = [
        f"{results['pair']}, {results['dtype']}; T {settings['temperature']}, γ {settings['gamma']}, at most "
        f"{settings['tokens']} tokens, {domains[0]['prompts']} {results['prompts']} a domain",
        "",
        columns(ROWS, sorted(rows, key=lambda row: row["way"])),
        "",
        f"medians over the domains: {medians}",
    ]
    for d in domains:
        if d["over_generate"] is not None:
            others = [
                f"plain / generate {d['over_generate']:.2f}×",
                f"lookup / its lookup {d['over_lookup']:.2f}×",
            ]
            if d["over_assisted"] is not None:
                others.append(f"draft / assisted {d['over_assisted']:.2f}×")
            same = "same ids" if d["identical"] else "OTHER IDS"
            lines.append(f"{d['domain']}: {d['tokens']:.0f} tokens, {same}; {', '.join(others)}")
    return "\n".join(lines)


def _cells(row: dict[str, Any], domain: str) -> dict[str, Any]:
    """A row as text; what no round tells, such as the cost of drafts where nothing was drafted, is a dash."""
    names = {"rate": "tokens_a_round", "c": "draft_cost", "v": "verify_cost"}
    known = {cell: "–" if row[name] is None else f"{row[name]:.2f}" for cell, name in names.items()}
    return {**row, **known, "domain": domain, "kept": " ".join(f"{share:.0%}" for share in row["per_position"])}


if __name__ == "__main__":
    run_bench(
        "drafters",
        __doc__,
        measure,
        table,
        pair="builtin",
        gamma=5,
        temperature=0.0,
        tokens=128,
        prompts=20,
        corpus=None,
        threads=1,
    )
