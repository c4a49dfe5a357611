"""``python -m specdemo.bench.quantization``: what quantised weights save, cost and change, measured."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import torch

from specdemo.losslessness.compare import compare
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.models.request import QUANTIZATIONS
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import examples
from specdemo.runs.single import run
from specdemo.settings import Settings


def measure(pairs: dict[str, ModelPair], tokens: int, repeats: int, gamma: int) -> dict[str, Any]:
    """Bytes, verdicts and speeds of each way to hold the weights; the ways take turns at every prompt.

    Speeds are ratios of one repeat, medians over the repeats: a plain step against the unquantised one, and
    speculation against plain decoding of the same weights.
    """
    plain = Settings(strategy="autoregressive", max_new_tokens=tokens)
    draft = Settings(gamma=gamma, max_new_tokens=tokens)
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in pairs}
    steps: dict[str, list[float]] = {name: [] for name in pairs}
    speedups: dict[str, list[float]] = {name: [] for name in pairs}
    for _ in range(repeats):
        spent = {name: [0.0, 0] for name in pairs}
        drafted = {name: [0.0, 0] for name in pairs}
        for example in examples():
            for name, pair in pairs.items():
                slow, fast = (run(pair, example.prompt, settings) for settings in (plain, draft))
                verdicts[name][compare(slow, fast).outcome] += 1
                for trace, total in ((slow, spent[name]), (fast, drafted[name])):
                    total[0] += trace.rounds[-1].seconds - trace.rounds[0].seconds
                    total[1] += trace.metrics().emitted
        for name in pairs:
            rates = [count / seconds for seconds, count in (spent[name], drafted[name])]
            steps[name].append(rates[0])
            speedups[name].append(rates[1] / rates[0])
    first = next(iter(pairs))
    return {
        name: {
            **_bytes(pair),
            "verdicts": dict(verdicts[name]),
            "step_speed": median(a / b for a, b in zip(steps[name], steps[first], strict=True)),
            "speedup": median(speedups[name]),
        }
        for name, pair in pairs.items()
    }


def _bytes(pair: ModelPair) -> dict[str, Any]:
    footprints = pair.footprints()
    return {
        "bytes": {role: f.held for role, f in footprints.items()},
        "saved": {role: f.saved for role, f in footprints.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.quantization", description=__doc__)
    parser.add_argument("--pair", default="builtin")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--device", default=None)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    pairs = {
        name: load_pair(args.pair, args.device, args.dtype, target_quantization=name, draft_quantization=name)
        for name in ("none", *QUANTIZATIONS)
    }
    found = measure(pairs, args.tokens, args.repeats, args.gamma)
    for name, figures in found.items():
        saved = ", ".join(f"{role} {share:.0%}" for role, share in figures["saved"].items())
        verdicts = ", ".join(f"{count} {outcome}" for outcome, count in figures["verdicts"].items())
        print(
            f"{name:7} {sum(figures['bytes'].values()) / 1e6:6.1f} MB (saved: {saved}); plain step "
            f"{figures['step_speed']:.2f}× unquantised; speculation {figures['speedup']:.2f}×; {verdicts}"
        )
    if args.json:
        pair = pairs["none"]
        settings = {"dtype": pair.dtype, "gamma": args.gamma, "tokens": args.tokens, "repeats": args.repeats}
        results = {"machine": machine_of(pair.device), "settings": settings, "weights": found}
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
