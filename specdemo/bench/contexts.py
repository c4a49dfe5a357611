"""``python -m specdemo.bench.contexts``: what a token costs behind a short and a long text.

A random model of Llama's shape decodes behind contexts of several lengths: with our cache and forward, with our
cache alone, and as transformers does by itself, on its ``DynamicCache``. All three read the same keys and values,
and their logits are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from specdemo.bench.forwards import LaneCache, logits_of, open_runner, read_bandwidth, step_bytes
from specdemo.bench.harness import Args, Results, columns, extremes, head, interleaved, run_bench, spread, verdict
from specdemo.bench.random_models import SEED, random_llama

CONTEXTS = (128, 512, 2048, 8192)
NAMES = OURS, CACHE_ALONE, THEIRS = "ours", "our cache", "transformers"
ENGINES = {OURS: "auto", CACHE_ALONE: "eager"}
LEAST_GAIN = 1.3
FIRST_TOKEN = 17

Decode = Callable[[int], tuple[float, torch.Tensor]]
"""Takes so many greedy steps; median seconds of one, and all logits (n, V). The cache is as before afterwards."""


def contender(name: str, model: PreTrainedModel, context: int) -> Decode:
    """One way to decode, behind a context of random keys and values that all contenders are given."""
    cache = LaneCache() if name in ENGINES else DynamicCache()
    _fill(cache, model, context)
    if name in ENGINES:
        runner = open_runner(model, ENGINES[name], cache)
        return partial(_decode, lambda token: logits_of(runner, [token])[0], lambda _: runner.rollback_to(context))

    def step(token: int) -> torch.Tensor:
        with torch.inference_mode():
            ids = torch.tensor([[token]])
            return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]

    def forget(count: int) -> None:
        for layer in cache.layers:
            layer.crop(-count)

    return partial(_decode, step, forget)


def _decode(
    step: Callable[[int], torch.Tensor], forget: Callable[[int], object], count: int
) -> tuple[float, torch.Tensor]:
    seconds, logits, token = [], [], FIRST_TOKEN
    for _ in range(count):
        began = time.perf_counter()
        logits.append(step(token))
        token = int(logits[-1].argmax())
        seconds.append(time.perf_counter() - began)
    forget(count)
    return median(seconds), torch.stack(logits)


def _fill(cache: Any, model: PreTrainedModel, context: int) -> None:
    config, generator = model.config, torch.Generator().manual_seed(SEED)
    shape = (1, config.num_key_value_heads, context, config.head_dim)
    with torch.inference_mode():
        for layer in range(config.num_hidden_layers):
            cache.update(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator), layer)


def measure(model: PreTrainedModel, contexts: list[int], steps: int, repeats: int) -> list[dict[str, Any]]:
    """A row a context; contenders and contexts take turns."""
    ways = {(c, name): partial(contender(name, model, c), steps) for c in contexts for name in NAMES}
    found = interleaved(ways, repeats)
    seconds = {way: [took for took, _ in runs] for way, runs in found.items()}
    logits = {way: torch.stack([said for _, said in runs]) for way, runs in found.items()}
    return [
        {
            "context": c,
            "seconds": {name: median(seconds[c, name]) for name in NAMES},
            "spread": {name: extremes(seconds[c, name]) for name in NAMES},
            "bytes": step_bytes(model, c),
            "largest_difference": float((logits[c, OURS] - logits[c, THEIRS]).abs().max()),
        }
        for c in contexts
    ]


def conclusion(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Growth of a token's cost against the shortest context, ours and theirs, and the gain at the longest."""
    first, last = rows[0]["seconds"], rows[-1]["seconds"]
    growth = {name: [row["seconds"][name] / first[name] for row in rows] for name in first}
    return {
        "growth": growth,
        "gain_at_longest": last[THEIRS] / last[OURS],
        "no_worse_anywhere": all(row["seconds"][OURS] <= row["seconds"][THEIRS] for row in rows)
        and all(ours <= theirs for ours, theirs in zip(growth[OURS], growth[THEIRS], strict=True)),
    }


def results(args: Args) -> Results:
    """All figures as plain data."""
    contexts = sorted(args.contexts)
    model = random_llama(args.layers, args.width, args.heads, args.groups, 2 * contexts[-1])
    rows = measure(model, contexts, args.steps, args.repeats)
    shape = ("layers", "width", "heads", "groups", "steps", "repeats")
    return {
        **head(args, model.device, *shape, dtype="float32"),
        "read_bandwidth": read_bandwidth(model.device),
        "contexts": rows,
        **conclusion(rows),
    }


COLUMNS = {
    "context": "{context}",
    **{name: spread(f"ms[{name}]", f"ms_spread[{name}]", "") for name in NAMES},
    "GB/s ours": "{rate:.1f}",
    "gain": "{gain:.2f}×",
    "Δ logits": "{largest_difference:.1e}",
}


def table(found: dict[str, Any]) -> str:
    """The results for people."""
    shape, gain = found["settings"], found["gain_at_longest"]
    rows = [
        {
            **row,
            "ms": {name: 1e3 * seconds for name, seconds in row["seconds"].items()},
            "ms_spread": {name: [1e3 * end for end in ends] for name, ends in row["spread"].items()},
            "rate": row["bytes"] / row["seconds"][OURS] / 1e9,
            "gain": row["seconds"][THEIRS] / row["seconds"][OURS],
        }
        for row in found["contexts"]
    ]
    growth = ", ".join(f"{name} {values[-1]:.2f}×" for name, values in found["growth"].items())
    lines = [
        f"{shape['layers']} layers, {shape['width']} wide, {shape['heads']} heads, {shape['groups']} groups, "
        f"float32; memory read at {found['read_bandwidth'] / 1e9:.1f} GB/s; milliseconds a token, "
        f"median (least to most) of {shape['repeats']} interleaved repeats",
        "",
        columns(COLUMNS, rows),
        "",
        f"growth from the shortest to the longest: {growth}",
        verdict(
            gain >= LEAST_GAIN and found["no_worse_anywhere"], f"{gain:.2f}× transformers at the longest context"
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    shape = {"layers": 12, "width": 512, "heads": 8, "groups": 8}
    run_bench(
        "contexts", __doc__, results, table, contexts=list(CONTEXTS), **shape, steps=8, repeats=5, threads=None
    )
