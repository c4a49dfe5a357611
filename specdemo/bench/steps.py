"""``python -m specdemo.bench.steps``: what one forward costs, by threads, number type and engine.

A row is one way to run the pair: c is a draft step over a target step, v(γ) a verify of γ+1 tokens over it, as in
the metrics. All ways take turns at every repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from specdemo.bench.forwards import EagerRunner, filled_runner, read_bandwidth, seconds_of, step_bytes
from specdemo.bench.harness import Args, Results, columns, extremes, head, interleaved, run_bench, spread
from specdemo.machine import bfloat16_instructions
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair

ENGINES = ("auto", "eager")
Way = tuple[int, str, str]
"""How to run a pair: threads, number type, engine."""


def measure(
    pairs: dict[str, ModelPair], threads: Sequence[int], gammas: Sequence[int], context: int, repeats: int
) -> list[dict[str, Any]]:
    """One row a way; ``pairs`` by number type. The number of threads is put back afterwards."""
    ways: list[Way] = list(product(threads, pairs, ENGINES))
    feeds = [("draft", 1), ("target", 1), *(("target", g + 1) for g in gammas)]
    before = torch.get_num_threads()
    try:
        runners = {
            (way, role): _runner(way, getattr(pairs[way[1]], role), context)
            for way in ways
            for role in ("target", "draft")
        }
        forwards = {
            (way, *feed): partial(_forward_seconds, way, runners[way, feed[0]], feed[1])
            for way in ways
            for feed in feeds
        }
        seconds = interleaved(forwards, repeats)
    finally:
        torch.set_num_threads(before)

    def row(way: Way) -> dict[str, Any]:
        steps = seconds[way, "target", 1]
        size, step = step_bytes(pairs[way[1]].target, context), median(steps)

        def over_step(role: str, count: int) -> float:
            # Ratios of one repeat, so that a slow moment of the machine counts on both sides.
            return median(other / own for other, own in zip(seconds[way, role, count], steps, strict=True))

        return {
            "threads": way[0],
            "dtype": way[1],
            "engine": runners[way, "target"].engine,
            "target_step": step,
            "target_step_spread": extremes(steps),
            "draft_step": median(seconds[way, "draft", 1]),
            "c": over_step("draft", 1),
            "v": {g: over_step("target", g + 1) for g in gammas},
            "bytes": size,
            "bytes_per_second": size / step,
        }

    return [row(way) for way in ways]


def _runner(way: Way, model: PreTrainedModel, context: int) -> EagerRunner:
    torch.set_num_threads(way[0])
    return filled_runner(model, way[2], context)


def _forward_seconds(way: Way, runner: EagerRunner, count: int) -> float:
    torch.set_num_threads(way[0])
    return seconds_of(runner, count)


def results(args: Args) -> Results:
    """All figures as plain data."""
    device = torch.device("cpu")
    pairs = {dtype: load_pair(args.pair, device=device, dtype=dtype) for dtype in args.dtypes}
    return {
        **head(args, device, "context", "repeats"),
        "bfloat16": bfloat16_instructions(),
        "read_bandwidth": read_bandwidth(device),
        "ways": measure(pairs, args.threads, args.gammas, args.context, args.repeats),
    }


COLUMNS = {
    "threads": "{threads}",
    "dtype": "{dtype}",
    "engine": "{engine}",
    "target step": spread("ms", "ms_spread", ""),
    "GB/s": "{rate:.1f}",
    "draft step": "{draft_ms:.2f}",
    "c": "{c:.2f}",
}


def table(found: Results) -> str:
    """The results for people."""
    settings, rows = found["settings"], found["ways"]
    for_people = [
        {
            **row,
            "ms": 1e3 * row["target_step"],
            "ms_spread": [1e3 * s for s in row["target_step_spread"]],
            "draft_ms": 1e3 * row["draft_step"],
            "rate": row["bytes_per_second"] / 1e9,
        }
        for row in rows
    ]
    return (
        f"{found['pair']}; bfloat16 instructions: {found['bfloat16'] or 'none'}; memory read at "
        f"{found['read_bandwidth'] / 1e9:.1f} GB/s\nmilliseconds, median (least to most) of {settings['repeats']} "
        f"interleaved repeats behind {settings['context']} tokens\n\n"
        + columns({**COLUMNS, **{f"v({g})": f"{{v[{g}]:.2f}}" for g in rows[0]["v"]}}, for_people)
    )


if __name__ == "__main__":
    run_bench(
        "steps",
        __doc__,
        results,
        table,
        pair="builtin",
        threads=sorted({1, torch.get_num_threads()}),
        dtypes=["float32", *(["bfloat16"] if bfloat16_instructions() else [])],
        gammas=[1, 2, 4, 8],
        context=64,
        repeats=15,
    )
