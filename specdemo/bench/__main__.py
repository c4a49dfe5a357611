"""``python -m specdemo.bench``: speed-ups by domain, and speeds against those of transformers."""

from __future__ import annotations

from typing import Any

from specdemo.bench.forwards import read_bandwidth, step_bytes
from specdemo.bench.harness import Args, Results, columns, head, load, median_of, run_bench, spread
from specdemo.bench.speed import ACCEPTANCE_GAMMA, Plan, measure_domain, race_over_alone, summary
from specdemo.models.pair import ModelPair
from specdemo.runs.prompts import by_domain
from specdemo.runs.single import run
from specdemo.settings import Settings


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    gammas = sorted({*args.gammas, *args.assisted_gammas, ACCEPTANCE_GAMMA})
    plan = Plan(gammas, args.assisted_gammas, args.tokens, args.repeats)
    prompts = by_domain()
    first = next(iter(prompts.values()))[0].prompt
    plain = run(pair, first, Settings(strategy="autoregressive", max_new_tokens=args.tokens))
    domains = [summary(measure_domain(pair, d, p[: args.prompts], plan), plan) for d, p in prompts.items()]
    over_assisted = (next(iter(d["speculative_over_assisted"].values()), None) for d in domains)
    return {
        **head(args, pair.device, "tokens", "repeats", temperature=0),
        "dtype": pair.dtype,
        "engine": plain.engine,
        "memory": memory_traffic(pair, domains, args.tokens),
        "median_over_assisted": median_of(over_assisted),
        "median_over_generate": median_of(d["autoregressive_over_generate"] for d in domains),
        "median_speedup": median_of(d["speedup"] for d in domains),
        "median_acceptance_rate_gamma_4": median_of(d["acceptance_rate_gamma_4"] for d in domains),
        "domains": domains,
        "race_over_alone": race_over_alone(pair, first, ACCEPTANCE_GAMMA, args.tokens, args.repeats),
    }


def memory_traffic(pair: ModelPair, domains: list[dict[str, Any]], tokens: int) -> dict[str, float]:
    """Bytes that a plain step must read, and reads a second, against what the memory delivers."""
    step = step_bytes(pair.target, tokens)
    rate = median_of(d["tokens_per_second"]["autoregressive"] for d in domains) or 0.0
    return {"step_bytes": step, "bytes_per_second": step * rate, "read_bandwidth": read_bandwidth(pair.device)}


OWN = {
    "domain": "{domain}",
    "prompts": "{prompts}",
    "best γ": "{best_gamma}",
    "speed-up": spread("speedup", "speedup_spread"),
    "accepted γ=4": "{acceptance_rate_gamma_4:.2f}",
    "τ": "{costs[mean_acceptance_length]:.2f}",
    "c": "{costs[draft_cost]:.2f}",
    "v(γ)": "{costs[verify_cost]:.2f}",
    "other": "{costs[other_share]:.1%}",
    "adaptive/best": "{adaptive_over_best:.2f}×",
    "identical": "{identical}",
}
"""Our speculative decoding against our plain decoding."""
OTHER = {
    "domain": "{domain}",
    "plain tokens/s": "{tokens_per_second[autoregressive]:.0f}",
    "plain/generate": spread("autoregressive_over_generate", "autoregressive_over_generate_spread"),
    "spec/assisted": spread("over_assisted", "over_assisted_spread"),
    "best/its defaults": "{best_over_assisted_defaults:.2f}×",
    "lookup/lookup": "{lookup_over_generate_lookup:.2f}×",
}
"""Ours against transformers'."""


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    memory, clocks, settings = results["memory"], results["race_over_alone"], results["settings"]
    counted = [_row(d) for d in results["domains"] if d["counted_prompts"]]
    lines = [
        f"{results['pair']}, {results['dtype']}, {results['engine']} engine; "
        f"greedy, {settings['tokens']} tokens, median of {settings['repeats']} interleaved runs (least to most)",
        "",
        columns(OWN, counted),
        *(f"{d['domain']}: all outputs loop" for d in results["domains"] if not d["counted_prompts"]),
        "",
        columns(OTHER, counted),
    ]
    if counted:
        lines += [
            "",
            f"medians over the domains: speed-up {results['median_speedup']:.2f}×, plain/generate "
            f"{results['median_over_generate']:.2f}×, spec/assisted {results['median_over_assisted']:.2f}×, "
            f"acceptance rate at γ=4 {results['median_acceptance_rate_gamma_4']:.2f}",
        ]
    lines += [
        f"a plain step reads {memory['step_bytes'] / 1e6:.0f} MB, {memory['bytes_per_second'] / 1e9:.1f} GB/s; "
        f"memory was read at {memory['read_bandwidth'] / 1e9:.1f} GB/s",
        f"lane clock in a race / alone: plain {clocks['autoregressive']:.3f}, "
        f"speculative {clocks['speculative']:.3f}",
    ]
    return "\n".join(lines)


def _row(domain: dict[str, Any]) -> dict[str, Any]:
    gamma = next(iter(domain["speculative_over_assisted"]))
    return {
        **domain,
        "prompts": len(domain["counted_prompts"]),
        "identical": "yes" if domain["all_outputs_identical"] else "NO",
        "over_assisted": domain["speculative_over_assisted"][gamma],
        "over_assisted_spread": domain["speculative_over_assisted_spread"][gamma],
    }


if __name__ == "__main__":
    run_bench(
        "",
        __doc__,
        measure,
        table,
        pair="builtin",
        device=None,
        dtype=None,
        gammas=[2, 3, 4, 5, 6, 8],
        assisted_gammas=[4],
        tokens=128,
        repeats=5,
        prompts=4,
        threads=None,
    )
