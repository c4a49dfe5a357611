"""``python -m specdemo.bench.sweep``: how long a γ sweep takes, and whether its prediction and its advice hold.

Every domain is swept twice. The first sweep predicts and recommends; the second, of its own repeats, judges.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

from specdemo.analysis.sweep_report import SweepReport
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import Example, by_domain
from specdemo.runs.sweep import sweep
from specdemo.settings import Settings

LONGEST_SECONDS = 180.0
PREDICTION_WITHIN = 0.10
ADVICE_WITHIN = 0.03


def measure(
    pair: ModelPair, prompts: list[Example], gammas: range, tokens: int, repeats: int
) -> tuple[SweepReport, float]:
    """One sweep, and the seconds it took by the wall clock."""
    began = time.perf_counter()
    report = sweep(pair, [e.prompt for e in prompts], Settings(max_new_tokens=tokens), gammas, repeats)
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.sweep", description=__doc__)
    parser.add_argument("--pair", default="builtin")
    parser.add_argument("--gammas", type=int, nargs=2, default=(2, 8), metavar=("FROM", "TO"))
    parser.add_argument("--tokens", type=int, default=64, help="tokens a run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=4, help="prompts a domain")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    pair = load_pair(args.pair)
    gammas = range(args.gammas[0], args.gammas[1] + 1)
    seconds, domains = 0.0, []
    for domain, prompts in by_domain().items():
        chosen = prompts[: args.prompts]
        first, took = measure(pair, chosen, gammas, args.tokens, args.repeats)
        second, _ = measure(pair, chosen, gammas, args.tokens, args.repeats)
        seconds += took
        domains.append(judge(domain, first, second))
        print(table(domains[-1]), flush=True)
    errors = [abs(row["predicted_over_measured"] - 1) for d in domains for row in d["rows"]]
    results = {
        "date": date.today().isoformat(),
        "machine": machine_of(pair.device),
        "pair": args.pair,
        "settings": {"tokens": args.tokens, "repeats": args.repeats, "prompts": args.prompts, "temperature": 0},
        "wall_seconds": seconds,
        "worst_prediction": max(errors),
        "worst_advice": min(d["advice"] for d in domains),
        "domains": domains,
    }
    print(conclusion(results))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(domain: dict[str, Any]) -> str:
    """One domain for people."""
    lines = [f"{domain['domain']}: γ = {domain['recommended']} recommended, {domain['advice']:.1%} of the best"]
    lines.append(f"{'γ':>3}{'measured':>10}{'again':>8}{'predicted':>11}{'ratio':>8}{'τ/(γc+v)':>10}")
    for row in domain["rows"]:
        lines.append(
            f"{row['gamma']:>3}{row['speedup']:>9.2f}×{row['speedup_when_judged']:>7.2f}×{row['predicted']:>10.2f}×"
            f"{row['predicted_over_measured']:>8.3f}{row['without_short_rounds_and_overhead']:>10.3f}"
        )
    return "\n".join(lines)


def conclusion(results: dict[str, Any]) -> str:
    """Figures against their bars."""
    figures = (
        (f"sweep of all domains {results['wall_seconds']:.0f} s", results["wall_seconds"] <= LONGEST_SECONDS),
        (
            f"prediction off by at most {results['worst_prediction']:.1%}",
            results["worst_prediction"] <= PREDICTION_WITHIN,
        ),
        (
            f"advice at least {results['worst_advice']:.1%} of the best",
            results["worst_advice"] >= 1 - ADVICE_WITHIN,
        ),
    )
    return "\n".join(f"{'ok  ' if holds else 'MISS'} {text}" for text, holds in figures)


if __name__ == "__main__":
    main()
