"""``python -m specdemo.bench``: every drafter of a pair against plain decoding, by domain.

Of several γ each drafter takes the one that was fastest on the domain's first prompts, which do not count. On the
others all contenders answer once, in turn; a prompt whose plain output loops does not count. A speed-up is that of
decoding, without prefills, over all prompts of a domain; beside it stands the middle half of the prompts' ratios.
Ratios over transformers include the prefill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median, quantiles
from typing import Any

from specdemo.analysis.repetition import loops
from specdemo.bench.contenders import (
    Contender,
    Sample,
    assisted_generate,
    generate,
    lookup_generate,
    ours,
)
from specdemo.bench.harness import (
    Args,
    Results,
    columns,
    head,
    interleaved,
    load,
    median_of,
    prompts_of,
    run_bench,
    spread,
)
from specdemo.drafters import offered_with
from specdemo.errors import SettingsError
from specdemo.metrics import counts_of, totals
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.settings import Settings

PLAIN, GENERATE, ASSISTED, LOOKUP_GENERATE = "plain", "generate", "assisted generate", "prompt lookup of generate"
LOOKUP = "prompt_lookup"


def measure(args: Args) -> Results:
    """All figures as plain data."""
    tuning = args.tuning if len(args.gammas) > 1 else 0
    for option, number in {"prompts": args.prompts, "tuning": tuning or len(args.gammas) == 1}.items():
        if number < 1:
            raise SettingsError(option, f"is {getattr(args, option)}; give 1 or more.")
    pair = load(args)
    domains = [
        _domain(pair, name, some[:tuning], some[tuning:], args)
        for name, some in prompts_of(args, tuning + args.prompts).items()
    ]
    names = [row["way"] for row in domains[0]["ways"]]
    medians = {name: median_of(_row(domain, name)["speedup"] for domain in domains) for name in names}
    return {
        **head(args, pair.device, "gammas", "tuning", "tokens", "temperature"),
        "dtype": pair.dtype,
        "prompts": "held-out tasks" if args.corpus else "example prompts",
        "median_speedups": medians,
        "domains": domains,
    }


def _common(args: Args) -> Settings:
    rule = {"acceptance": "sampling"} if args.temperature else {}
    return Settings(max_new_tokens=args.tokens, temperature=args.temperature, **rule)


def _best_gammas(pair: ModelPair, prompts: Sequence[str], args: Args) -> dict[str, int]:
    """Each drafter's fastest γ on these prompts; the only one where there is no choice."""
    found = {}
    for spec in offered_with(pair.parts):
        ways = {gamma: ours(pair, replace(_common(args), drafter=spec.name, gamma=gamma)) for gamma in args.gammas}
        if len(ways) == 1:
            found[spec.name] = args.gammas[0]
            continue
        samples = {gamma: [decode(encode(pair, prompt)) for prompt in prompts] for gamma, decode in ways.items()}
        found[spec.name] = max(samples, key=lambda gamma: _decode_pace(samples[gamma]))
    return found


def _ways(pair: ModelPair, gammas: dict[str, int], args: Args) -> dict[str, Contender]:
    """Our drafters; greedily also what transformers has to put beside them."""
    common = _common(args)
    ways = {PLAIN: ours(pair, replace(common, strategy="autoregressive"))}
    for name, gamma in gammas.items():
        ways[name] = ours(pair, replace(common, drafter=name, gamma=gamma))
    if not args.temperature:
        ways[GENERATE] = generate(pair, args.tokens)
        if "model" in gammas:
            ways[ASSISTED] = assisted_generate(pair, args.tokens, gammas["model"])
        ways[LOOKUP_GENERATE] = lookup_generate(pair, args.tokens, gammas[LOOKUP], common.lookup_ngram)
    return ways


def _domain(
    pair: ModelPair, name: str, tuning: Sequence[str], prompts: Sequence[str], args: Args
) -> dict[str, Any]:
    if not prompts:
        raise SettingsError("tuning", f"{len(tuning)} prompts leave none of {name} to measure; give fewer.")
    gammas = _best_gammas(pair, tuning, args)
    ways = _ways(pair, gammas, args)
    found: dict[str, list[Sample]] = {way: [] for way in ways}
    for number, prompt in enumerate(prompts):
        turns = {way: partial(decode, encode(pair, prompt)) for way, decode in ways.items()}
        for way, samples in interleaved(turns, 1, int(number == 0)).items():
            found[way] += samples
    counted = [n for n, sample in enumerate(found[PLAIN]) if not loops(sample.ids)]
    if not counted:
        raise SettingsError("prompts", f"the plain output of all {len(prompts)} of {name} loops; give more.")
    found = {way: [samples[n] for n in counted] for way, samples in found.items()}
    plain = found[PLAIN]
    same = all(a.ids == b.ids for some in found.values() for a, b in zip(plain, some, strict=True))
    return {
        "domain": name,
        "prompts": len(counted),
        "looping": len(prompts) - len(counted),
        "tokens": median(len(sample.ids) for sample in plain),
        "identical": same if not args.temperature else None,
        "tokens_per_second": {way: _pace(samples) for way, samples in found.items()},
        "ways": [_figures(way, found[way], plain, gamma) for way, gamma in gammas.items()],
        "over_generate": _over(found, GENERATE, PLAIN),
        "over_assisted": _over(found, ASSISTED, "model"),
        "over_lookup": _over(found, LOOKUP_GENERATE, LOOKUP),
    }


def _figures(way: str, found: list[Sample], plain: list[Sample], gamma: int) -> dict[str, Any]:
    traces = [sample.trace for sample in found]
    rounds = [r for trace in traces for r in counts_of(trace.rounds)]
    sums = totals(rounds, gamma)
    ratios = [_decode_pace([fast]) / _decode_pace([slow]) for fast, slow in zip(found, plain, strict=True)]
    metrics = [t.metrics(s.trace) for t, s in zip(traces, plain, strict=True)]
    return {
        "way": way,
        "gamma": gamma,
        "speedup": _decode_pace(found) / _decode_pace(plain),
        "middle_half": quantiles(ratios, n=4)[::2] if len(ratios) > 1 else 2 * ratios,
        "tokens_a_round": sums.mean_acceptance_length,
        "per_position": sums.per_position,
        "draft_cost": median_of(m.draft_cost for m in metrics),
        "verify_cost": median_of(m.verify_cost for m in metrics),
    }


def _pace(samples: Sequence[Sample]) -> float:
    """Tokens a second, prefill included; sampled texts of one prompt differ in length."""
    return sum(len(s.ids) for s in samples) / sum(s.seconds for s in samples)


def _decode_pace(samples: Sequence[Sample]) -> float:
    """Tokens a second after the first, of ours; the usual tokens/s of this project."""
    found = [sample.trace.metrics() for sample in samples]
    return sum(m.emitted for m in found) / sum(m.seconds - m.ttft for m in found)


def _over(found: dict[str, list[Sample]], slow: str, fast: str) -> float | None:
    if slow not in found or fast not in found:
        return None
    return _pace(found[fast]) / _pace(found[slow])


def _row(domain: dict[str, Any], way: str) -> dict[str, Any]:
    return next(row for row in domain["ways"] if row["way"] == way)


ROWS = {
    "drafter": "{way}",
    "domain": "{domain}",
    "γ": "{gamma}",
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
        f"{results['pair']}, {results['dtype']}; T {settings['temperature']}, γ of {settings['gammas']}, at most "
        f"{settings['tokens']} tokens, {results['prompts']}",
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
            looping = f" ({d['looping']} more loop)" if d["looping"] else ""
            prompts = f"{d['prompts']} prompts{looping}"
            lines.append(f"{d['domain']}: {prompts}, {d['tokens']:.0f} tokens, {same}; {', '.join(others)}")
    return "\n".join(lines)


def _cells(row: dict[str, Any], domain: str) -> dict[str, Any]:
    """A row as text; what no round tells, such as the cost of drafts where nothing was drafted, is a dash."""
    names = {"rate": "tokens_a_round", "c": "draft_cost", "v": "verify_cost"}
    known = {cell: "–" if row[name] is None else f"{row[name]:.2f}" for cell, name in names.items()}
    return {**row, **known, "domain": domain, "kept": " ".join(f"{share:.0%}" for share in row["per_position"])}


if __name__ == "__main__":
    run_bench(
        "",
        __doc__,
        measure,
        table,
        pair="builtin",
        gammas=[3, 5, 8],
        tuning=2,
        temperature=0.0,
        tokens=128,
        prompts=20,
        corpus=None,
        threads=1,
    )
