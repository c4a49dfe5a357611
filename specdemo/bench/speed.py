"""Speed-ups by domain: every contender on every prompt, interleaved, repeated, medians of ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from specdemo.analysis.repetition import LOOP_GRAM, distinct_share, loops
from specdemo.bench.contenders import (
    Contender,
    Sample,
    Samples,
    alone_seconds,
    assisted_generate,
    generate,
    lookup_generate,
    ours,
    race_seconds,
)
from specdemo.bench.harness import extremes, interleaved
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.prompts import Example
from specdemo.settings import Settings

ACCEPTANCE_GAMMA = 4
PLAIN, GENERATE = "autoregressive", "generate"
ADAPTIVE = "adaptive γ"
ASSISTED_DEFAULT = "assisted, defaults"
LOOKUP, LOOKUP_GENERATE = "prompt lookup", "prompt lookup of generate"
LOOKUP_GAMMA = 8
PARTS = ("", "_spread", "_wall")
"""What a comparison's figures add to its name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: the γ of our contenders, those of transformers' assisted ones, tokens a run, repeats."""

    gammas: Sequence[int]
    assisted_gammas: Sequence[int]
    tokens: int
    repeats: int


@dataclass(slots=True)
class DomainResult(Samples):
    """Samples of one domain, of the prompts that count; ``distinct``: share of distinct 8-grams by prompt."""

    domain: str = ""
    counted: list[str] = field(default_factory=list)
    distinct: dict[str, float] = field(default_factory=dict)

    def acceptance(self, contender: str) -> float | None:
        """Σ accepted / Σ drafted over the counted prompts."""
        metrics = [trace.metrics() for trace in self.traces(contender)]
        return sum(m.accepted for m in metrics) / sum(m.proposed for m in metrics) if metrics else None

    def compared(self, slow: str, fast: str) -> dict[str, Any]:
        """How many times faster ``fast`` is, the least and the most of it, and the same by wall time."""
        wall = self.ratio(slow, fast, "wall_seconds")
        return dict(zip(PARTS, (self.ratio(slow, fast), extremes(self.ratios(slow, fast)), wall), strict=True))

    def costs(self, gamma: int) -> dict[str, float | None]:
        """c, v(γ) and the share of a round outside the models' forwards, medians over the prompts."""
        traces, baselines = self.traces(speculative(gamma)), self.traces(PLAIN)
        if not traces:
            return {}
        figures = [trace.metrics(baseline) for trace, baseline in zip(traces, baselines, strict=True)]
        shares = [m.other_seconds / (m.draft_seconds + m.verify_seconds + m.other_seconds) for m in figures]
        return {
            "gamma": gamma,
            "draft_cost": median(m.draft_cost for m in figures),
            "verify_cost": median(m.verify_cost for m in figures),
            "other_share": median(shares),
            "mean_acceptance_length": median(m.mean_acceptance_length for m in figures),
        }


def speculative(gamma: int) -> str:
    """Name of our speculative contender."""
    return f"speculative γ={gamma}"


def assisted(gamma: int) -> str:
    """Name of transformers' assisted contender."""
    return f"assisted γ={gamma}"


def measure_domain(pair: ModelPair, domain: str, prompts: list[Example], plan: Plan) -> DomainResult:
    """Run all contenders in turn on the prompts whose output does not loop."""
    result = DomainResult(domain=domain)
    contenders, counted = _contenders(pair, plan), []
    for example in prompts:
        ids = encode(pair, example.prompt)
        plain = contenders[PLAIN](ids).ids
        result.distinct[example.title] = distinct_share(plain, LOOP_GRAM)
        if not loops(plain):
            counted.append(ids)
            result.counted.append(example.title)

    def all_prompts(decode: Contender) -> list[Sample]:
        return [decode(ids) for ids in counted]

    ways = {name: partial(all_prompts, decode) for name, decode in contenders.items()}
    result.of = interleaved(ways, plan.repeats, warm_up=0, label=domain)
    return result


def _contenders(pair: ModelPair, plan: Plan) -> dict[str, Contender]:
    tokens = plan.tokens
    lookup = Settings(drafter="prompt_lookup", gamma=LOOKUP_GAMMA, max_new_tokens=tokens)
    return {
        PLAIN: ours(pair, Settings(strategy="autoregressive", max_new_tokens=tokens)),
        GENERATE: generate(pair, tokens),
        **{speculative(g): ours(pair, Settings(gamma=g, max_new_tokens=tokens)) for g in plan.gammas},
        ADAPTIVE: ours(pair, Settings(adaptive_gamma=True, max_new_tokens=tokens)),
        **{assisted(g): assisted_generate(pair, tokens, g) for g in plan.assisted_gammas},
        ASSISTED_DEFAULT: assisted_generate(pair, tokens, None),
        LOOKUP: ours(pair, lookup),
        LOOKUP_GENERATE: lookup_generate(pair, tokens, lookup.gamma, lookup.lookup_ngram),
    }


def summary(result: DomainResult, plan: Plan) -> dict[str, Any]:
    """The figures of one domain as plain data."""
    speedups = {g: result.ratio(PLAIN, speculative(g)) for g in plan.gammas}
    best = max(plan.gammas, key=lambda g: speedups[g] or 0.0)
    over_assisted = {g: result.compared(assisted(g), speculative(g)) for g in plan.assisted_gammas}
    first = {name: [s.ids for s in repeats[0]] for name, repeats in result.of.items()}
    return {
        "domain": result.domain,
        "counted_prompts": result.counted,
        "distinct_8grams": result.distinct,
        "speedup_by_gamma": speedups,
        "best_gamma": best,
        "tokens_per_second": {name: result.tokens_per_second(name) for name in result.of},
        "adaptive_over_best": result.ratio(speculative(best), ADAPTIVE),
        "acceptance_rate_gamma_4": result.acceptance(speculative(ACCEPTANCE_GAMMA)),
        "best_over_assisted_defaults": result.ratio(ASSISTED_DEFAULT, speculative(best)),
        "lookup_over_generate_lookup": result.ratio(LOOKUP_GENERATE, LOOKUP),
        **{f"speedup{part}": figure for part, figure in result.compared(PLAIN, speculative(best)).items()},
        **{f"autoregressive_over_generate{p}": figure for p, figure in result.compared(GENERATE, PLAIN).items()},
        **{f"speculative_over_assisted{p}": {g: over[p] for g, over in over_assisted.items()} for p in PARTS},
        "all_outputs_identical": all(ids == first[PLAIN] for ids in first.values()),
        "costs": result.costs(best),
        "costs_by_gamma": {g: result.costs(g) for g in plan.gammas},
    }


def race_over_alone(pair: ModelPair, prompt: str, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Ratio of the lane clock in a race to the clock of the same lane run alone; medians over the repeats."""
    ids = encode(pair, prompt)
    lanes = {
        "autoregressive": Settings(strategy="autoregressive", max_new_tokens=tokens),
        "speculative": Settings(gamma=gamma, max_new_tokens=tokens),
    }
    ways = {way: partial(way, pair, ids, list(lanes.values())) for way in (alone_seconds, race_seconds)}
    clocks = interleaved(ways, repeats, warm_up=0)
    repeated = zip(clocks[race_seconds], clocks[alone_seconds], strict=True)
    ratios = [[r / a for r, a in zip(raced, alone, strict=True)] for raced, alone in repeated]
    by_lane = dict(zip(lanes, map(list, zip(*ratios, strict=True)), strict=True))
    return {**{lane: median(found) for lane, found in by_lane.items()}, "all": by_lane}
