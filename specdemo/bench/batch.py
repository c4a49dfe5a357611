"""``python -m specdemo.bench.batch``: drafted batches against plain ones by size, their bookkeeping and memory."""

from __future__ import annotations

import copy
import json
import time
from statistics import median
from typing import Any

import torch

from specdemo.bench.forwards import batch_cache_bytes, forward_seconds
from specdemo.bench.harness import Args, Results, columns, head, load, run_bench, verdict
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import run_batch, stream_batch
from specdemo.runs.batch_sizes import SIZES, batch_sizes
from specdemo.runs.encode import encode_all
from specdemo.runs.prompts import examples
from specdemo.settings import Settings

LEAST_SPEEDUP, MOST_BOOKKEEPING, AT = 1.3, 0.10, 8
ROUNDS, EVERY = 500, 50


class EndlessPair(ModelPair):
    """A pair whose texts never end: an end would cut a measurement short."""

    @property
    def eos_ids(self) -> frozenset[int]:
        return frozenset()


def bookkeeping(pair: ModelPair, prompts: list[str], settings: Settings, repeats: int) -> dict[str, Any]:
    """Share of a batch's time that passes outside model forwards, medians over the repeats.

    ``of_the_clock`` is of the lane clock, on which speeds are measured; ``of_the_wall`` also counts what it leaves
    out, the writing of traces.
    """
    clock, wall = [], []
    for _ in range(repeats):
        with forward_seconds(pair) as forwards:
            began = time.perf_counter()
            traces = run_batch(pair, prompts, settings)
            took = time.perf_counter() - began
        clock.append(1 - sum(forwards) / max(t.rounds[-1].seconds for t in traces))
        wall.append(1 - sum(forwards) / took)
    return {"of_the_clock": median(clock), "of_the_wall": median(wall), "all": clock}


def memory(pair: ModelPair, prompts: list[str], gamma: int) -> list[dict[str, float]]:
    """Bytes of both KV caches for each live token, every 50 rounds, with a draft that is hardly ever right.

    Such rounds keep one token of γ+1 that were computed: if rejected tokens stayed in the caches, memory would
    grow γ+1 times as fast as the text.
    """
    draft = copy.deepcopy(pair.draft)
    with torch.no_grad():
        for weights in draft.parameters():
            weights.copy_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    endless = EndlessPair(pair.target, draft, pair.tokenizer)
    live = sum(map(len, encode_all(pair, prompts)))
    found = []
    with batch_cache_bytes() as allocated:
        rounds = stream_batch(endless, prompts, Settings(gamma=gamma, max_new_tokens=2 * ROUNDS))
        for row, round_ in rounds:
            live += len(round_.emitted)
            if row == len(prompts) - 1 and round_.index and round_.index % EVERY == 0:
                size = allocated()
                found.append(
                    {"round": round_.index, "live_tokens": live, "bytes": size, "bytes_a_token": size / live}
                )
                if round_.index == ROUNDS:
                    break
        rounds.close()
    return found


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    prompts = [example.prompt for example in examples()]
    settings = Settings(gamma=args.gamma, max_new_tokens=args.tokens)
    report = batch_sizes(pair, prompts, settings, args.sizes, args.repeats)
    return {
        **head(args, pair.device, "gamma", "tokens", "repeats", temperature=0),
        "sizes": json.loads(report.to_json())["rows"],
        "conclusion": report.conclusion,
        "bookkeeping": bookkeeping(pair, (prompts * AT)[:AT], settings, args.repeats),
        "memory": memory(pair, prompts[:2], args.gamma),
    }


COLUMNS = {
    "rows": "{size}",
    "plain": "{plain_tokens_per_second:.1f}",
    "drafted": "{tokens_per_second:.1f}",
    "speed-up": "{speedup:.2f}×",
    "τ": "{mean_acceptance_length:.2f}",
    "padding": "{padding:.1%}",
    "idle": "{idle_slots:.1%}",
}


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    sizes, shares = results["sizes"], results["bookkeeping"]
    lines = [columns(COLUMNS, sizes), results["conclusion"]]
    at = next((row["speedup"] for row in sizes if row["size"] == AT), None)
    if at is not None:
        lines.append(verdict(at >= LEAST_SPEEDUP, f"{at:.2f}× with {AT} rows (at least {LEAST_SPEEDUP}×)"))
    outside = (
        f"outside model forwards {shares['of_the_clock']:.1%} of the clock, {shares['of_the_wall']:.1%} with "
        f"traces, {AT} rows (at most {MOST_BOOKKEEPING:.0%})"
    )
    lines.append(verdict(shares["of_the_clock"] <= MOST_BOOKKEEPING, outside))
    by_round = ", ".join(f"{row['bytes_a_token']:.0f} at {row['round']}" for row in results["memory"])
    return "\n".join([*lines, f"bytes of cache for each live token, by round: {by_round}"])


if __name__ == "__main__":
    defaults = {"pair": "builtin", "sizes": list(SIZES), "gamma": 5, "tokens": 64, "repeats": 5, "threads": None}
    run_bench("batch", __doc__, measure, table, **defaults)
