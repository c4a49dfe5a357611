"""The figures of one lane, and the one place that counts rounds.

Raw counts are kept, and divided last; sums of seconds are correctly rounded. This module stands below
:mod:`specdemo.trace`, whose ``Trace.metrics`` calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import fsum
from statistics import median
from typing import TYPE_CHECKING, Any

from specdemo.drafters import DRAFTERS
from specdemo.rounds import Round
from specdemo.server_record import ServerRecord

if TYPE_CHECKING:
    from specdemo.trace import Trace


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """What a round counted, and the seconds it took; None where only a server knows them."""

    drafted: int
    accepted: int
    emitted: int
    draft_seconds: float | None
    verify_seconds: float | None
    other_seconds: float | None
    offered: int | None = None  # ``Round.offered`` of a tree; None of a chain, where it is ``drafted``
    copied: bool = False  # whether of drafters in a row the one that copies drafted

    @property
    def positions(self) -> int:
        """Positions with a guess."""
        return self.drafted if self.offered is None else self.offered

    @property
    def seconds(self) -> float:
        return (self.draft_seconds or 0.0) + (self.verify_seconds or 0.0) + (self.other_seconds or 0.0)


def counts_of(rounds: Iterable[Round]) -> tuple[RoundCounts, ...]:
    """The counts of a lane's rounds, the prefill left out."""
    return tuple(
        RoundCounts(
            *(r.drafted, r.accepted, len(r.emitted)),
            *(r.draft_seconds, r.verify_seconds, r.other_seconds),
            offered=r.offered if r.is_tree else None,
            copied=r.drafter in DRAFTERS and DRAFTERS[r.drafter or ""].copies,
        )
        for r in rounds
        if r.index > 0
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over rounds, and what follows from them; None or empty where a server does not tell."""

    rounds: int | None  # target forwards after the prefill
    proposed: int | None  # drafted tokens, Σγᵢ
    accepted: int | None  # drafted tokens kept, Σaᵢ
    emitted: int | None  # tokens kept after the prefill's, Σ(aᵢ + the target's own)
    # accepted / tested tokens; of a round all are tested up to the first that is rejected
    alpha: float | None = None
    # number of rounds with i accepted tokens, i from 0
    accepted_histogram: list[int] = field(default_factory=list)
    # share of rounds with more than j accepted tokens, j from 0
    per_position: list[float] = field(default_factory=list)
    # of the rounds in which drafted token j was tested, the share that kept it, j from 0; None where it was never
    # tested. The acceptance that predictions for other γ are made of.
    conditional_per_position: list[float | None] = field(default_factory=list)
    # draft_seconds, verify_seconds, other_seconds: decode time by phase, prefill not counted; None of a server
    draft_seconds: float | None = None
    verify_seconds: float | None = None
    other_seconds: float | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """Σaᵢ/Σγᵢ."""
        return ratio(self.accepted, self.proposed)

    @property
    def mean_acceptance_length(self) -> float | None:
        """τ, emitted / rounds."""
        return ratio(self.emitted or None, self.rounds)


def totals(rounds: Sequence[RoundCounts], longest: int | None = None) -> Totals:
    """The sums over these rounds; ``longest`` is the most that one may draft, by default what one did."""
    histogram = [0] * (1 + (max((r.positions for r in rounds), default=0) if longest is None else longest))
    for round_ in rounds:
        histogram[round_.accepted] += 1
    reached = [[r for r in rounds if r.positions > j and r.accepted >= j] for j in range(len(histogram) - 1)]
    accepted = sum(r.accepted for r in rounds)
    phases = [[getattr(r, f"{phase}_seconds") for r in rounds] for phase in ("draft", "verify", "other")]
    return Totals(
        len(rounds),
        sum(r.drafted for r in rounds),
        accepted,
        sum(r.emitted for r in rounds),
        ratio(accepted, sum(min(r.accepted + 1, r.positions) for r in rounds)),
        histogram,
        shares_by_position(histogram, len(rounds)),
        [ratio(sum(1 for r in some if r.accepted > j), len(some)) for j, some in enumerate(reached)],
        *(None if None in seconds else fsum(seconds) for seconds in phases),
    )


def shares_by_position(histogram: Sequence[int], rounds: int) -> list[float]:
    """Share of the rounds with more than j accepted tokens, j from 0."""
    return [sum(histogram[j + 1 :]) / rounds for j in range(len(histogram) - 1)] if rounds else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Totals):
    """Figures of one lane; None where a trace cannot tell. The prefill and its token count only for TTFT.

    Attributes:
        alpha: acceptance per tested token, of trees per position: mean of Σₓ min(p, q) where both distributions
            are known, else accepted / tested.
        wasted: drafted tokens thrown away, Σ(γᵢ − aᵢ).
        usual_draft: the γ of most rounds that drafted, of trees the tokens, the longest of those that tie; 0 if
            none did.
        tree_nodes: drafted tokens verified in a round that drafted a tree, in the mean; None where none did.
        tree_depth: tokens on the longest path of such a round, in the mean.
        saved_rounds: rounds that kept a token which was not the first guess of its position.
        first_guess_length: τ if all trees had had first guesses only, from the same rounds.
        draft_cost: c, draft step time / target step time, of trees by drafted token; needs a baseline.
        verify_cost: v(γ), time of a verify forward of γ+1 tokens / target step time, γ the usual one; needs a
            baseline.
        tokens_per_second: decode speed, emitted / (seconds − TTFT).
        end_to_end_tokens_per_second: all output tokens / seconds, the prefill and its token counted.
        ttft: time to first token, the prefill of all models of the lane, seconds.
        tpot: time per output token, (seconds − TTFT) / emitted.
        seconds: the lane clock at the end.
        draft_share, verify_share, other_share: of the three together; the last is the overhead share, time
            outside model forwards.
        peak_memory: bytes, see :class:`specdemo.trace.Trace`.
    """

    wasted: int | None
    usual_draft: int | None
    tree_nodes: float | None
    tree_depth: float | None
    saved_rounds: int | None
    first_guess_length: float | None
    draft_cost: float | None
    verify_cost: float | None
    tokens_per_second: float | None
    end_to_end_tokens_per_second: float | None
    ttft: float | None
    tpot: float | None
    seconds: float
    draft_share: float | None
    verify_share: float | None
    other_share: float | None
    peak_memory: int | None

    def as_dict(self) -> dict[str, Any]:
        follow = {name: getattr(self, name) for name in ("acceptance_rate", "mean_acceptance_length")}
        return asdict(self) | follow


def measure(trace: Trace, baseline: Trace | None = None) -> Metrics:
    """All figures of ``trace``; the costs relative to the single target steps of ``baseline``."""
    rounds = counts_of(trace.rounds)
    streamed = any(t.kind == "streamed" for t in trace.tokens)
    # Rounds at the end are shorter, so the histogram's width is the longest draft, not the setting.
    sums = _of_server(trace.server) if streamed else replace(totals(rounds), alpha=_alpha(trace))
    told = trace.server.completion_tokens if trace.server else None
    output = told or None if streamed else len(trace.output)
    usual = usual_draft(rounds)
    costs = costs_of(rounds, usual, counts_of(baseline.rounds)) if baseline is not None else None
    ttft, seconds = (trace.rounds[0].seconds, trace.rounds[-1].seconds) if trace.rounds else (None, 0.0)
    decode_seconds = seconds - (ttft or 0.0)
    if trace.server is not None:
        sums = replace(sums, draft_seconds=None, verify_seconds=None, other_seconds=None)
    whole = fsum((sums.draft_seconds or 0.0, sums.verify_seconds or 0.0, sums.other_seconds or 0.0))
    return Metrics(
        **{each.name: getattr(sums, each.name) for each in fields(sums)},
        wasted=None if sums.proposed is None or sums.accepted is None else sums.proposed - sums.accepted,
        usual_draft=None if streamed else usual,
        **_of_trees(trace.rounds),
        draft_cost=costs[0] if costs else None,
        verify_cost=costs[1] if costs else None,
        tokens_per_second=ratio(sums.emitted or None, decode_seconds),
        end_to_end_tokens_per_second=ratio(output, seconds),
        ttft=ttft,
        tpot=ratio(decode_seconds, sums.emitted),
        seconds=seconds,
        draft_share=ratio(sums.draft_seconds, whole),
        verify_share=ratio(sums.verify_seconds, whole),
        other_share=ratio(sums.other_seconds, whole),
        peak_memory=None if streamed else trace.peak_memory,
    )


def _of_server(server: ServerRecord | None) -> Totals:
    """What a server counted, in our terms, where tokens have no kinds.

    A server leaves out its plain steps: those that emitted what the others do not explain. Where it has any, and
    an end cut its last step, there were up to γ more of them than can be seen from here.
    """
    counts = server.counts if server else None
    emitted = server.completion_tokens - 1 if server and server.completion_tokens else None
    if counts is None or emitted is None:
        drafted, accepted = (counts.drafted, counts.accepted) if counts else (None, None)
        return Totals(None, drafted, accepted, emitted)
    rounds = max(counts.steps or 0, emitted - counts.accepted)
    histogram = list(counts.histogram or ())
    more = [sum(histogram[j + 1 :]) for j in range(len(histogram) - 1)]
    if histogram:
        histogram[0] += rounds - (counts.steps or 0)
    # Only where every step drafted γ tokens is it known how many of each place were tested.
    steps, gamma = counts.steps or 0, counts.gamma or 0
    full = counts.steps is not None and 0 < gamma == len(more) and counts.drafted == steps * gamma
    reached = [steps, *more[:-1]] if full else []
    return Totals(
        rounds,
        counts.drafted,
        counts.accepted,
        emitted,
        alpha=ratio(counts.accepted, sum(reached)),
        accepted_histogram=histogram,
        per_position=shares_by_position(histogram, rounds),
        conditional_per_position=[ratio(kept, of) for kept, of in zip(more, reached, strict=False)],
    )


def _alpha(trace: Trace) -> float | None:
    decode = [r for r in trace.rounds if r.index > 0]
    overlaps = [o for r in decode if r.overlaps is not None for o in r.overlaps]
    if overlaps and not any(r.is_tree for r in decode):  # drafters in a row may draft both
        return fsum(overlaps) / len(overlaps)
    # Behind an end, where no token of the target's own follows, nothing was tested.
    corrected = sum(t.kind == "corrected" for r in decode for t in r.tokens)
    accepted = sum(r.accepted for r in decode)
    return ratio(accepted, accepted + corrected)


def usual_draft(rounds: Sequence[RoundCounts]) -> int:
    """The drafted tokens of most rounds that drafted, the largest number of those that tie; 0 if none did."""
    lengths = Counter(r.drafted for r in rounds if r.drafted)
    return max(lengths, key=lambda length: (lengths[length], length), default=0)


def _of_trees(rounds: Sequence[Round]) -> dict[str, Any]:
    """The figures of draft trees; None where none were drafted."""
    trees = [r for r in rounds if r.is_tree]
    if not trees:
        return dict.fromkeys(("tree_nodes", "tree_depth", "saved_rounds", "first_guess_length"))
    # Where a first guess is rejected, the round ends with the target's own token.
    alone = [r.first_guesses + 1 if r.saved else len(r.emitted) for r in rounds if r.index > 0]
    deepest = [max(t.position for t in r.tokens if t.kind in ("accepted", "rejected")) for r in trees]
    return {
        "tree_nodes": ratio(sum(r.drafted for r in trees), len(trees)),
        "tree_depth": ratio(sum(deepest), len(trees)),
        "saved_rounds": sum(r.saved for r in trees),
        "first_guess_length": ratio(sum(alone), len(alone)),
    }


def costs_of(
    rounds: Iterable[RoundCounts], drafted: int, single: Sequence[RoundCounts]
) -> tuple[float, float, float, float] | None:
    """(c, v(γ), o, o₀): draft step, verify, other time of a round and of a plain step, all in target steps.

    By medians, which a single hiccup does not move; None where nothing of this length was drafted or timed, as on
    a server, which tells no times by phase.

    Args:
        rounds: of a lane that drafts.
        drafted: γ; rounds of another length do not count.
        single: plain steps.
    """
    if not drafted:
        return None
    full = [r for r in rounds if r.drafted == drafted]
    timed = (
        [r.draft_seconds / drafted for r in full if r.draft_seconds is not None],
        [r.verify_seconds for r in full if r.verify_seconds is not None],
        [r.other_seconds for r in full if r.other_seconds is not None],
        [r.other_seconds for r in single if r.other_seconds is not None],
        [r.verify_seconds for r in single if r.verify_seconds is not None],
    )
    if not all(timed):
        return None
    draft, verify, other, plain_other, step = map(median, timed)
    return (draft / step, verify / step, other / step, plain_other / step) if step else None


def ratio(amount: float | None, of: float | None) -> float | None:
    """A quotient; None where one of the two is not known, or there is nothing to divide by."""
    return amount / of if amount is not None and of else None
