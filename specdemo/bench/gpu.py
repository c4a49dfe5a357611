"""``python -m specdemo.bench.gpu``: CUDA graphs against eager and against transformers, on one GPU.

With random weights (how a draft comes to agree with its target: ``random_models.py``): how much faster speculative
decoding is by graphs than eagerly, and than transformers' assisted generation at equal γ, on a target of 24 layers
× 896 and a draft of 4, in bfloat16 and in float32, where all must decode the same tokens. Graphs are captured in
the first turn, which does not count.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from statistics import median
from typing import Any

import torch

from specdemo.bench.contenders import Contender, Sample, assisted_generate, compared, generate, ours, spread
from specdemo.bench.harness import Args, Results, columns, interleaved, run_bench, verdict
from specdemo.bench.random_models import SEED, random_pair
from specdemo.errors import SpecDemoError
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

GRAPHS, EAGER = "speculative, graphs", "speculative, eager"
PLAIN_GRAPHS, PLAIN_EAGER = "plain, graphs", "plain, eager"
ASSISTED, GENERATE = "transformers assisted", "transformers generate"
SLOWER_TWIN = {GRAPHS: EAGER, EAGER: PLAIN_EAGER, PLAIN_GRAPHS: PLAIN_EAGER, ASSISTED: GENERATE}
"""What a contender is compared with, over whole runs, prefill included."""
SHAPE, DRAFT_LAYERS = "24 layers × 896", 4
OVER_EAGER, OVER_ASSISTED = 2.0, 2.0
PROMPT = 64
"""Tokens before the first."""


def contenders(pair: ModelPair, gamma: int, tokens: int) -> dict[str, Contender]:
    lanes = {GRAPHS: ("speculative", "graphs"), EAGER: ("speculative", "eager")}
    lanes |= {PLAIN_GRAPHS: ("autoregressive", "graphs"), PLAIN_EAGER: ("autoregressive", "eager")}
    found = {
        name: ours(pair, Settings(strategy=strategy, engine=engine, gamma=gamma, max_new_tokens=tokens))
        for name, (strategy, engine) in lanes.items()
    }
    return found | {ASSISTED: assisted_generate(pair, tokens, gamma), GENERATE: generate(pair, tokens)}


def speculation(pair: ModelPair, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Graphs against eager and against transformers on one pair, after one prompt of random ids."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(0, pair.vocabulary, (PROMPT,), generator=generator).tolist()
    running = contenders(pair, gamma, tokens)
    samples = interleaved({name: partial(decode, ids) for name, decode in running.items()}, repeats)

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
    lines = [f"CUDA {results['cuda']}"]
    for speed in results["speculation"]:
        lines += ["", f"{speed['pair']}, {speed['dtype']}", columns(COLUMNS, speed["rows"])]
    return "\n".join([*lines, "", *(verdict(*found) for found in verdicts(results))])


def measure(args: Args) -> Results:
    if not torch.cuda.is_available():
        raise SpecDemoError("This measures a GPU, and torch finds none; python -m specdemo.bench measures a CPU.")
    device, speeds = torch.device(args.device), []
    for dtype in (torch.bfloat16, torch.float32):
        pair = random_pair(SHAPE, dtype, device, DRAFT_LAYERS, args.later)
        speeds.append(speculation(pair, args.gamma, args.tokens, args.repeats))
    return {"device": str(device), "cuda": torch.version.cuda, "speculation": speeds}


if __name__ == "__main__":
    defaults = {"device": "cuda:0", "gamma": 5, "tokens": 256, "repeats": 5, "later": 0.05}
    run_bench("gpu", __doc__, measure, table, **defaults)
