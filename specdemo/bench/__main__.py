"""``python -m specdemo.bench``: measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch

from specdemo.bench.clocks import race_against_alone
from specdemo.bench.speed import measure_domain, summary
from specdemo.machine import machine_of
from specdemo.models.loading import load_pair
from specdemo.prompts import by_domain


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench", description=__doc__)
    parser.add_argument("--pair", default="builtin")
    parser.add_argument("--device", default=None)
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--gammas", type=int, nargs="+", default=[2, 3, 4, 5, 6, 8])
    parser.add_argument("--assisted-gammas", type=int, nargs="+", default=[4])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=4, help="prompts a domain")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    return parser.parse_args()


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    pair = load_pair(args.pair, device=args.device, dtype=args.dtype)
    pair.warm_up()
    gammas = sorted({*args.gammas, *args.assisted_gammas, 4})
    domains = [
        summary(
            measure_domain(
                pair,
                domain,
                prompts[: args.prompts],
                gammas,
                args.assisted_gammas,
                args.tokens,
                args.repeats,
                log,
            ),
            gammas,
            args.assisted_gammas,
        )
        for domain, prompts in by_domain().items()
    ]
    first = next(iter(by_domain().values()))[0]
    results = {
        "date": date.today().isoformat(),
        "machine": machine_of(pair.device),
        "pair": args.pair,
        "dtype": pair.dtype,
        "settings": {"tokens": args.tokens, "repeats": args.repeats, "temperature": 0},
        "median_speedup": median_of(d["speedup"] for d in domains),
        "median_acceptance_rate_gamma_4": median_of(d["acceptance_rate_gamma_4"] for d in domains),
        "domains": domains,
        "race_over_alone": race_against_alone(pair, first.prompt, 4, args.tokens, args.repeats),
    }
    print(table(results))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def median_of(values: Any) -> float | None:
    """Median of the values there are."""
    known = [v for v in values if v is not None]
    return median(known) if known else None


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    machine = results["machine"]
    lines = [
        f"{results['pair']}, {results['dtype']}, {machine['device']} ({machine['processor']}), "
        f"{machine['threads']} threads, torch {machine['torch']}, transformers {machine['transformers']}; "
        f"greedy, {results['settings']['tokens']} tokens, "
        f"median of {results['settings']['repeats']} interleaved runs",
        "",
        f"{'domain':<9}{'prompts':>8}{'best γ':>8}{'speed-up':>10}{'accepted γ=4':>14}{'τ':>7}{'c':>7}{'v(γ)':>7}"
        f"{'other':>7}{'adaptive/best':>15}{'plain/generate':>16}{'spec/assisted':>15}{'identical':>11}",
    ]
    for d in results["domains"]:
        if not d["counted_prompts"]:
            lines.append(f"{d['domain']:<9}{0:>8}  every output loops; nothing counts")
            continue
        costs = d["costs"]
        over = next(iter(d["speculative_over_assisted"].values()))
        lines.append(
            f"{d['domain']:<9}{len(d['counted_prompts']):>8}{d['best_gamma']:>8}{d['speedup']:>9.2f}×"
            f"{d['acceptance_rate_gamma_4']:>14.2f}{costs['mean_acceptance_length']:>7.2f}{costs['draft_cost']:>7.2f}"
            f"{costs['verify_cost']:>7.2f}{costs['other_share']:>7.1%}"
            f"{d['adaptive_over_best']:>14.2f}×{d['autoregressive_over_generate']:>15.2f}×{over:>14.2f}×"
            f"{'yes' if d['all_outputs_identical'] else 'NO':>11}"
        )
    clocks = results["race_over_alone"]
    lines += [
        "",
        f"median speed-up over the domains {results['median_speedup']:.2f}×, "
        f"median acceptance rate at γ=4 {results['median_acceptance_rate_gamma_4']:.2f}",
        f"lane clock in a race / alone: plain {clocks['autoregressive']:.3f}, "
        f"speculative {clocks['speculative']:.3f}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
