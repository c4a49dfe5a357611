"""``python -m specdemo.bench.sizes``: models of real size on a CPU, with weights as torch has them and packed.

The models have random weights, since only the times of their forwards matter (``random_models.py``). This project
runs copies that are packed as a loaded pair is, transformers runs the models as they are. A verify is compared
with a step of the same weights; speeds are of whole runs, prefill included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from specdemo.bench.contenders import Sample, Samples, assisted_generate, generate, ours
from specdemo.bench.forwards import EagerRunner, filled_runner, read_bandwidth, seconds_of, step_bytes
from specdemo.bench.harness import Args, Results, columns, extremes, head, interleaved, run_bench, spread, verdict
from specdemo.bench.random_models import CPU, QWEN3, random_qwen3
from specdemo.errors import SpecDemoError
from specdemo.machine import bfloat16_instructions
from specdemo.models.packing import pack, unpackable_reason
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

PROMPT = list(range(100, 132))
CHECKED = 6
"""Tokens of the verify that the bars are about: γ = 5."""
BARS = {"v": 1.15, "bandwidth": 0.6, "over_generate": 1.4, "over_assisted": 2.0}


def measure(args: Args) -> Results:
    """All figures as plain data."""
    if unknown := set(args.sizes) - set(QWEN3):
        raise SpecDemoError(f"--sizes: there is no {', '.join(sorted(unknown))}; choose from {', '.join(QWEN3)}.")
    rows = []
    for size in args.sizes:
        for dtype in args.dtypes:
            pair = random_qwen3(size, getattr(torch, dtype))
            rows += [{"size": size, "dtype": dtype, **row} for row in _measured(pair, args)]
            del pair
    return {
        **head(args, CPU, "tokens", "context", "gamma", "repeats"),
        "bfloat16": bfloat16_instructions(),
        "rows": rows,
    }


def _measured(pair: ModelPair, args: Args) -> list[dict[str, Any]]:
    """One row a number of threads; what runs is opened once and takes turns over all of them."""
    packed = copy.deepcopy(pair.target), copy.deepcopy(pair.draft)
    for model in packed:
        if unpackable_reason(model, "cpu", model.dtype) is None:
            pack(model)
    targets = {"as it is": pair.target, "packed": packed[0]}
    runners = {way: filled_runner(target, "auto", args.context) for way, target in targets.items()}
    plain, drafted = (
        ours(ModelPair(*packed), Settings(strategy=s, gamma=args.gamma, max_new_tokens=args.tokens))
        for s in ("autoregressive", "speculative")
    )
    decoders = {
        "plain": plain,
        "speculative": drafted,
        "generate": generate(pair, args.tokens),
        "assisted": assisted_generate(pair, args.tokens, args.gamma),
    }
    before = torch.get_num_threads()
    try:
        return [_row(pair, runners, decoders, threads, args) for threads in args.threads]
    finally:
        torch.set_num_threads(before)


def _row(
    pair: ModelPair,
    runners: dict[str, EagerRunner],
    decoders: dict[str, Callable[[list[int]], Sample]],
    threads: int,
    args: Args,
) -> dict[str, Any]:
    torch.set_num_threads(threads)
    forwards: dict[Any, Callable[[], float]] = {
        (way, count): partial(seconds_of, runner, count) for way, runner in runners.items() for count in args.rows
    }
    forwards["bandwidth"] = partial(read_bandwidth, CPU)
    seconds = interleaved(forwards, args.repeats, label=f"forwards, {threads} threads")
    ways = {}
    for way in runners:
        steps = seconds[way, 1]
        ratios = {n: [c / s for c, s in zip(seconds[way, n], steps, strict=True)] for n in args.rows}
        rates = [step_bytes(pair.target, args.context) / s for s in steps]
        ways[way] = {
            "engine": runners[way].engine,
            "seconds": {n: median(seconds[way, n]) for n in args.rows},
            "v": {n: median(found) for n, found in ratios.items()},
            "v_spread": {n: extremes(found) for n, found in ratios.items()},
            "bytes_per_second": median(rates),
            "of_bandwidth": median(r / b for r, b in zip(rates, seconds["bandwidth"], strict=True)),
        }
    decoded = {n: partial(_all, decode) for n, decode in decoders.items()}
    runs = Samples(interleaved(decoded, args.repeats, label=f"runs, {threads} threads"))
    figures = runs.traces("speculative")[0].metrics(runs.traces("plain")[0])
    return {
        "threads": threads,
        "read_bandwidth": median(seconds["bandwidth"]),
        "ways": ways,
        "tokens_per_second": {name: runs.tokens_per_second(name) for name in decoders},
        **_compared(runs, "speedup", "plain", "speculative"),
        **_compared(runs, "over_generate", "generate", "plain"),
        **_compared(runs, "over_assisted", "assisted", "speculative"),
        "acceptance_rate": figures.acceptance_rate,
        "draft_cost": figures.draft_cost,
        "verify_cost": figures.verify_cost,
        "other_share": figures.other_share,
        "identical": len({tuple(repeats[0][0].ids) for repeats in runs.of.values()}) == 1,
    }


def _compared(runs: Samples, name: str, slow: str, fast: str) -> dict[str, Any]:
    return {name: runs.ratio(slow, fast), f"{name}_spread": extremes(runs.ratios(slow, fast))}


def _all(decode: Callable[[list[int]], Sample]) -> list[Sample]:
    return [decode(PROMPT)]


def table(found: Results) -> str:
    """The results for people."""
    settings = found["settings"]
    names = {"size": "{size}", "dtype": "{dtype}", "threads": "{threads}"}
    steps = [
        {**row, **figures, "way": way, "ms": {n: 1e3 * s for n, s in figures["seconds"].items()}}
        for row in found["rows"]
        for way, figures in row["ways"].items()
    ]
    counts = steps[0]["ms"]
    forwards = {"weights": "{way}", **{f"{n} tokens": f"{{ms[{n}]:.0f}}" for n in counts}}
    forwards |= {f"v({n - 1})": f"{{v[{n}]:.2f}}" for n in counts if n > 1} | {"bandwidth": "{of_bandwidth:.0%}"}
    speeds = {
        "plain": "{tokens_per_second[plain]:.2f}",
        "speculative": "{tokens_per_second[speculative]:.2f}",
        "speed-up": spread("speedup", "speedup_spread"),
        "plain/generate": spread("over_generate", "over_generate_spread"),
        "spec/assisted": spread("over_assisted", "over_assisted_spread"),
        "accepted": "{acceptance_rate:.2f}",
        "c": "{draft_cost:.2f}",
        "v": "{verify_cost:.2f}",
        "other": "{other_share:.1%}",
        "identical": "{identical}",
    }
    return "\n".join(
        (
            f"random Qwen3 shapes; bfloat16 instructions: {found['bfloat16'] or 'none'}; γ = {settings['gamma']}, "
            f"{settings['tokens']} tokens, medians of {settings['repeats']} interleaved repeats",
            "milliseconds of a forward",
            columns(names | forwards, steps),
            "tokens a second",
            columns(names | speeds, found["rows"]),
            *(verdict(kept, claim) for kept, claim in _verdicts(found["rows"])),
        )
    )


def _verdicts(rows: list[dict[str, Any]]) -> list[tuple[bool, str]]:
    packed = [row["ways"]["packed"] for row in rows]
    halves = [row["over_generate"] for row in rows if row["dtype"] == "bfloat16"]
    worst = {
        "v": max(way["v"][CHECKED] for way in packed),
        "bandwidth": min(way["of_bandwidth"] for way in packed),
        "over_generate": min(halves, default=float("inf")),
        "over_assisted": min(row["over_assisted"] for row in rows),
    }
    said = {
        "v": "v({n}) is at most {worst:.2f} (bar {bar})",
        "bandwidth": "a step reads at {worst:.0%} of the memory's bandwidth or more (bar {bar:.0%})",
        "over_generate": "plain decoding in bfloat16 is {worst:.2f} times generate or more (bar {bar})",
        "over_assisted": "speculation is {worst:.2f} times assisted generation or more (bar {bar})",
    }
    return [
        (
            worst[name] <= bar if name == "v" else worst[name] >= bar,
            said[name].format(n=CHECKED - 1, worst=worst[name], bar=bar),
        )
        for name, bar in BARS.items()
    ]


if __name__ == "__main__":
    run_bench(
        "sizes",
        __doc__,
        measure,
        table,
        sizes=["0.6B", "1.7B"],
        dtypes=["float32", "bfloat16"],
        threads=[1, 2],
        rows=[1, 2, 3, CHECKED, 9, 17],
        gamma=5,
        context=64,
        tokens=16,
        repeats=5,
    )
