"""``python -m specdemo.bench.gpu``: CUDA graphs against eager and against transformers, on one GPU.

With random weights (how a draft comes to agree with its target: ``random_models.py``): how much faster speculative
decoding is by graphs than eagerly, and than transformers' assisted generation at equal γ, on a target of 24 layers
× 896 and a draft of 4, in bfloat16 and in float32, where all must decode the same tokens; and what share of the
memory's bandwidth plain decoding reaches on a bfloat16 model of 4 billion parameters. Contenders take turns, and
every figure is a median with the middle half. Graphs are captured in the first turn, which does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from specdemo.bench.contenders import Contender, Sample, assisted_generate, compared, generate, now, ours, spread
from specdemo.bench.harness import Args, Results, columns, interleaved, run_bench, verdict
from specdemo.bench.random_models import SEED, random_model, random_pair
from specdemo.errors import SpecDemoError
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

GRAPHS, EAGER = "speculative, graphs", "speculative, eager"
PLAIN_GRAPHS, PLAIN_EAGER = "plain, graphs", "plain, eager"
ASSISTED, GENERATE = "transformers assisted", "transformers generate"
SLOWER_TWIN = {GRAPHS: EAGER, EAGER: PLAIN_EAGER, PLAIN_GRAPHS: PLAIN_EAGER, ASSISTED: GENERATE}
"""What a contender is compared with, over whole runs, prefill included."""
SHAPE, DRAFT_LAYERS = "24 layers × 896", 4
OVER_EAGER, OVER_ASSISTED, OF_BANDWIDTH = 2.0, 2.0, 0.7
PROMPT = 64
"""Tokens before the first."""
READ_BYTES = 4_000_000_000
"""Read for a measurement: many times what a GPU caches, and long against a launch."""


def contenders(pair: ModelPair, gamma: int, tokens: int) -> dict[str, Contender]:
    """All ways to decode the same number of tokens."""
    lanes = {GRAPHS: ("speculative", "graphs"), EAGER: ("speculative", "eager")}
    lanes |= {PLAIN_GRAPHS: ("autoregressive", "graphs"), PLAIN_EAGER: ("autoregressive", "eager")}
    found = {
        name: ours(pair, Settings(strategy=strategy, engine=engine, gamma=gamma, max_new_tokens=tokens))
        for name, (strategy, engine) in lanes.items()
    }
    if pair.draft is not None:
        found |= {ASSISTED: assisted_generate(pair, tokens, gamma), GENERATE: generate(pair, tokens)}
    return found


def turns(running: dict[str, Contender], vocabulary: int, repeats: int) -> dict[str, list[Sample]]:
    """All contenders on one prompt of random ids."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(0, vocabulary, (PROMPT,), generator=generator).tolist()
    return interleaved({name: partial(decode, ids) for name, decode in running.items()}, repeats)


def speculation(pair: ModelPair, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Graphs against eager and against transformers on one pair."""
    samples = turns(contenders(pair, gamma, tokens), pair.vocabulary, repeats)

    def figures(name: str, found: list[Sample]) -> dict[str, Any]:
        trace, twin = found[0].trace, SLOWER_TWIN.get(name, name)
        return {
            "contender": name,
            "engine": trace.engine if trace else "",
            "tokens_per_second": median(sample.whole_speed for sample in found),
            "over": twin,
            "ratio": compared(samples[twin], found, whole=True),
            "acceptance_rate": trace and trace.metrics().acceptance_rate,
            "identical": found[0].ids == samples[PLAIN_EAGER][0].ids,
        }

    return {
        "pair": pair.name,
        "dtype": pair.dtype,
        "rows": [figures(name, found) for name, found in samples.items()],
        "graphs_over_assisted": compared(samples[ASSISTED], samples[GRAPHS], whole=True),
    }


def bandwidth_share(pair: ModelPair, tokens: int, repeats: int, bandwidth: float) -> dict[str, Any]:
    """Plain decoding by graphs and eagerly against the time of reading the weights and the cache once a token."""
    every = contenders(pair, 1, tokens)
    samples = turns({name: every[name] for name in (PLAIN_GRAPHS, PLAIN_EAGER)}, pair.vocabulary, repeats)
    bound = step_bytes(pair.target, PROMPT + tokens // 2) / bandwidth
    seconds = {name: median(s.own.metrics().tpot or 0.0 for s in found) for name, found in samples.items()}
    return {
        "model": pair.name,
        "engine": samples[PLAIN_GRAPHS][0].own.engine,
        "seconds_per_token": seconds,
        "bound_seconds": bound,
        "share_of_bandwidth": {name: bound / took for name, took in seconds.items()},
    }


def step_bytes(model: PreTrainedModel, context: int) -> int:
    """Bytes of weights and cache that one forward behind ``context`` tokens cannot do without reading."""
    embeddings = model.get_input_embeddings().weight
    weights = {id(weight): weight for weight in model.parameters()}
    if model.get_output_embeddings().weight is not embeddings:
        weights.pop(id(embeddings), None)  # of which only the fed tokens' rows are read
    shape = model.config
    keys_and_values = 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
    return sum(w.nbytes for w in weights.values()) + context * keys_and_values * model.dtype.itemsize


def read_bandwidth(device: torch.device, size: int = READ_BYTES) -> float:
    """Bytes a second, median: of summing a large tensor or of copying it, whichever is more."""
    numbers = torch.ones(size // 4, device=device)
    copy = torch.empty_like(numbers)
    return max(size / _seconds(numbers.sum, device), 2 * size / _seconds(lambda: copy.copy_(numbers), device))


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The median of seven; the first call warms up and does not count."""
    times = [now(device)]
    for _ in range(8):
        work()
        times.append(now(device))
    return median([after - before for before, after in pairwise(times)][1:])


def verdicts(results: Results) -> Collection[tuple[bool, str]]:
    """What is asked of the figures, and whether they keep it. A figure counts only if graphs really ran."""
    found = []
    for speed in results["speculation"]:
        row = next(row for row in speed["rows"] if row["contender"] == GRAPHS)
        ran, dtype = row["engine"] == "graphs", speed["dtype"]
        bars = {"eager": (row["ratio"], OVER_EAGER), "assisted": (speed["graphs_over_assisted"], OVER_ASSISTED)}
        for other, (ratio, least) in bars.items():
            over = ratio["median"]
            found.append((ran and over >= least, f"{dtype}: {over:.2f}× {other} (at least {least:g}×)"))
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
    "ratio": spread("ratio"),
    "accepted": "{acceptance_rate:.2f}",
    "same ids": "{identical}",
    "engine": "{engine}",
}


def table(results: Results) -> str:
    """The results for people."""
    lines = [f"CUDA {results['cuda']}; memory {results['bandwidth'] / 1e9:,.0f} GB/s"]
    for speed in results["speculation"]:
        lines += ["", f"{speed['pair']}, {speed['dtype']}", columns(COLUMNS, speed["rows"])]
    return "\n".join([*lines, "", *(verdict(*found) for found in verdicts(results))])


def measure(args: Args) -> Results:
    """All figures as plain data."""
    if not torch.cuda.is_available():
        raise SpecDemoError("This measures a GPU, and torch finds none; python -m specdemo.bench measures a CPU.")
    device = torch.device(args.device)
    bandwidth = read_bandwidth(device)
    speeds = []
    for dtype in (torch.bfloat16, torch.float32):
        pair = random_pair(SHAPE, dtype, device, DRAFT_LAYERS, args.later)
        speeds.append(speculation(pair, args.gamma, args.tokens, args.repeats))
        del pair
    plain = None
    if not args.small:
        large = ModelPair(random_model("4B", torch.bfloat16, device), None, None, name="random, 4B")
        plain = bandwidth_share(large, args.tokens, args.repeats, bandwidth)
    found = {"device": str(device), "cuda": torch.version.cuda, "bandwidth": bandwidth}
    return {**found, "speculation": speeds, "plain_4b": plain}


if __name__ == "__main__":
    defaults = {"device": "cuda:0", "gamma": 5, "tokens": 256, "repeats": 5, "later": 0.05}
    run_bench("gpu", __doc__, measure, table, **defaults, small=False)
