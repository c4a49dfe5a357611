"""``python -m specdemo.bench.sizes``: models of real size on a CPU, with weights as torch has them and packed.

The models have random weights, since only the times of their forwards matter (``random_models.py``). Two pairs
hold the same weights: one packed, as this project runs a pair that it has loaded, and one as torch has it, which
transformers runs. A verify is compared with a step of the same weights; speeds are of whole runs, prefill
included. The head is hardly ever right, so of its lane only the cost of a draft step (c) means anything.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import torch

from specdemo.bench.contenders import Contender, Sample, Samples, assisted_generate, generate, ours
from specdemo.bench.forwards import EagerRunner, filled_runner, read_bandwidth, seconds_of, step_bytes
from specdemo.bench.harness import Args, Results, columns, extremes, head, interleaved, run_bench, spread
from specdemo.bench.random_models import CPU, QWEN3, packed, random_qwen3_pair
from specdemo.errors import SpecDemoError
from specdemo.machine import bfloat16_instructions
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

PROMPT = list(range(100, 132))


def measure(args: Args) -> Results:
    """All figures as plain data."""
    if unknown := set(args.sizes) - set(QWEN3):
        raise SpecDemoError(f"--sizes: there is no {', '.join(sorted(unknown))}; choose from {', '.join(QWEN3)}.")
    rows = []
    for size in args.sizes:
        for dtype in args.dtypes:
            pairs = [random_qwen3_pair(size, getattr(torch, dtype)) for _ in range(2)]
            rows += [{"size": size, "dtype": dtype, **row} for row in _measured(*pairs, args)]
            del pairs
    return {
        **head(args, CPU, "tokens", "context", "gamma", "repeats"),
        "bfloat16": bfloat16_instructions(),
        "rows": rows,
    }


def _measured(pair: ModelPair, ours_: ModelPair, args: Args) -> list[dict[str, Any]]:
    """One row a number of threads; what runs is opened once and takes turns over all of them."""
    for model in (ours_.target, ours_.draft, ours_.head):
        packed(model)
    targets = {"as torch has it": pair.target, "packed": ours_.target}
    runners = {weights: filled_runner(target, args.context) for weights, target in targets.items()}
    fields = {"gamma": args.gamma, "max_new_tokens": args.tokens}
    decoders = {
        "plain": ours(ours_, Settings(strategy="autoregressive", **fields)),
        "speculative": ours(ours_, Settings(**fields)),
        "head": ours(ours_, Settings(drafter="eagle3", **fields)),
        "generate": generate(pair, args.tokens),
        "assisted": assisted_generate(pair, args.tokens, args.gamma),
    }
    before = torch.get_num_threads()
    try:
        return [_row(runners, decoders, threads, args) for threads in args.threads]
    finally:
        torch.set_num_threads(before)


def _row(
    runners: dict[str, EagerRunner], decoders: dict[str, Contender], threads: int, args: Args
) -> dict[str, Any]:
    torch.set_num_threads(threads)
    forwards = {(name, n): partial(seconds_of, runner, n) for name, runner in runners.items() for n in args.rows}
    forwards["bandwidth", 0] = partial(read_bandwidth, CPU)
    seconds = interleaved(forwards, args.repeats, label=f"forwards, {threads} threads")
    weights = {}
    for name, runner in runners.items():
        steps = seconds[name, 1]
        size = step_bytes(runner.model, args.context)
        shares = [size / s / b for s, b in zip(steps, seconds["bandwidth", 0], strict=True)]
        weights[name] = {
            "engine": runner.engine,
            "seconds": {n: median(seconds[name, n]) for n in args.rows},
            "v": {n: median(c / s for c, s in zip(seconds[name, n], steps, strict=True)) for n in args.rows},
            "of_bandwidth": median(shares),
        }
    decoded = {name: partial(_one_prompt, decode) for name, decode in decoders.items()}
    runs = Samples(interleaved(decoded, args.repeats, label=f"runs, {threads} threads"))
    plain, draft, head_ = (runs.traces(name)[0] for name in ("plain", "speculative", "head"))
    figures = draft.metrics(plain)
    return {
        "threads": threads,
        "weights": weights,
        "tokens_per_second": {name: runs.tokens_per_second(name) for name in decoders},
        **_compared(runs, "speedup", "plain", "speculative"),
        **_compared(runs, "over_generate", "generate", "plain"),
        **_compared(runs, "over_assisted", "assisted", "speculative"),
        "acceptance_rate": figures.acceptance_rate,
        "draft_cost": figures.draft_cost,
        "head_cost": head_.metrics(plain).draft_cost,
        "verify_cost": figures.verify_cost,
        "other_share": figures.other_share,
        "identical": len({tuple(repeats[0][0].ids) for repeats in runs.of.values()}) == 1,
    }


def _compared(runs: Samples, name: str, slow: str, fast: str) -> dict[str, Any]:
    return {name: runs.ratio(slow, fast), f"{name}_spread": extremes(runs.ratios(slow, fast))}


def _one_prompt(decode: Contender) -> list[Sample]:
    return [decode(PROMPT)]


NAMES = {"size": "{size}", "dtype": "{dtype}", "threads": "{threads}"}
SPEEDS = NAMES | {
    "plain": "{tokens_per_second[plain]:.2f}",
    "speculative": "{tokens_per_second[speculative]:.2f}",
    "speed-up": spread("speedup", "speedup_spread"),
    "plain/generate": spread("over_generate", "over_generate_spread"),
    "spec/assisted": spread("over_assisted", "over_assisted_spread"),
    "accepted": "{acceptance_rate:.2f}",
    "c": "{draft_cost:.2f}",
    "c of the head": "{head_cost:.2f}",
    "v": "{verify_cost:.2f}",
    "other": "{other_share:.1%}",
    "identical": "{identical}",
}


def table(found: Results) -> str:
    """The results for people."""
    settings = found["settings"]
    steps = [
        {**row, **figures, "kind": kind, "ms": {n: 1e3 * s for n, s in figures["seconds"].items()}}
        for row in found["rows"]
        for kind, figures in row["weights"].items()
    ]
    counts = steps[0]["ms"]
    forwards = NAMES | {"weights": "{kind}", **{f"{n} tokens": f"{{ms[{n}]:.0f}}" for n in counts}}
    forwards |= {f"v({n - 1})": f"{{v[{n}]:.2f}}" for n in counts if n > 1} | {"bandwidth": "{of_bandwidth:.0%}"}
    return "\n".join(
        (
            f"random Qwen3 shapes; bfloat16 instructions: {found['bfloat16'] or 'none'}; γ = {settings['gamma']}, "
            f"{settings['tokens']} tokens, medians of {settings['repeats']} interleaved repeats",
            "milliseconds of a forward",
            columns(forwards, steps),
            "tokens a second",
            columns(SPEEDS, found["rows"]),
        )
    )


if __name__ == "__main__":
    run_bench(
        "sizes",
        __doc__,
        measure,
        table,
        sizes=["0.6B", "1.7B"],
        dtypes=["float32", "bfloat16"],
        threads=[1, 2],
        rows=[1, 2, 6, 9],
        gamma=5,
        context=64,
        tokens=16,
        repeats=5,
    )
