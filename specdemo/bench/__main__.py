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
from specdemo.bench.traffic import read_bandwidth, step_bytes
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import by_domain
from specdemo.runs.single import run
from specdemo.runs.warm_up import warm_up
from specdemo.settings import Settings


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
    warm_up(pair)
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
        "engine": run(pair, first.prompt, Settings(strategy="autoregressive", max_new_tokens=1)).engine,
        "memory": memory_traffic(pair, domains, args.tokens),
        "settings": {"tokens": args.tokens, "repeats": args.repeats, "temperature": 0},
        "median_over_assisted": median_of(
            over for d in domains for over in list(d["speculative_over_assisted"].values())[:1]
        ),
        "median_over_generate": median_of(d["autoregressive_over_generate"] for d in domains),
        "median_speedup": median_of(d["speedup"] for d in domains),
        "median_acceptance_rate_gamma_4": median_of(d["acceptance_rate_gamma_4"] for d in domains),
        "domains": domains,
        "race_over_alone": race_against_alone(pair, first.prompt, 4, args.tokens, args.repeats),
    }
    print(table(results))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def memory_traffic(pair: ModelPair, domains: list[dict[str, Any]], tokens: int) -> dict[str, float]:
    """Bytes that a plain step must read, and reads a second, against what the memory delivers."""
    step = step_bytes(pair.target, tokens)
    rate = median_of(d["tokens_per_second"]["autoregressive"] for d in domains) or 0.0
    return {"step_bytes": step, "bytes_per_second": step * rate, "read_bandwidth": read_bandwidth(pair.device)}


def median_of(values: Any) -> float | None:
    """Median of the values there are."""
    known = [v for v in values if v is not None]
    return median(known) if known else None


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    machine, memory, clocks = results["machine"], results["memory"], results["race_over_alone"]
    lines = [
        f"{results['pair']}, {results['dtype']}, {machine['device']} ({machine['processor']}), "
        f"{machine['threads']} threads, {results['engine']} engine, torch {machine['torch']}, "
        f"transformers {machine['transformers']}; greedy, {results['settings']['tokens']} tokens, "
        f"median of {results['settings']['repeats']} interleaved runs (least to most)",
        "",
        f"{'domain':<9}{'prompts':>8}{'best γ':>8}{'speed-up':>22}{'accepted γ=4':>14}{'τ':>6}{'c':>6}{'v(γ)':>6}"
        f"{'other':>7}{'adaptive/best':>15}{'identical':>11}",
        *(_own_row(d) for d in results["domains"]),
        "",
        f"{'domain':<9}{'plain tokens/s':>16}{'plain/generate':>22}{'spec/assisted':>22}{'best/its defaults':>19}"
        f"{'lookup/lookup':>15}",
        *(_other_row(d) for d in results["domains"] if d["counted_prompts"]),
        "",
        f"medians over the domains: speed-up {results['median_speedup']:.2f}×, plain/generate "
        f"{results['median_over_generate']:.2f}×, spec/assisted {results['median_over_assisted']:.2f}×, "
        f"acceptance rate at γ=4 {results['median_acceptance_rate_gamma_4']:.2f}",
        f"a plain step reads {memory['step_bytes'] / 1e6:.0f} MB, {memory['bytes_per_second'] / 1e9:.1f} GB/s; "
        f"memory was read at {memory['read_bandwidth'] / 1e9:.1f} GB/s",
        f"lane clock in a race / alone: plain {clocks['autoregressive']:.3f}, "
        f"speculative {clocks['speculative']:.3f}",
    ]
    return "\n".join(lines)


def _own_row(d: dict[str, Any]) -> str:
    """Our speculative decoding against our plain decoding."""
    if not d["counted_prompts"]:
        return f"{d['domain']:<9}{0:>8}  every output loops; nothing counts"
    costs = d["costs"]
    return (
        f"{d['domain']:<9}{len(d['counted_prompts']):>8}{d['best_gamma']:>8}"
        f"{_ratio(d['speedup'], d['speedup_spread']):>22}"
        f"{d['acceptance_rate_gamma_4']:>14.2f}{costs['mean_acceptance_length']:>6.2f}{costs['draft_cost']:>6.2f}"
        f"{costs['verify_cost']:>6.2f}{costs['other_share']:>7.1%}{d['adaptive_over_best']:>14.2f}×"
        f"{'yes' if d['all_outputs_identical'] else 'NO':>11}"
    )


def _other_row(d: dict[str, Any]) -> str:
    """Ours against transformers'."""
    gamma, over = next(iter(d["speculative_over_assisted"].items()))
    return (
        f"{d['domain']:<9}{d['tokens_per_second']['autoregressive']:>16.0f}"
        f"{_ratio(d['autoregressive_over_generate'], d['autoregressive_over_generate_spread']):>22}"
        f"{_ratio(over, d['speculative_over_assisted_spread'][gamma]):>22}"
        f"{d['best_over_assisted_defaults']:>18.2f}×{d['lookup_over_generate_lookup']:>14.2f}×"
    )


def _ratio(value: float, spread: list[float]) -> str:
    return f"{value:.2f}× ({spread[0]:.2f} to {spread[1]:.2f})"


if __name__ == "__main__":
    main()
