"""``python -m specdemo.bench.gpu``: CUDA graphs against eager and against transformers, on one GPU.

With random weights (how a draft comes to agree with its target: ``random_models.py``): how much faster speculative
decoding is by graphs than eagerly, and than transformers' assisted generation at equal γ, on a target of 24 layers
× 896 and a draft of 4, in bfloat16 and in float32, where all must decode the same tokens; and what share of the
memory's bandwidth plain decoding reaches on a bfloat16 model of 4 billion parameters. Contenders take turns, and
every figure is a median with the least and the most. Graphs are captured in the first turn, which does not count.
"""

from __future__ import annotations

import sys
from functools import partial
from statistics import median
from typing import Any

import torch

from specdemo.bench.contenders import Contender, Samples, assisted_generate, generate, ours
from specdemo.bench.forwards import read_bandwidth, step_bytes
from specdemo.bench.harness import Args, Results, columns, extremes, head, interleaved, run_bench, spread, verdict
from specdemo.bench.random_models import SEED, random_4b, random_pair
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

GRAPHS, EAGER = "speculative, graphs", "speculative, eager"
PLAIN_GRAPHS, PLAIN_EAGER = "plain, graphs", "plain, eager"
ASSISTED, GENERATE = "transformers assisted", "transformers generate"
SLOWER_TWIN = {GRAPHS: EAGER, EAGER: PLAIN_EAGER, PLAIN_GRAPHS: PLAIN_EAGER, ASSISTED: GENERATE}
"""What a contender is compared with, over whole runs, prefill included."""
OVER_EAGER, OVER_ASSISTED, OF_BANDWIDTH = 2.0, 2.0, 0.7
PROMPT = 64
"""Tokens before the first."""


def contenders(pair: ModelPair, gamma: int, tokens: int) -> dict[str, Contender]:
    """All ways to decode the same number of tokens."""
    fields = {"gamma": gamma, "max_new_tokens": tokens}
    lanes = {GRAPHS: ("speculative", "graphs"), EAGER: ("speculative", "eager")}
    lanes |= {PLAIN_GRAPHS: ("autoregressive", "graphs"), PLAIN_EAGER: ("autoregressive", "eager")}
    return {
        **{name: ours(pair, Settings(strategy=s, engine=e, **fields)) for name, (s, e) in lanes.items()},
        ASSISTED: assisted_generate(pair, tokens, gamma),
        GENERATE: generate(pair, tokens),
    }


def turns(ways: dict[str, Contender], vocabulary: int, repeats: int) -> Samples:
    """All contenders on one prompt of random ids."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(0, vocabulary, (PROMPT,), generator=generator).tolist()
    found = interleaved({name: partial(decode, ids) for name, decode in ways.items()}, repeats)
    return Samples({name: [[sample] for sample in samples] for name, samples in found.items()})


def speculation(pair: ModelPair, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Graphs against eager and against transformers on one pair."""
    samples = turns(contenders(pair, gamma, tokens), pair.vocabulary, repeats)
    plain = samples.of[PLAIN_EAGER][0][0].ids

    def figures(name: str) -> dict[str, Any]:
        [sample] = samples.of[name][0]
        metrics = sample.trace and sample.trace.metrics()
        twin = SLOWER_TWIN.get(name, name)
        return {
            "contender": name,
            "engine": sample.trace.engine if sample.trace else "",
            "tokens_per_second": samples.tokens_per_second(name),
            "over": twin,
            "ratio": samples.ratio(twin, name),
            "spread": extremes(samples.ratios(twin, name)),
            "acceptance_rate": metrics and metrics.acceptance_rate,
            "identical": sample.ids == plain,
        }

    return {
        "pair": pair.name,
        "dtype": pair.dtype,
        "rows": [figures(name) for name in samples.of],
        "graphs_over_assisted": samples.ratio(ASSISTED, GRAPHS),
    }


def bandwidth_share(pair: ModelPair, tokens: int, repeats: int, bandwidth: float) -> dict[str, Any]:
    """Plain decoding by graphs and eagerly against the time of reading the weights and the cache once a token."""
    ways = {name: way for name, way in contenders(pair, 1, tokens).items() if name in (PLAIN_GRAPHS, PLAIN_EAGER)}
    samples = turns(ways, pair.vocabulary, repeats)
    bound = step_bytes(pair.target, PROMPT + tokens // 2) / bandwidth
    seconds = {name: median(s.trace.metrics().tpot for [s] in runs) for name, runs in samples.of.items()}
    return {
        "model": pair.name,
        "engine": samples.traces(PLAIN_GRAPHS)[0].engine,
        "seconds_per_token": seconds,
        "bound_seconds": bound,
        "share_of_bandwidth": {name: bound / took for name, took in seconds.items()},
    }


def verdicts(results: Results) -> list[tuple[bool, str]]:
    """What is asked of the figures, and whether they keep it. A figure counts only if graphs really ran."""
    found = []
    for speed in results["speculation"]:
        row = next(row for row in speed["rows"] if row["contender"] == GRAPHS)
        ran, dtype, over = row["engine"] == "graphs", speed["dtype"], speed["graphs_over_assisted"]
        found += [
            (ran and row["ratio"] >= OVER_EAGER, f"{dtype}: {row['ratio']:.2f}× eager (at least {OVER_EAGER:g}×)"),
            (ran and over >= OVER_ASSISTED, f"{dtype}: {over:.2f}× assisted (at least {OVER_ASSISTED:g}×)"),
        ]
        if dtype == "float32":
            same = ran and all(each["identical"] for each in speed["rows"])
            found.append((same, f"{dtype}: all contenders decode the same tokens"))
    if plain := results["plain_4b"]:
        share = plain["share_of_bandwidth"][PLAIN_GRAPHS]
        kept = plain["engine"] == "graphs" and share >= OF_BANDWIDTH
        found.append((kept, f"4B: {share:.0%} of the bandwidth bound (at least {OF_BANDWIDTH:.0%})"))
    return found


COLUMNS = {
    "": "{contender}",
    "tokens/s": "{tokens_per_second:.0f}",
    "over": "{over}",
    "ratio": spread("ratio", "spread"),
    "accepted": "{accepted}",
    "same ids": "{identical}",
    "engine": "{engine}",
}


def table(results: Results) -> str:
    """The results for people."""
    lines = [f"CUDA {results['cuda']}; memory {results['bandwidth'] / 1e9:,.0f} GB/s"]
    for speed in results["speculation"]:
        rates = [row["acceptance_rate"] for row in speed["rows"]]
        cells = ["" if rate is None else f"{rate:.2f}" for rate in rates]
        rows = [{**row, "accepted": cell} for row, cell in zip(speed["rows"], cells, strict=True)]
        lines += ["", f"{speed['pair']}, {speed['dtype']}", columns(COLUMNS, rows)]
    return "\n".join([*lines, "", *(verdict(*found) for found in verdicts(results))])


def measure(args: Args) -> Results:
    """All figures as plain data."""
    if not torch.cuda.is_available():
        sys.exit("This bench measures a GPU, and torch finds none; python -m specdemo.bench measures a CPU.")
    device = torch.device(args.device)
    results: Results = {
        **head(args, device, "gamma", "tokens", "repeats", "later"),
        "cuda": torch.version.cuda,
        "bandwidth": read_bandwidth(device),
        "speculation": [],
        "plain_4b": None,
    }
    for dtype in (torch.bfloat16, torch.float32):
        pair = random_pair(device, dtype, later=args.later)
        results["speculation"].append(speculation(pair, args.gamma, args.tokens, args.repeats))
        del pair
    if not args.small:
        large = ModelPair(random_4b(device), None, None, name="random, of the shape of Qwen3-4B")
        results["plain_4b"] = bandwidth_share(large, args.tokens, args.repeats, results["bandwidth"])
    return results


def main() -> None:
    """Run the bench."""
    defaults = {"device": "cuda:0", "gamma": 5, "tokens": 256, "repeats": 5, "later": 0.05}
    run_bench("gpu", __doc__, measure, table, **defaults, small=False)


if __name__ == "__main__":
    main()
