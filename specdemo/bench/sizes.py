"""``python -m specdemo.bench.sizes``: models of real size, on a CPU with weights as torch has them and packed.

The models have random weights, since only the times of their forwards matter (``random_models.py``). Two pairs
hold the same weights: one packed, as this project runs a pair that it has loaded, and one as torch has it, which
transformers runs. Verifies are compared with steps of the same weights; speeds are of whole runs, with prefill.
On a GPU (``--device cuda --engines graphs eager``) CUDA graphs, captured before what counts, run against eager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch

from specdemo.bench.contenders import Contender, assisted_generate, compared, generate, now, ours, spread
from specdemo.bench.harness import Args, Results, columns, interleaved, run_bench
from specdemo.bench.random_models import SHAPES, pack_all, random_pair
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.errors import SpecDemoError
from specdemo.models.pair import ModelPair, keeps_states
from specdemo.settings import Settings

PROMPT = range(100, 132)
TOKEN = 17


def measure(args: Args) -> Results:
    if unknown := set(args.sizes) - set(SHAPES):
        raise SpecDemoError(f"--sizes: there is no {', '.join(sorted(unknown))}; choose from {', '.join(SHAPES)}.")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise SpecDemoError("--device: torch finds no GPU; leave it out to measure the CPU.")
    rows = [row for size in args.sizes for dtype in args.dtypes for row in _of_size(size, dtype, args)]
    return {"device": args.device, "rows": rows}


def _of_size(size: str, dtype: str, args: Args) -> list[dict[str, Any]]:
    """One row a number of threads; what runs is opened once and takes turns over all of them."""
    layers = 4 if size == "hybrid" else 2  # of its draft: every fourth of a hybrid's is one of attention
    device = torch.device(args.device)
    plain, packed = (random_pair(size, getattr(torch, dtype), device, layers) for _ in range(2))
    pack_all(packed)
    runners = {"as torch has it": _filled(plain, args.context), "packed": _filled(packed, args.context)}
    first, *others = (
        Settings(engine=engine, gamma=args.gamma, max_new_tokens=args.tokens) for engine in args.engines
    )
    decoders = {
        "plain": ours(packed, replace(first, strategy="autoregressive")),
        "speculative": ours(packed, first),
        "generate": generate(plain, args.tokens),
    }
    decoders |= {f"speculative, {other.engine}": ours(packed, other) for other in others}
    if not keeps_states(plain.target):  # which transformers does not speculate on
        decoders["assisted"] = assisted_generate(plain, args.tokens, args.gamma)
    before = torch.get_num_threads()
    found = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        about = {"size": size, "dtype": dtype, "threads": threads}
        row = about | {"weights": _forwards(runners, args)} | _runs(decoders, args.repeats)
        if keeps_states(packed.target):
            row["states"] = _state_costs(runners["packed"], args)
        found.append(row)
    torch.set_num_threads(before)
    return found


def _filled(pair: ModelPair, context: int) -> EagerRunner:
    runner = EagerRunner(pair.target)
    runner.forward([TOKEN] * context)
    return runner


def seconds_of(runner: EagerRunner, count: int) -> float:
    """The time of a forward of ``count`` tokens, with the logits of all; the runner is as before."""
    length = runner.length
    runner.checkpoint()
    runner.forward([TOKEN])  # which copies states, where there are such; a step behind another does not
    began = now(runner.device)
    runner.forward([TOKEN] * count, keep=count)
    took = now(runner.device) - began
    runner.rollback_to(length)
    return took


def _state_costs(runner: EagerRunner, args: Args) -> dict[str, float]:
    """Milliseconds that states cost a round: to keep and put them back, to copy them, to read tokens again.

    They are copied where a single token follows a checkpoint. Read again, beside the next round's own, are the
    tokens that a rejected round kept: three here, of a draft of ``--gamma``.
    """

    clock = partial(now, runner.device)

    def put_back() -> float:
        began = clock()
        runner.checkpoint()
        kept = clock() - began
        runner.forward([TOKEN] * 2)
        began = clock()
        runner.rollback_to(runner.length - 2)
        return kept + clock() - began

    def copied() -> float:
        began = clock()
        for state in runner._cache.states.values():
            state.clone()
        return clock() - began

    verify, longer = (partial(seconds_of, runner, args.gamma + 1 + again) for again in (0, 3))
    turns: dict[str, Callable[[], float]] = {
        "put back": put_back,
        "copied": copied,
        "again": lambda: longer() - verify(),
        "step": partial(seconds_of, runner, 1),
    }
    found = interleaved(turns, args.repeats, label="states")
    return {name: 1e3 * median(times) for name, times in found.items()}


def _forwards(runners: dict[str, EagerRunner], args: Args) -> dict[str, Any]:
    turns = {(name, n): partial(seconds_of, runner, n) for name, runner in runners.items() for n in args.rows}
    found = interleaved(turns, args.repeats, label="forwards")
    seconds = {form: median(times) for form, times in found.items()}
    return {
        name: {
            "engine": runner.engine,
            "seconds": {n: seconds[name, n] for n in args.rows},
            "v": {n: seconds[name, n] / seconds[name, min(args.rows)] for n in args.rows},
        }
        for name, runner in runners.items()
    }


def _runs(decoders: dict[str, Contender], repeats: int) -> dict[str, Any]:
    runs = interleaved({name: partial(decode, PROMPT) for name, decode in decoders.items()}, repeats, label="runs")
    own = runs["speculative"]
    figures = own[0].own.metrics(runs["plain"][0].own)
    others = {name.partition(", ")[2]: found for name, found in runs.items() if ", " in name}
    return {
        "tokens_per_second": {name: median(s.whole_speed for s in found) for name, found in runs.items()},
        "speedup": compared(runs["plain"], own, whole=True),
        "over_generate": compared(runs["generate"], runs["plain"], whole=True),
        "over_assisted": compared(runs["assisted"], own, whole=True)
        if "assisted" in runs
        else dict.fromkeys(("median", "low", "high")),
        "engine": own[0].own.engine,
        "over_engines": {engine: compared(found, own, whole=True) for engine, found in others.items()},
        "acceptance_rate": figures.acceptance_rate,
        "draft_cost": figures.draft_cost,
        "verify_cost": figures.verify_cost,
        "identical": len({tuple(found[0].ids) for found in runs.values()}) == 1,
    }


NAMES = {"size": "{size}", "dtype": "{dtype}", "threads": "{threads}"}
SPEEDS = NAMES | {
    "plain / `generate`": spread("over_generate"),
    "speculative / assisted `generate`": spread("over_assisted"),
    "speculative / plain": spread("speedup"),
    "accepted": "{acceptance_rate:.2f}",
    "c": "{draft_cost:.2f}",
    "v(γ)": "{verify_cost:.2f}",
    "same ids": "{identical}",
}
STATES = NAMES | {
    "a step": "{states[step]:.0f} ms",
    "states kept and put back": "{states[put back]:.2f} ms",
    "copied": "{states[copied]:.1f} ms",
    "three tokens read again": "{states[again]:.0f} ms",
}


def table(found: Results) -> str:
    """The results for people: milliseconds of forwards, and v of the largest; then whole runs."""
    forwards = [
        {**row, **of, "kind": kind, "ms": {n: 1e3 * s for n, s in of["seconds"].items()}}
        for row in found["rows"]
        for kind, of in row["weights"].items()
    ]
    counts = list(forwards[0]["ms"])
    cells = NAMES | {"weights": "{kind}", **{f"{n} tokens": f"{{ms[{n}]:.0f}}" for n in counts}}
    cells |= {f"v({n - 1})": f"{{v[{n}]:.2f}}" for n in counts if n > 1}
    others = {f"over {name}": spread(f"over_engines[{name}]") for name in found["rows"][0]["over_engines"]}
    engines = {"engine": "{engine}", **others} if others else {}
    tables = [columns(cells, forwards), columns(SPEEDS | engines, found["rows"])]
    if hybrids := [row for row in found["rows"] if "states" in row]:
        tables.append(columns(STATES, hybrids))
    return "\n\n".join(tables)


if __name__ == "__main__":
    models = {"sizes": ["0.6B"], "dtypes": ["float32", "bfloat16"], "threads": [1, 2], "rows": [1, 2, 6, 9]}
    runs = {"gamma": 5, "context": 64, "tokens": 16, "repeats": 5, "device": "cpu", "engines": ["auto"]}
    run_bench("sizes", __doc__, measure, table, **models, **runs)
