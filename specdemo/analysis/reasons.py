"""Why a lane that drafts is fast or slow: a table of reasons, and a remark on heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING

from specdemo.analysis.wording import LEVEL, factor, pace, trend_of
from specdemo.drafters import in_a_row
from specdemo.metrics import Metrics, counts_of
from specdemo.models.request import catalog
from specdemo.theory import expected_speedup, verify_cost
from specdemo.trace import Trace

if TYPE_CHECKING:
    from specdemo.analysis.speedup import Speedup

BETTER = 1.05
"""A smaller γ is only advised if it promises that much more; below it a round keeps hardly anything."""
MUCH_OVERHEAD, FEW_DRAFTS, COSTLY_DRAFT, COSTLY_CHECK, LEAST_ROUNDS = 0.2, 0.35, 0.3, 1.6, 3
LEAST_CHECK = 0.9
"""No target checks several tokens in less than one step; a measured v(γ) below this is an accident of timing."""
HEALTHY, LEAST_HELD = (0.40, 0.20, 0.10), 8
"""Share of rounds that keep a head's first, second and third drafted token and all before it, greedily in chains:
thresholds of the nightly tests of vllm-project/speculators (Llama 3.1 8B with the head of EAGLE-3's authors), and
rounds of a lane from which on it is held against them, and another γ is advised."""
SMALLER = {
    None: "a smaller draft",
    "draft": "a smaller draft",
    "head": "a head with a smaller draft vocabulary",
    "mtp": "prompt lookup, whose drafts cost nothing",
}
"""What drafts more cheaply, by what drafted; a head comes in one size."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured of a lane, and the speed-up that follows from it.

    Attributes:
        found: its decode speed over the baseline's, as the headline has it.
        tau, rate: mean acceptance length and acceptance rate; None where a server does not say.
        drafting: share of the rounds in which anything was drafted.
        gamma, longest: drafted tokens a round, in the mean and in most rounds.
        c, v: cost of a draft step and of checking ``longest`` + 1 tokens, in single target steps; of a tree those
            of drafting and of checking it whole.
        predicted: the speed-up that acceptance and costs lead to, with what goes outside the models.
        overhead: share of the time outside model forwards.
        quantization: of the target's weights.
        needs: what drafted, a key of ``drafters.PARTS``; None where nothing that a pair has.
        shorter: a smaller γ and the speed-up it promises, if that is clearly more.
        server: whether it ran on a server, of which only the clock is known.
        saved: of a lane of trees what second guesses added, as a sentence.
    """

    found: Speedup
    tau: float | None = None
    rate: float | None = None
    drafting: float = 1.0
    gamma: float = 1.0
    longest: int = 0
    c: float = 0.0
    v: float = 1.0
    predicted: float = 1.0
    overhead: float = 0.0
    quantization: str | None = None
    needs: str | None = None
    shorter: tuple[int, float] | None = None
    server: bool = False
    saved: str = ""

    @property
    def pays(self) -> bool:
        """As the headline says."""
        return trend_of(self.found.ratio) == "faster"

    @property
    def explained(self) -> bool:
        """Whether the prediction is within the interval; speeds within ``LEVEL`` of each other are the same."""
        found, same = self.found, 1 + LEVEL
        low, high = (end or found.ratio for end in (found.low, found.high))
        return min(low, found.ratio / same) <= self.predicted <= max(high, found.ratio * same)

    @property
    def hopeless(self) -> bool:
        """Whether a round costs more than it gives even if every drafted token is kept."""
        return 0 < self.longest <= self.longest * self.c + self.v - 1

    @property
    def needed(self) -> float:
        """The τ from which on a round pays: its cost in plain steps, measured, or of a chain by its parts."""
        measured = self.server or self.saved
        return (self.tau or 0.0) / self.found.ratio if measured else self.gamma * self.c + self.v


REASONS: tuple[tuple[Callable[[Evidence], bool], str], ...] = (
    (lambda e: not e.drafting, "{pace}: nothing was drafted, so every round was a plain step."),
    (lambda e: e.rate is None, "{pace} by the client's clock; the server does not say what it drafted and kept."),
    (
        lambda e: bool(e.found.doubt) or e.v < LEAST_CHECK,
        "the times of this run were not steady, so it cannot say why; {kept}.",
    ),
    (
        lambda e: e.found.open and trend_of(e.found.ratio) != "even",
        "cannot be told apart from {name} by one run; {kept}.",
    ),
    (
        lambda e: e.server and not e.pays and e.drafting > FEW_DRAFTS,
        "{pace} because a round takes as long as {e.needed:.1f} plain steps, and {kept}: it pays from τ "
        "{e.needed:.1f} on. Try {other_draft}.",
    ),
    (
        lambda e: e.server and e.pays,
        "{pace} because {kept}, and a round takes as long as {e.needed:.1f} plain steps.",
    ),
    (
        lambda e: e.saved != "",
        "{pace} because a round keeps {e.tau:.2f} tokens and takes {e.needed:.2f} plain steps: {e.c:.2f} for "
        "drafting (a tree of {e.longest} tokens), {e.v:.2f} for checking. {e.saved}{smaller_tree}",
    ),
    (
        lambda e: not e.server and not e.explained,
        "{pace}, where {kept}; {costs}. That would give {predicted}, so it is not the whole reason.",
    ),
    (
        lambda e: not e.pays and e.overhead >= MUCH_OVERHEAD and not e.hopeless,
        "{pace} because {e.overhead:.0%} of the time goes outside the models; {costs}, and {kept}, which would "
        "give {alone}.",
    ),
    (
        lambda e: not e.pays and e.drafting <= FEW_DRAFTS and not e.hopeless,
        "{pace} because tokens were drafted in only {e.drafting:.0%} of the rounds; the others are plain steps. "
        "{kept}.",
    ),
    (
        lambda e: not e.pays and e.gamma * e.c >= e.v - 1 and (e.hopeless or e.c >= COSTLY_DRAFT),
        "{pace} because {draft}{even_if_all}; {kept}. Try {smaller}{or_shorter}.",
    ),
    (
        lambda e: not e.pays and (e.hopeless or e.v >= COSTLY_CHECK),
        "{pace} because checking {count} tokens costs {e.v:.1f} single steps{weights}{even_if_all}; {kept}"
        "{try_shorter}.{remedy}",
    ),
    (
        lambda e: not e.pays and (e.tau or 0.0) <= e.needed,
        "{pace} because only {kept}, and at these costs a round pays from τ {e.needed:.1f} on: {costs}"
        "{try_shorter}.",
    ),
    (lambda e: True, "{pace} because {kept}; {costs}.{seldom} These costs predict {predicted}{try_shorter}."),
)
"""(condition, sentence): the first that holds is given. Where the headline is not sure, none says because."""


def sentence(e: Evidence, name: str = "plain") -> str:
    """The reason that holds, filled in; ``name`` is what it calls the baseline."""
    draft, count = f"a draft step costs {e.c:.0%} of a target step", e.longest + 1
    fewer, promise = (f"γ = {e.shorter[0]}", factor(e.shorter[1])) if e.shorter else ("", "")
    phrases = {
        "name": name,
        "pace": pace(e.found.ratio, name),
        "kept": f"{e.rate or 0:.0%} of drafted tokens were kept (τ {e.tau or 0:.1f})",
        "count": count,
        "draft": draft,
        "costs": f"{draft}, and checking {count} tokens costs {e.v:.1f} steps",
        "weights": f" with {e.quantization} weights" if e.quantization else "",
        "even_if_all": f": even if all {e.longest} drafted tokens were kept, a round would cost more than it gives"
        if e.hopeless
        else "",
        "predicted": factor(e.predicted),
        "alone": factor(e.predicted / (1 - e.overhead)),
        "seldom": "" if e.gamma > 0.9 * e.longest else f" {e.gamma:.1f} tokens were drafted a round.",
        "smaller": SMALLER[e.needs],
        "or_shorter": f" or {fewer}, which promises {promise}" if e.shorter else "",
        "try_shorter": f"; {fewer} promises {promise}" if e.shorter else "",
        "other_draft": "a smaller draft or γ"
        if (e.tau or 0.0) >= BETTER
        else "a draft that is closer to the target",
        "smaller_tree": ""
        if e.pays
        else f" It pays from {e.needed:.1f} tokens a round on: try a smaller tree, or a chain (0).",
        "remedy": " On a CPU that multiplies bfloat16, a large target in bfloat16 checks so many for about a step."
        if e.quantization and e.v >= COSTLY_CHECK
        else "",
    }
    return next(text for holds, text in REASONS if holds(e)).format(e=e, **phrases)


def impossible_check(v: float | None) -> str:
    """What is said of a check that took less than a plain step; empty of any other."""
    if v is None or v >= LEAST_CHECK:
        return ""
    return f"Checking several tokens took {v:.2f} of a plain step, which no target can do"


def gather(baseline: Trace, lane: Trace, found: Speedup) -> Evidence | None:
    """What the table looks at; None of a lane here without costs or enough rounds. ``found``: its speed-up."""
    figures, counted = lane.metrics(baseline), counts_of(lane.rounds)
    evidence = Evidence(found, server=bool(baseline.server or lane.server))
    tau, rate = figures.mean_acceptance_length, figures.acceptance_rate
    if figures.proposed == 0:
        return replace(evidence, drafting=0.0)
    if tau is None or rate is None or not figures.rounds or figures.rounds < LEAST_ROUNDS:
        return evidence if evidence.server else None
    evidence = replace(evidence, tau=tau, rate=rate)
    if evidence.server:
        counts = lane.server.counts if lane.server else None
        return replace(evidence, drafting=(counts.steps or 0) / figures.rounds if counts else 1.0)
    if figures.tree_nodes is not None:
        steps = counts_of(baseline.rounds)
        step = fsum(s.seconds for s in steps) / len(steps) * figures.rounds
        c, v = ((seconds or 0.0) / step for seconds in (figures.draft_seconds, figures.verify_seconds))
        return replace(evidence, longest=round(figures.tree_nodes), c=c, v=v, saved=saved(figures))
    costs = (figures.draft_cost, figures.verify_cost)
    if costs[0] is None or costs[1] is None:
        return None
    c, v = costs[0], costs[1]
    longest, gamma = figures.usual_draft or 0, (figures.proposed or 0) / figures.rounds
    models, plain = (1 - (each.other_share or 0.0) for each in (figures, baseline.metrics()))

    def predict(tau: float, drafted: float) -> float:
        # A drafter may propose less than γ, or nothing: checking fewer tokens costs less, in proportion.
        return models / plain * expected_speedup(tau, drafted, c, verify_cost(drafted, longest, v))

    predicted, shorter = predict(tau, gamma), None
    if gamma > 0.9 * longest and not lane.settings.adaptive_gamma and figures.rounds >= LEAST_HELD:
        kept = figures.per_position
        promises = [(predict(1 + sum(kept[:g]), g), g) for g in range(1, len(kept))]
        best, fewer = max(promises, default=(0.0, 0))
        shorter = (fewer, best) if best >= BETTER * max(predicted, found.ratio) else None
    return replace(
        evidence,
        drafting=sum(1 for r in counted if r.drafted) / len(counted),
        gamma=gamma,
        longest=longest,
        c=c,
        v=v,
        predicted=predicted,
        overhead=1 - models,
        quantization=lane.quantization,
        needs=lane.settings.needs,
        shorter=shorter,
    )


def saved(figures: Metrics) -> str:
    """What second guesses added to a lane of trees."""
    added = (figures.mean_acceptance_length or 0.0) - (figures.first_guess_length or 0.0)
    more = f", {added:.2f} tokens a round more than the first guesses alone" if figures.saved_rounds else ""
    return f"Second guesses saved {figures.saved_rounds:,} of {figures.rounds:,} rounds{more}."


def unhealthy(lane: Trace) -> str:
    """What is said of a head that keeps less than trained ones, by the same rule as those behind ``HEALTHY``."""
    settings, figures = lane.settings, lane.metrics()
    alike = settings.greedy and settings.lossless and len(in_a_row(settings.drafter)) == 1
    alike &= not (settings.drafts_trees or settings.adaptive_gamma or settings.p_min)
    if settings.needs != "head" or not alike or (figures.rounds or 0) < LEAST_HELD:
        return ""
    kept = [round(share, 2) for share in figures.per_position]  # as it is said
    for place, (share, least) in enumerate(zip(kept, HEALTHY, strict=False), start=1):
        if share < least:
            own = ", or it was trained too little or for another model, or otherwise than its config.json says"
            return (
                f" The head's drafted token {place} was kept in {share:.0%} of the rounds, and trained heads keep "
                f"{least:.0%} or more: this text is unlike what it learned{'' if lane.pair in catalog() else own}."
            )
    return ""
