"""``python -m specdemo.bench.sweep``: how long a γ sweep takes, and whether its prediction and its advice hold.

Every domain is swept twice. The first sweep predicts and recommends; the second, of its own repeats, judges.
"""

from __future__ import annotations

import time
from typing import Any

from specdemo.analysis.sweep_report import SweepReport
from specdemo.bench.harness import Args, Results, columns, head, load, run_bench, verdict
from specdemo.models.pair import ModelPair
from specdemo.runs.prompts import by_domain
from specdemo.runs.sweep import sweep
from specdemo.settings import Settings

LONGEST_SECONDS = 180.0
PREDICTION_WITHIN = 0.10
ADVICE_WITHIN = 0.03


def measure(
    pair: ModelPair, prompts: list[str], gammas: range, tokens: int, repeats: int
) -> tuple[SweepReport, float]:
    """One sweep, and the seconds it took by the wall clock."""
    began = time.perf_counter()
    report = sweep(pair, prompts, Settings(max_new_tokens=tokens), gammas, repeats)
    return report, time.perf_counter() - began


def judge(domain: str, first: SweepReport, second: SweepReport) -> dict[str, Any]:
    """One domain's figures; ``advice`` is the second sweep's speed-up at the first one's γ over its best."""
    speedups = {row.gamma: row.speedup for row in second.rows}
    return {
        "domain": domain,
        "recommended": first.best_gamma,
        "best_when_judged": max(speedups, key=speedups.__getitem__),
        "advice": speedups[first.best_gamma] / max(speedups.values()),
        "rows": [
            {
                "gamma": a.gamma,
                "speedup": a.speedup,
                "spread": [a.speedup_low, a.speedup_high],
                "speedup_when_judged": b.speedup,
                "predicted": a.predicted_speedup,
                "predicted_over_measured": a.predicted_speedup / a.speedup,
                "predicted_over_judged": a.predicted_speedup / b.speedup,
                "without_short_rounds_and_overhead": a.expected_speedup / a.speedup,
                "acceptance_rate": a.acceptance_rate,
                "mean_acceptance_length": a.mean_acceptance_length,
                "c": a.draft_cost,
                "v": a.verify_cost,
                "o": a.overhead_cost,
            }
            for a, b in zip(first.rows, second.rows, strict=True)
        ],
    }


def results(args: Args) -> Results:
    """All figures as plain data; prints those of each domain as they come."""
    pair = load(args)
    gammas = range(args.gammas[0], args.gammas[1] + 1)
    seconds, domains = 0.0, []
    for domain, examples in by_domain().items():
        prompts = [example.prompt for example in examples[: args.prompts]]
        first, took = measure(pair, prompts, gammas, args.tokens, args.repeats)
        second, _ = measure(pair, prompts, gammas, args.tokens, args.repeats)
        seconds += took
        domains.append(judge(domain, first, second))
        print(table(domains[-1]), flush=True)
    errors = [abs(row["predicted_over_measured"] - 1) for d in domains for row in d["rows"]]
    return {
        **head(args, pair.device, "tokens", "repeats", "prompts", temperature=0),
        "wall_seconds": seconds,
        "worst_prediction": max(errors),
        "worst_advice": min(d["advice"] for d in domains),
        "domains": domains,
    }


COLUMNS = {
    "γ": "{gamma}",
    "measured": "{speedup:.2f}×",
    "again": "{speedup_when_judged:.2f}×",
    "predicted": "{predicted:.2f}×",
    "ratio": "{predicted_over_measured:.3f}",
    "τ/(γc+v)": "{without_short_rounds_and_overhead:.3f}",
}


def table(domain: dict[str, Any]) -> str:
    """One domain for people."""
    title = f"{domain['domain']}: γ = {domain['recommended']} recommended, {domain['advice']:.1%} of the best"
    return f"{title}\n{columns(COLUMNS, domain['rows'])}"


def conclusion(found: dict[str, Any]) -> str:
    """Figures against their bars."""
    wall, prediction, advice = (found[n] for n in ("wall_seconds", "worst_prediction", "worst_advice"))
    lines = [
        verdict(wall <= LONGEST_SECONDS, f"sweep of all domains {wall:.0f} s"),
        verdict(prediction <= PREDICTION_WITHIN, f"prediction off by at most {prediction:.1%}"),
        verdict(advice >= 1 - ADVICE_WITHIN, f"advice at least {advice:.1%} of the best"),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    defaults = {"pair": "builtin", "gammas": (2, 8), "tokens": 64, "repeats": 3, "prompts": 4, "threads": None}
    run_bench("sweep", __doc__, results, conclusion, **defaults)
