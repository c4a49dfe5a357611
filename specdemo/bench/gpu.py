"""``python -m specdemo.bench.gpu``: CUDA graphs against eager and against transformers, on one GPU.

Four questions, with random weights (how a draft comes to agree with its target: ``random_models.py``): how much
faster speculative decoding is by graphs than eagerly, on a target of 24 layers × 896 and a draft of 4; how much
faster than transformers' assisted generation at equal γ; what share of the memory's bandwidth plain decoding
reaches on a bfloat16 model of 4 billion parameters; whether greedy ids in float32 are eager's. Contenders take
turns, and every figure is a median with the least and the most. Graphs are captured in the first turn, which does
not count. Needs a CUDA device.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from specdemo.bench.contenders import Contender, Samples, assisted_generate, generate, ours
from specdemo.bench.forwards import read_bandwidth, step_bytes
from specdemo.bench.harness import Args, Results, columns, head, interleaved, run_bench, verdict
from specdemo.bench.random_models import SEED, random_4b, random_pair
from specdemo.metrics import Metrics
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

GRAPHS, EAGER = "speculative, graphs", "speculative, eager"
PLAIN_GRAPHS, PLAIN_EAGER = "plain, graphs", "plain, eager"
OURS = (GRAPHS, EAGER, PLAIN_GRAPHS, PLAIN_EAGER)
ASSISTED, GENERATE = "transformers assisted", "transformers generate"
RATIOS = {
    "graphs_over_eager": (EAGER, GRAPHS),
    "graphs_over_assisted": (ASSISTED, GRAPHS),
    "plain_graphs_over_eager": (PLAIN_EAGER, PLAIN_GRAPHS),
    "plain_graphs_over_generate": (GENERATE, PLAIN_GRAPHS),
    "speculative_over_plain": (PLAIN_GRAPHS, GRAPHS),
}
"""How many times faster the second is over whole runs, prefill included."""
OVER_EAGER, OVER_ASSISTED, OF_BANDWIDTH = 2.0, 2.0, 0.7
PROMPT = 64
"""Tokens before the first."""


def prompt(vocabulary: int, length: int = PROMPT) -> list[int]:
    """Random ids."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(0, vocabulary, (length,), generator=generator).tolist()


def contenders(pair: ModelPair, gamma: int, tokens: int) -> dict[str, Contender]:
    """All ways to decode the same number of tokens."""

    def way(strategy: str, engine: str) -> Contender:
        return ours(pair, Settings(strategy=strategy, gamma=gamma, max_new_tokens=tokens, engine=engine))

    return {
        GRAPHS: way("speculative", "graphs"),
        EAGER: way("speculative", "eager"),
        PLAIN_GRAPHS: way("autoregressive", "graphs"),
        PLAIN_EAGER: way("autoregressive", "eager"),
        ASSISTED: assisted_generate(pair, tokens, gamma),
        GENERATE: generate(pair, tokens),
    }


def turns(ways: dict[str, Contender], ids: list[int], repeats: int) -> Samples:
    """All contenders on one prompt; the first repeat, in which graphs are captured, does not count."""
    found = interleaved({name: partial(decode, ids) for name, decode in ways.items()}, repeats)
    return Samples({name: [[sample] for sample in samples] for name, samples in found.items()})


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": median(values), "least": min(values), "most": max(values)}


def speculation(pair: ModelPair, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Graphs against eager and against transformers on one pair, with the acceptance and the engines that ran."""
    samples = turns(contenders(pair, gamma, tokens), prompt(pair.vocabulary), repeats)
    traces = {name: samples.traces(name)[0] for name in OURS}
    figures: dict[str, Metrics] = {name: trace.metrics() for name, trace in traces.items()}
    return {
        "pair": pair.name,
        "dtype": pair.dtype,
        "gamma": gamma,
        "tokens": tokens,
        "engines": {name: trace.engine for name, trace in traces.items()},
        "acceptance_rate": {name: figures[name].acceptance_rate for name in (GRAPHS, EAGER)},
        "mean_acceptance_length": {name: figures[name].mean_acceptance_length for name in (GRAPHS, EAGER)},
        "overhead_share": {name: figures[name].other_share for name in figures},
        "tokens_per_second": {name: samples.tokens_per_second(name) for name in samples.of},
        **{name: _spread(samples.ratios(slow, fast)) for name, (slow, fast) in RATIOS.items()},
    }


def same_ids(pair: ModelPair, gammas: Sequence[int], tokens: int) -> dict[str, Any]:
    """Whether graphs and eager decode the same greedily, plainly and for each γ."""
    ids = prompt(pair.vocabulary)
    eager = ours(pair, Settings(strategy="autoregressive", max_new_tokens=tokens, engine="eager"))(ids).ids
    settings = {"plain": Settings(strategy="autoregressive", max_new_tokens=tokens, engine="graphs")}
    settings |= {f"γ {g}": Settings(gamma=g, max_new_tokens=tokens, engine="graphs") for g in gammas}
    samples = {name: ours(pair, s)(ids) for name, s in settings.items()}
    return {
        "dtype": pair.dtype,
        "tokens": tokens,
        "distinct_tokens": len(set(eager)),
        "identical": {name: sample.ids == eager for name, sample in samples.items()},
        "engines": {name: sample.trace.engine for name, sample in samples.items()},
    }


def bandwidth_share(pair: ModelPair, tokens: int, repeats: int, bandwidth: float) -> dict[str, Any]:
    """Plain decoding by graphs and eagerly against the time of reading the weights and the cache once a token."""
    ways = {name: way for name, way in contenders(pair, 1, tokens).items() if name in (PLAIN_GRAPHS, PLAIN_EAGER)}
    samples = turns(ways, prompt(pair.vocabulary), repeats).of
    bound = step_bytes(pair.target, PROMPT + tokens // 2) / bandwidth
    seconds = {name: [s.trace.metrics().tpot for [s] in runs] for name, runs in samples.items()}
    return {
        "model": pair.name,
        "parameters": sum(p.numel() for p in pair.target.parameters()),
        "dtype": pair.dtype,
        "tokens": tokens,
        "engines": {name: runs[0][0].trace.engine for name, runs in samples.items()},
        "seconds_per_token": {name: _spread(s) for name, s in seconds.items()},
        "bound_seconds": bound,
        "share_of_bandwidth": bound / median(seconds[PLAIN_GRAPHS]),
        "share_of_bandwidth_eager": bound / median(seconds[PLAIN_EAGER]),
    }


def verdicts(results: dict[str, Any]) -> list[tuple[bool, str]]:
    """What is asked of the figures, and whether they keep it. A figure counts only if graphs really ran."""
    speed, plain, same = results["speculation"], results["plain_4b"], results["same_ids"]
    ran = speed["engines"][GRAPHS] == "graphs"
    over_eager, over_assisted = speed["graphs_over_eager"]["median"], speed["graphs_over_assisted"]["median"]
    found = [
        (ran and over_eager >= OVER_EAGER, f"{over_eager:.2f}× eager speculative (at least {OVER_EAGER:g}×)"),
        (
            ran and over_assisted >= OVER_ASSISTED,
            f"{over_assisted:.2f}× transformers' assisted generation at γ {speed['gamma']} "
            f"(at least {OVER_ASSISTED:g}×)",
        ),
    ]
    if plain is not None:
        share = plain["share_of_bandwidth"]
        reached = plain["engines"][PLAIN_GRAPHS] == "graphs" and share >= OF_BANDWIDTH
        found.append((reached, f"{share:.0%} of the bandwidth bound on 4B (at least {OF_BANDWIDTH:.0%})"))
    alike = all(same["identical"].values()) and all(e == "graphs" for e in same["engines"].values())
    found.append((alike, f"greedy ids in {same['dtype']} are eager's: {', '.join(same['identical'])}"))
    return found


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    speed, plain = results["speculation"], results["plain_4b"]
    accepted, rates = speed["acceptance_rate"][GRAPHS], speed["tokens_per_second"]
    lines = [
        f"CUDA {results['cuda']}; memory {results['bandwidth'] / 1e9:,.0f} GB/s",
        f"{speed['pair']}, {speed['dtype']}, γ {speed['gamma']}, {speed['tokens']} tokens, acceptance "
        f"{accepted:.2f}; median (least to most) of {results['repeats']} interleaved repeats",
        "",
        columns(
            {"": "{name}", "tokens/s": "{rate:.0f}", "engine": "{engine}"},
            ({"name": n, "rate": rate, "engine": speed["engines"].get(n, "")} for n, rate in rates.items()),
        ),
        "",
    ]
    line = "{:<28}{median:.2f}× ({least:.2f} to {most:.2f})"
    lines += [line.format(name.replace("_", " "), **speed[name]) for name in RATIOS]
    if plain is not None:
        took = 1e3 * plain["seconds_per_token"][PLAIN_GRAPHS]["median"]
        lines.append(
            f"{plain['parameters'] / 1e9:.1f} billion parameters, {plain['dtype']}: {took:.2f} ms a token, bound "
            f"{1e3 * plain['bound_seconds']:.2f} ms; eager {plain['share_of_bandwidth_eager']:.0%} of it"
        )
    return "\n".join([*lines, "", *(verdict(*found) for found in results["verdicts"])])


def measure(args: Args) -> Results:
    """All figures as plain data."""
    if not torch.cuda.is_available():
        sys.exit("This bench measures a GPU, and torch finds none; python -m specdemo.bench measures a CPU.")
    device = torch.device(args.device)
    exact = random_pair(device, torch.float32, later=args.later)
    results: dict[str, Any] = {
        **head(args, device, "gamma", "tokens", "repeats", "later", "dtype"),
        "cuda": torch.version.cuda,
        "repeats": args.repeats,
        "later": args.later,
        "bandwidth": read_bandwidth(device),
        "same_ids": same_ids(exact, (1, 2, 5, 8), args.tokens),
        "speculation_float32": speculation(exact, args.gamma, args.tokens, args.repeats),
    }
    del exact
    pair = random_pair(device, getattr(torch, args.dtype), later=args.later)
    results["speculation"] = speculation(pair, args.gamma, args.tokens, args.repeats)
    del pair
    results["plain_4b"] = None
    if not args.small:
        large = ModelPair(random_4b(device), None, None, name="random, of the shape of Qwen3-4B")
        results["plain_4b"] = bandwidth_share(large, args.tokens, args.repeats, results["bandwidth"])
    return {**results, "verdicts": verdicts(results)}


def main() -> None:
    """Run the bench."""
    defaults = {"device": "cuda:0", "dtype": "bfloat16", "gamma": 5, "tokens": 256, "repeats": 5, "later": 0.05}
    run_bench("gpu", __doc__, measure, table, **defaults, small=False)


if __name__ == "__main__":
    main()
