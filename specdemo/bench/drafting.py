"""``python -m specdemo.bench.drafting``: prompt lookup with and without repetition, and block against sampling."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import mean, median
from typing import Any

from specdemo.bench.contenders import alone_seconds
from specdemo.bench.harness import Args, Results, head, interleaved, load, run_bench
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.prompts import examples
from specdemo.runs.single import run
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
    lanes = [
        Settings(strategy="autoregressive", max_new_tokens=tokens, chat=False),
        Settings(drafter="prompt_lookup", gamma=gamma, max_new_tokens=tokens, chat=False),
    ]
    texts = {text: partial(alone_seconds, pair, text, lanes) for text in REPEATING}
    ratios = []
    for repeat in zip(*interleaved(texts, repeats).values(), strict=True):
        plain, lookup = map(sum, zip(*repeat, strict=True))
        ratios.append(plain / lookup)
    return {"gamma": gamma, "tokens": tokens, "speedup": median(ratios), "all": ratios}


def lookup_overhead(pair: ModelPair, tokens: int, repeats: int) -> dict[str, Any]:
    """Time of the rounds in which nothing matched, over autoregressive steps at the same places, minus 1."""
    lanes = [
        Settings(strategy="autoregressive", max_new_tokens=tokens, ignore_eos=True),
        Settings(drafter="prompt_lookup", max_new_tokens=tokens, ignore_eos=True),
    ]
    ratios = []
    for _ in range(repeats):
        spent: list[float] = []
        steps: list[float] = []
        for example in examples():
            plain, lookup = (run(pair, example.prompt, settings) for settings in lanes)
            durations, place = _durations(plain), 0
            for round_, seconds in zip(lookup.rounds, _durations(lookup), strict=True):
                if round_.index and not round_.drafted and place < len(durations):
                    spent.append(seconds)
                    steps.append(durations[place])
                place += len(round_.emitted)
        ratios.append(sum(spent) / sum(steps) - 1)
    return {"rounds_without_match": len(spent), "overhead": median(ratios), "all": ratios}


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


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    return {
        **head(args, pair.device, "gamma", "tokens", "repeats", "runs"),
        "lookup_on_repeating_text": lookup_speedup(pair, args.gamma, args.tokens, args.repeats),
        "lookup_without_match": lookup_overhead(pair, args.tokens, args.repeats),
        "block_over_sampling": block_over_sampling(pair, 5, 32, args.runs),
    }


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    block = results["block_over_sampling"]
    return (
        f"prompt lookup on repeating text: {results['lookup_on_repeating_text']['speedup']:.2f}× autoregressive\n"
        f"prompt lookup where nothing matches: {results['lookup_without_match']['overhead']:+.1%} a step\n"
        f"tokens a round at temperature 1: block {block['block']:.3f}, sampling {block['sampling']:.3f}"
    )


if __name__ == "__main__":
    defaults = {"pair": "builtin", "gamma": 8, "tokens": 64, "repeats": 5, "runs": 200, "threads": None}
    run_bench("drafting", __doc__, measure, table, **defaults)
