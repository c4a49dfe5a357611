"""Speed-ups by domain: every contender on every prompt, interleaved, repeated, medians of ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from specdemo.analysis.repetition import LEAST_DISTINCT, distinct_share
from specdemo.bench.contenders import (
    Contender,
    Sample,
    assisted_generate,
    generate,
    lookup_generate,
    ours,
)
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.prompts import Example
from specdemo.settings import Settings

ACCEPTANCE_GAMMA = 4
ADAPTIVE = "adaptive γ"
ASSISTED_DEFAULT = "assisted, defaults"
LOOKUP, LOOKUP_GENERATE = "prompt lookup", "prompt lookup of generate"
LOOKUP_GAMMA = 8
Log = Callable[[str], None]


@dataclass(slots=True)
class DomainResult:
    """Samples of one domain: ``samples[contender][repeat]`` holds one Sample a counted prompt."""

    domain: str
    counted: list[str] = field(default_factory=list)
    distinct: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[list[Sample]]] = field(default_factory=dict)

    def ratio(self, slow: str, fast: str, clock: str = "seconds") -> float | None:
        """How many times faster ``fast`` is: median over the repeats of the ratio of total times."""
        ratios = self.ratios(slow, fast, clock)
        return median(ratios) if ratios else None

    def ratios(self, slow: str, fast: str, clock: str = "seconds") -> list[float]:
        """The same of every repeat; none if no prompt counts."""
        if not self.counted:
            return []
        pairs = zip(self.samples[slow], self.samples[fast], strict=True)
        return [_total(s, clock) / _total(f, clock) for s, f in pairs]

    def tokens_per_second(self, contender: str) -> float | None:
        """Tokens of all counted prompts over their seconds, prefill included; median over the repeats."""
        if not self.counted:
            return None
        return median(sum(len(s.ids) for s in r) / _total(r, "seconds") for r in self.samples[contender])

    def acceptance(self, contender: str) -> float | None:
        """Σ accepted / Σ drafted over the counted prompts."""
        if not self.counted:
            return None
        metrics = [s.trace.metrics() for s in self.samples[contender][0]]
        return sum(m.accepted for m in metrics) / sum(m.proposed for m in metrics)


def _total(samples: list[Sample], clock: str) -> float:
    return sum(getattr(s, clock) for s in samples)


def speculative(gamma: int) -> str:
    """Name of our speculative contender."""
    return f"speculative γ={gamma}"


def assisted(gamma: int) -> str:
    """Name of transformers' assisted contender."""
    return f"assisted γ={gamma}"


def measure_domain(
    pair: ModelPair,
    domain: str,
    prompts: list[Example],
    gammas: Sequence[int],
    assisted_gammas: Sequence[int],
    tokens: int,
    repeats: int,
    log: Log,
) -> DomainResult:
    """Run all contenders in turn, ``repeats`` times over, on the prompts whose output does not loop."""
    result = DomainResult(domain)
    plain = Settings(strategy="autoregressive", max_new_tokens=tokens)
    counted = []
    for example in prompts:
        ids = encode(pair, example.prompt)
        result.distinct[example.title] = distinct_share(ours(pair, plain)(ids).ids)
        if result.distinct[example.title] >= LEAST_DISTINCT:
            counted.append(ids)
            result.counted.append(example.title)
    lookup = Settings(drafter="prompt_lookup", gamma=LOOKUP_GAMMA, max_new_tokens=tokens)
    contenders: dict[str, Contender] = {
        "autoregressive": ours(pair, plain),
        "generate": generate(pair, tokens),
        **{speculative(g): ours(pair, Settings(gamma=g, max_new_tokens=tokens)) for g in gammas},
        ADAPTIVE: ours(pair, Settings(adaptive_gamma=True, max_new_tokens=tokens)),
        **{assisted(g): assisted_generate(pair, tokens, g) for g in assisted_gammas},
        ASSISTED_DEFAULT: assisted_generate(pair, tokens, None),
        LOOKUP: ours(pair, lookup),
        LOOKUP_GENERATE: lookup_generate(pair, tokens, lookup.gamma, lookup.lookup_ngram),
    }
    for repeat in range(repeats):
        for name, decode in contenders.items():
            result.samples.setdefault(name, []).append([decode(ids) for ids in counted])
        log(f"{domain}: repeat {repeat + 1}/{repeats}")
    return result


def summary(result: DomainResult, gammas: Sequence[int], assisted_gammas: Sequence[int]) -> dict[str, Any]:
    """The figures of one domain as plain data."""
    speedups = {g: result.ratio("autoregressive", speculative(g)) for g in gammas}
    best = max(gammas, key=lambda g: speedups[g] or 0.0)
    first = {n: [s.ids for s in runs[0]] for n, runs in result.samples.items()}
    return {
        "domain": result.domain,
        "counted_prompts": result.counted,
        "distinct_4grams": result.distinct,
        "speedup_by_gamma": speedups,
        "best_gamma": best,
        "speedup": speedups[best],
        "speedup_spread": _spread(result.ratios("autoregressive", speculative(best))),
        "tokens_per_second": {name: result.tokens_per_second(name) for name in result.samples},
        "adaptive_over_best": result.ratio(speculative(best), ADAPTIVE),
        "speedup_wall": result.ratio("autoregressive", speculative(best), "wall_seconds"),
        "acceptance_rate_gamma_4": result.acceptance(speculative(ACCEPTANCE_GAMMA)),
        "autoregressive_over_generate": result.ratio("generate", "autoregressive"),
        "autoregressive_over_generate_spread": _spread(result.ratios("generate", "autoregressive")),
        "autoregressive_over_generate_wall": result.ratio("generate", "autoregressive", "wall_seconds"),
        "speculative_over_assisted": {g: result.ratio(assisted(g), speculative(g)) for g in assisted_gammas},
        "speculative_over_assisted_wall": {
            g: result.ratio(assisted(g), speculative(g), "wall_seconds") for g in assisted_gammas
        },
        "speculative_over_assisted_spread": {
            g: _spread(result.ratios(assisted(g), speculative(g))) for g in assisted_gammas
        },
        "best_over_assisted_defaults": result.ratio(ASSISTED_DEFAULT, speculative(best)),
        "lookup_over_generate_lookup": result.ratio(LOOKUP_GENERATE, LOOKUP),
        "all_outputs_identical": all(ids == first["autoregressive"] for ids in first.values()),
        "costs": _costs(result, best),
        "costs_by_gamma": {g: _costs(result, g) for g in gammas},
    }


def _spread(ratios: list[float]) -> list[float] | None:
    """The least and the most."""
    return [min(ratios), max(ratios)] if ratios else None


def _costs(result: DomainResult, gamma: int) -> dict[str, float | None]:
    """c, v(γ) and the share of a round outside the models' forwards, medians over the prompts."""
    if not result.counted:
        return {}
    baselines = [s.trace for s in result.samples["autoregressive"][0]]
    traces = [s.trace for s in result.samples[speculative(gamma)][0]]
    figures = [t.metrics(b) for t, b in zip(traces, baselines, strict=True)]
    return {
        "gamma": gamma,
        "draft_cost": median(m.draft_cost for m in figures),
        "verify_cost": median(m.verify_cost for m in figures),
        "other_share": median(
            m.other_seconds / (m.draft_seconds + m.verify_seconds + m.other_seconds) for m in figures
        ),
        "mean_acceptance_length": median(m.mean_acceptance_length for m in figures),
    }
