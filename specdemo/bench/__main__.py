"""``python -m specdemo.bench``: every drafter of a pair, and rows of them, against plain decoding, by domain.

Of several γ, ``p_min`` and sizes of draft trees each drafter takes what was fastest on the domain's first
prompts, which do not count. On the others all contenders answer once, in turn; a prompt whose plain output loops
does not count. Speed-ups are of decoding, without prefills; ratios over
transformers include them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

from specdemo.analysis.repetition import loops
from specdemo.bench.contenders import Contender, Sample, assisted_generate, compared, generate, ours, spread
from specdemo.bench.harness import Args, Results, columns, interleaved, prompts_of, run_bench, verdict
from specdemo.drafters import DRAFTERS, all_with, in_a_row
from specdemo.errors import SettingsError
from specdemo.metrics import counts_of, totals
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.load import load_pair
from specdemo.settings import Settings

PLAIN, GENERATE, ASSISTED, LOOKUP_GENERATE = "plain", "generate", "assisted generate", "prompt lookup of generate"
OVER_TRANSFORMERS = {GENERATE: PLAIN, ASSISTED: "model", LOOKUP_GENERATE: "prompt_lookup"}
"""What transformers has, and what of ours is compared with it."""


def measure(args: Args) -> Results:
    for option in ("prompts", "tuning"):
        if getattr(args, option) < 1:
            raise SettingsError(option, f"is {getattr(args, option)}; give 1 or more.")
    pair = load_pair(args.pair)
    prompts = prompts_of(args.corpus, args.tuning + args.prompts)
    found = [_domain(pair, name, texts, args) for name, texts in prompts.items()]
    return {"device": str(pair.device), "dtype": pair.dtype, "domains": found}


def candidates(pair: ModelPair, args: Args) -> dict[str, list[Settings]]:
    """The settings of which each method takes the fastest; chains and trees of a drafter are two methods."""
    rule = "sampling" if args.temperature else "exact"
    base = Settings(max_new_tokens=args.tokens, temperature=args.temperature, acceptance=rule)
    found = {PLAIN: [replace(base, strategy="autoregressive")]}
    for drafter in all_with(pair.parts):
        chains = [replace(base, drafter=drafter.name, gamma=gamma) for gamma in args.gammas]
        sure = [replace(chain, p_min=least) for chain in chains for least in args.p_mins if drafter.needs]
        if "," in drafter.name:
            found[drafter.name] = chains + sure
            continue
        found[drafter.name] = chains
        found |= {f"{drafter.name}, p_min": sure} if sure else {}
        sizes = [(chain, n) for chain in chains for n in args.nodes if drafter.trees and n > chain.gamma]
        if sizes:
            found[f"{drafter.name}, tree"] = [replace(chain, tree_nodes=n) for chain, n in sizes]
    return found


def fastest(pair: ModelPair, settings: Sequence[Settings], prompts: Sequence[str]) -> Settings:
    """Of these settings those with the most tokens a second on these prompts."""
    if len(settings) == 1:
        return settings[0]
    speeds = [[ours(pair, of)(encode(pair, prompt)).decode_speed or 0.0 for prompt in prompts] for of in settings]
    return settings[max(range(len(settings)), key=lambda n: fmean(speeds[n]))]


def contenders(pair: ModelPair, chosen: Mapping[str, Settings]) -> dict[str, Contender]:
    """Our methods; greedily also what transformers has to put beside them."""
    found = {method: ours(pair, settings) for method, settings in chosen.items()}
    tokens, lookup = chosen[PLAIN].max_new_tokens, chosen["prompt_lookup"]
    if chosen[PLAIN].greedy:
        found[GENERATE] = generate(pair, tokens)
        options = {"prompt_lookup_num_tokens": lookup.gamma, "max_matching_ngram_size": lookup.lookup_ngram}
        found[LOOKUP_GENERATE] = generate(pair, tokens, **options)
        if "model" in chosen:
            found[ASSISTED] = assisted_generate(pair, tokens, chosen["model"].gamma)
    return found


def _domain(pair: ModelPair, name: str, texts: Sequence[str], args: Args) -> dict[str, Any]:
    tuning, prompts = texts[: args.tuning], texts[args.tuning :]
    if not prompts:
        raise SettingsError("tuning", f"{len(tuning)} prompts leave none of {name} to measure; give fewer.")
    chosen = {method: fastest(pair, some, tuning) for method, some in candidates(pair, args).items()}
    running = contenders(pair, chosen)
    found: dict[str, list[Sample]] = {method: [] for method in running}
    for number, prompt in enumerate(prompts):
        turns = {method: partial(decode, encode(pair, prompt)) for method, decode in running.items()}
        samples = interleaved(turns, 1, warm_up=int(number == 0))
        plain = samples[PLAIN][0].ids
        if len(plain) > 1 and not loops(plain):
            for method, some in samples.items():
                found[method] += some
    plain_samples, greedy = found[PLAIN], chosen[PLAIN].greedy
    if not plain_samples:
        raise SettingsError("prompts", f"the plain output of all {len(prompts)} of {name} loops; give more.")
    same = all(a.ids == b.ids for some in found.values() for a, b in zip(plain_samples, some, strict=True))
    figures = {m: _figures(found[m], plain_samples, chosen[m]) for m in chosen if m != PLAIN}
    return {
        "domain": name,
        "prompts": len(plain_samples),
        "looping": len(prompts) - len(plain_samples),
        "tokens": median(len(sample.ids) for sample in plain_samples),
        "identical": same if greedy else None,
        "methods": figures,
        "rows": [
            _of_row(name, method, figures, found) for method in figures if method in DRAFTERS and "," in method
        ],
        "over_transformers": {
            theirs: compared(found[theirs], found[own], whole=True)
            for theirs, own in OVER_TRANSFORMERS.items()
            if theirs in found
        },
    }


def _of_row(
    domain: str, row: str, figures: Mapping[str, dict[str, Any]], found: Mapping[str, list[Sample]]
) -> dict[str, Any]:
    """How drafters in a row compare with the best of each of them alone, in speed and in tokens a round."""
    alone = [m for m in figures if m.partition(", ")[0] in in_a_row(row) and not figures[m]["tree_nodes"]]
    over = {part: compared(found[part], found[row]) for part in alone}
    best = min(over, key=lambda part: over[part]["median"])
    tau, *others = (figures[m]["mean_acceptance_length"] for m in (row, *alone))
    about = {"domain": domain, "row": row, "part": best, "over": over[best], "kept": tau / max(others)}
    return about | {"tau": tau, "copied": figures[row]["copied"]}


def _figures(found: list[Sample], plain: list[Sample], settings: Settings) -> dict[str, Any]:
    sums = totals([r for sample in found for r in counts_of(sample.own.rounds)], settings.gamma)
    metrics = [sample.own.metrics(baseline.own) for sample, baseline in zip(found, plain, strict=True)]
    return {
        "gamma": settings.gamma,
        "tree_nodes": settings.tree_nodes,
        "p_min": settings.p_min,
        "speedup": compared(plain, found),
        "mean_acceptance_length": sums.mean_acceptance_length,
        "per_position": sums.per_position,
        "copied": sum(r.copied for sample in found for r in counts_of(sample.own.rounds)) / (sums.rounds or 1),
        "draft_cost": _median(m.draft_cost for m in metrics),
        "verify_cost": _median(m.verify_cost for m in metrics),
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


MEDIANS = {"all domains": "{method}", "speed-up": "{speedup:.2f}×"}
MEDIANS |= {"c": "{draft_cost:.2f}", "v": "{verify_cost:.2f}"}
OVER = {"domain": "{domain}", "prompts": "{prompts}", "looping": "{looping}", "tokens": "{tokens:.0f}"}
OF_ROWS = {"domain": "{domain}", "row": "{row}", "copies in": "{copied:.0%}", "τ": "{tau:.2f}"}
OF_ROWS |= {"of its best part's": "{kept:.2f}", "best part": "{part}", "speed over it": spread("over")}
LEAST = 0.97
"""Of the better part's speed, and on *edit* of its tokens a round, that a row must have."""


def table(found: Results) -> str:
    domains = found["domains"]
    methods = {method: [d["methods"][method] for d in domains] for method in domains[0]["methods"]}
    cells = {"domain": "{domain}"}
    for method in methods:
        of = f"methods[{method}]"
        sure = f", p {{{of}[p_min]}}" if any(row["p_min"] for row in methods[method]) else ""
        size = f", {{{of}[tree_nodes]}} tokens" if method.endswith("tree") else ""
        cells[method] = (
            f"{spread(f'{of}[speedup]')}, γ {{{of}[gamma]}}{size}{sure}, τ {{{of}[mean_acceptance_length]:.2f}}"
        )
    medians = [
        {"method": method, "speedup": median(row["speedup"]["median"] for row in rows)}
        | {name: _median(row[name] for row in rows) for name in ("draft_cost", "verify_cost")}
        for method, rows in methods.items()
    ]
    shown = OVER | {
        f"{own} over {theirs}": spread(f"over_transformers[{theirs}]")
        for theirs, own in OVER_TRANSFORMERS.items()
        if theirs in domains[0]["over_transformers"]
    }
    shown["same ids"] = "{identical}"
    rows = [row for domain in domains for row in domain["rows"]]
    claims = []
    for name in dict.fromkeys(row["row"] for row in rows):
        over = {row["domain"]: row["over"]["median"] for row in rows if row["row"] == name}
        kept = {row["domain"]: row["kept"] for row in rows if row["row"] == name}
        worst, middle = min(over, key=over.__getitem__), median(over.values())
        claims.append(
            verdict(over[worst] >= LEAST, f"{name} over its best part, least: {over[worst]:.2f} ({worst})")
        )
        claims.append(verdict(middle > 1, f"{name} over its best part, median of the domains: {middle:.2f}"))
        if "edit" in kept:
            claims.append(verdict(kept["edit"] >= LEAST, f"{name} keeps {kept['edit']:.2f} of its tokens on edit"))
    tables = (columns(cells, domains), columns(MEDIANS, medians), columns(OF_ROWS, rows), columns(shown, domains))
    return "\n\n".join((*tables, "\n".join(claims)))


if __name__ == "__main__":
    methods = {"pair": "builtin", "gammas": [3, 5, 8], "nodes": [0], "p_mins": [0.4], "temperature": 0.0}
    extent = {"threads": 1, "corpus": None, "prompts": 4, "tuning": 2, "tokens": 128}
    run_bench("", __doc__, measure, table, **methods, **extent)
