"""``python -m specdemo.bench.steps``: what one forward costs, by threads, number type and engine.

A row is one way to run the pair: c is a draft step over a target step, v(γ) a verify of γ+1 tokens over it, as in
the metrics. All ways take turns at every repeat.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from specdemo.bench.traffic import read_bandwidth, step_bytes
from specdemo.decoding.engines.eager import Runner
from specdemo.machine import bfloat16_instructions, machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair

ENGINES = ("auto", "eager")


@dataclass(frozen=True, slots=True)
class Way:
    """How to run a pair."""

    threads: int
    dtype: str
    engine: str


def measure(
    pairs: dict[str, ModelPair], threads: Sequence[int], gammas: Sequence[int], context: int, repeats: int
) -> list[dict[str, Any]]:
    """One row a way; ``pairs`` by number type. The number of threads is put back afterwards."""
    ways = [Way(n, dtype, engine) for n in threads for dtype in pairs for engine in ENGINES]
    before = torch.get_num_threads()
    seconds: dict[tuple[Way, str, int], list[float]] = {}
    try:
        runners = {way: _runners(way, pairs[way.dtype], context) for way in ways}
        for repeat in range(repeats + 1):
            for way in ways:
                torch.set_num_threads(way.threads)
                for role, count in (("draft", 1), ("target", 1), *(("target", g + 1) for g in gammas)):
                    took = _forward_seconds(runners[way][role], count)
                    if repeat:  # the first round warms up
                        seconds.setdefault((way, role, count), []).append(took)
    finally:
        torch.set_num_threads(before)
    return [_row(way, runners[way], seconds, pairs[way.dtype], gammas, context) for way in ways]


def _runners(way: Way, pair: ModelPair, context: int) -> dict[str, Runner]:
    torch.set_num_threads(way.threads)
    models: dict[str, PreTrainedModel] = {"target": pair.target, "draft": pair.draft}
    runners = {role: Runner(model, engine=way.engine) for role, model in models.items()}
    for runner in runners.values():
        runner.forward([17] * context)
    return runners


def _forward_seconds(runner: Runner, count: int) -> float:
    held = runner.length
    began = time.perf_counter()
    runner.forward([17] * count, keep=count)
    took = time.perf_counter() - began
    runner.rollback_to(held)
    return took


def _row(
    way: Way,
    runners: dict[str, Runner],
    seconds: dict[tuple[Way, str, int], list[float]],
    pair: ModelPair,
    gammas: Sequence[int],
    context: int,
) -> dict[str, Any]:
    steps = seconds[way, "target", 1]
    step = median(steps)
    return {
        "threads": way.threads,
        "dtype": way.dtype,
        "engine": runners["target"].engine,
        "target_step": step,
        "target_step_spread": [min(steps), max(steps)],
        "draft_step": median(seconds[way, "draft", 1]),
        # Ratios of one repeat, so that a slow moment of the machine counts on both sides.
        "c": median(d / t for d, t in zip(seconds[way, "draft", 1], steps, strict=True)),
        "v": {g: median(v / t for v, t in zip(seconds[way, "target", g + 1], steps, strict=True)) for g in gammas},
        "bytes": step_bytes(pair.target, context),
        "bytes_per_second": step_bytes(pair.target, context) / step,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.steps", description=__doc__)
    parser.add_argument("--pair", default="builtin")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, torch.get_num_threads()}))
    parser.add_argument(
        "--dtypes",
        nargs="+",
        default=None,
        help="default: float32, and bfloat16 where the CPU has instructions for it",
    )
    parser.add_argument("--gammas", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    dtypes = args.dtypes or ["float32", *(["bfloat16"] if bfloat16_instructions() else [])]
    pairs = {dtype: load_pair(args.pair, device="cpu", dtype=dtype) for dtype in dtypes}
    rows = measure(pairs, args.threads, args.gammas, args.context, args.repeats)
    device = torch.device("cpu")
    results = {
        "date": date.today().isoformat(),
        "machine": machine_of(device),
        "bfloat16": bfloat16_instructions(),
        "pair": args.pair,
        "settings": {"context": args.context, "repeats": args.repeats},
        "read_bandwidth": read_bandwidth(device),
        "ways": rows,
    }
    print(table(results))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    machine, rows = results["machine"], results["ways"]
    gammas = list(rows[0]["v"])
    lines = [
        f"{results['pair']}, {machine['processor']}, torch {machine['torch']}, transformers "
        f"{machine['transformers']}; bfloat16 instructions: {results['bfloat16'] or 'none'}; memory read at "
        f"{results['read_bandwidth'] / 1e9:.1f} GB/s",
        f"milliseconds, median (least to most) of {results['settings']['repeats']} interleaved repeats behind "
        f"{results['settings']['context']} tokens",
        "",
        f"{'threads':>7} {'dtype':<9}{'engine':<13}{'target step':>24}{'GB/s':>6}{'draft step':>11}{'c':>6}"
        + "".join(f"{f'v({g})':>7}" for g in gammas),
    ]
    for row in rows:
        rate = row["bytes_per_second"] / 1e9
        low, high = (1e3 * s for s in row["target_step_spread"])
        step = f"{1e3 * row['target_step']:.2f} ({low:.2f} to {high:.2f})"
        lines.append(
            f"{row['threads']:>7} {row['dtype']:<9}{row['engine']:<13}{step:>24}{rate:>6.1f}"
            f"{1e3 * row['draft_step']:>11.2f}{row['c']:>6.2f}" + "".join(f"{row['v'][g]:>7.2f}" for g in gammas)
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
