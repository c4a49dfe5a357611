"""``python -m specdemo.bench.drafting``: prompt lookup with and without repetition, and block against sampling."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import examples
from specdemo.runs.single import run
from specdemo.runs.warm_up import warm_up
from specdemo.settings import Settings
from specdemo.trace import Trace

REPEATING = (
    "    def red(self):\n        return self.x\n\n" * 5 + "    def",
    "        self.assertEqual(a, b)\n" * 6 + "        self.",
    "The cat sat on the mat. The dog sat on the mat. " * 4 + "The cat",
)
"""Texts built to repeat; taken without the chat template, so that the target goes on with them."""


def lookup_speedup(pair: ModelPair, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Decode speed of prompt lookup over autoregressive on the repeating texts, medians over the repeats."""
    plain = Settings(strategy="autoregressive", max_new_tokens=tokens, chat=False)
    lookup = Settings(drafter="prompt_lookup", gamma=gamma, max_new_tokens=tokens, chat=False)
    ratios = []
    for _ in range(repeats):
        seconds = [0.0, 0.0]
        for text in REPEATING:
            ids = encode(pair, text, chat=False)
            for i, settings in enumerate((plain, lookup)):
                seconds[i] += run(pair, ids, settings).rounds[-1].seconds
        ratios.append(seconds[0] / seconds[1])
    return {"gamma": gamma, "tokens": tokens, "speedup": median(ratios), "all": ratios}


def lookup_overhead(pair: ModelPair, tokens: int, repeats: int) -> dict[str, Any]:
    """Time of the rounds in which nothing matched, over autoregressive steps at the same places, minus 1."""
    longest = Settings(drafter="prompt_lookup", max_new_tokens=tokens)
    plain = Settings(strategy="autoregressive", max_new_tokens=tokens)
    ratios, counted = [], 0
    for _ in range(repeats):
        spent, would = 0.0, 0.0
        counted = 0
        for example in examples():
            ids = encode(pair, example.prompt)
            steps = run(pair, ids, plain)
            durations = _durations(steps)
            trace = run(pair, ids, longest)
            place = 0
            for round_, seconds in zip(trace.rounds, _durations(trace), strict=True):
                if round_.index and not round_.drafted and place < len(durations):
                    spent += seconds
                    would += durations[place]
                    counted += 1
                place += len(round_.emitted)
        ratios.append(spent / would - 1)
    return {"rounds_without_match": counted, "overhead": median(ratios), "all": ratios}


def _durations(trace: Trace) -> list[float]:
    return [r.draft_seconds + r.verify_seconds + r.other_seconds for r in trace.rounds]


def block_over_sampling(pair: ModelPair, gamma: int, tokens: int, runs: int) -> dict[str, Any]:
    """Mean tokens a round at temperature 1, both rules on the same prompts and seeds."""
    prompts = [encode(pair, e.prompt) for e in examples()]
    means: dict[str, list[float]] = {"sampling": [], "block": []}
    for number in range(runs):
        ids = prompts[number % len(prompts)]
        base = Settings(acceptance="sampling", temperature=1.0, gamma=gamma, max_new_tokens=tokens, seed=number)
        for rule, lengths in means.items():
            tau = run(pair, ids, replace(base, acceptance=rule)).metrics().mean_acceptance_length
            if tau is not None:
                lengths.append(tau)
    return {"gamma": gamma, "tokens": tokens, "runs": runs, **{rule: mean(v) for rule, v in means.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.drafting", description=__doc__)
    parser.add_argument("--pair", default="builtin")
    parser.add_argument("--gamma", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=200, help="runs of each sampling rule")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    pair = load_pair(args.pair)
    warm_up(pair)
    results = {
        "machine": machine_of(pair.device),
        "lookup_on_repeating_text": lookup_speedup(pair, args.gamma, args.tokens, args.repeats),
        "lookup_without_match": lookup_overhead(pair, args.tokens, args.repeats),
        "block_over_sampling": block_over_sampling(pair, 5, 32, args.runs),
    }
    block = results["block_over_sampling"]
    print(f"prompt lookup on repeating text: {results['lookup_on_repeating_text']['speedup']:.2f}× autoregressive")
    print(f"prompt lookup where nothing matches: {results['lookup_without_match']['overhead']:+.1%} a step")
    print(f"tokens a round at temperature 1: block {block['block']:.3f}, sampling {block['sampling']:.3f}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
