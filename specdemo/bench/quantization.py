"""``python -m specdemo.bench.quantization``: what quantised weights save, cost and change, measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from specdemo.bench.harness import Args, Results, head, interleaved, load, run_bench
from specdemo.losslessness.compare import compare
from specdemo.models.pair import ModelPair
from specdemo.models.request import QUANTIZATIONS
from specdemo.runs.prompts import examples
from specdemo.runs.single import run
from specdemo.settings import Settings

UNQUANTIZED = "none"


def measure(pairs: dict[str, ModelPair], tokens: int, repeats: int, gamma: int) -> dict[str, Any]:
    """Bytes, verdicts and speeds of each way to hold the weights; the ways take turns at every prompt.

    Speeds are ratios of one repeat, medians over the repeats: a plain step against the unquantised one, and
    speculation against plain decoding of the same weights.
    """
    lanes = [Settings(strategy="autoregressive"), Settings(gamma=gamma)]
    lanes = [replace(settings, max_new_tokens=tokens) for settings in lanes]
    prompts = [example.prompt for example in examples()]
    ways = {(p, name): partial(_both, pair, p, lanes) for p in prompts for name, pair in pairs.items()}
    runs = interleaved(ways, repeats, warm_up=0)
    # In each repeat, tokens a second over all prompts: plain and drafted.
    rates = {name: [_rates([runs[p, name][r][1] for p in prompts]) for r in range(repeats)] for name in pairs}
    of_plain = [plain for plain, _ in rates[UNQUANTIZED]]
    return {
        name: {
            **_bytes(pair),
            "verdicts": dict(Counter(outcome for p in prompts for outcome, _ in runs[p, name])),
            "step_speed": median(plain / other for (plain, _), other in zip(rates[name], of_plain, strict=True)),
            "speedup": median(drafted / plain for plain, drafted in rates[name]),
        }
        for name, pair in pairs.items()
    }


def _both(pair: ModelPair, prompt: str, lanes: list[Settings]) -> tuple[str, list[tuple[int, float]]]:
    """How the two outputs compare; of each, the tokens and the seconds after the prefill."""
    traces = [run(pair, prompt, settings) for settings in lanes]
    spent = [(t.metrics().emitted, t.rounds[-1].seconds - t.rounds[0].seconds) for t in traces]
    return compare(*traces).outcome, spent


def _rates(prompts: list[list[tuple[int, float]]]) -> list[float]:
    """Tokens a second of each lane."""
    return [sum(tokens for tokens, _ in lane) / sum(s for _, s in lane) for lane in zip(*prompts, strict=True)]


def _bytes(pair: ModelPair) -> dict[str, Any]:
    footprints = pair.footprints()
    return {
        "bytes": {role: f.nbytes for role, f in footprints.items()},
        "saved": {role: f.saved for role, f in footprints.items()},
    }


def results(args: Args) -> Results:
    """All figures as plain data."""
    pairs = {
        name: load(args, target_quantization=name, draft_quantization=name)
        for name in (UNQUANTIZED, *QUANTIZATIONS)
    }
    pair = pairs[UNQUANTIZED]
    weights = measure(pairs, args.tokens, args.repeats, args.gamma)
    return {**head(args, pair.device, "gamma", "tokens", "repeats", dtype=pair.dtype), "weights": weights}


def table(found: dict[str, Any]) -> str:
    """The results for people."""
    lines = []
    for name, figures in found["weights"].items():
        saved = ", ".join(f"{role} {share:.0%}" for role, share in figures["saved"].items())
        verdicts = ", ".join(f"{count} {outcome}" for outcome, count in figures["verdicts"].items())
        lines.append(
            f"{name:7} {sum(figures['bytes'].values()) / 1e6:6.1f} MB (saved: {saved}); plain step "
            f"{figures['step_speed']:.2f}× unquantised; speculation {figures['speedup']:.2f}×; {verdicts}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    defaults = {"pair": "builtin", "device": None, "dtype": None, "gamma": 4, "tokens": 32, "repeats": 5}
    run_bench("quantization", __doc__, results, table, **defaults, threads=None)
