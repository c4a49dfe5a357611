"""Why a lane or a batch was fast or slow, in one or two sentences, from measured numbers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.heads import drafted_by_head, remarks
from specdemo.analysis.lanes import is_plain, place_of, plain_of
from specdemo.analysis.reasons import FEW_DRAFTS, PAYS, RULES, Evidence
from specdemo.analysis.trees import explain_tree
from specdemo.analysis.wording import pace, ratio
from specdemo.drafters import DRAFTERS
from specdemo.metrics import counts_of
from specdemo.server_record import IN_TURN
from specdemo.theory import expected_speedup, verify_cost
from specdemo.trace import Trace

BETTER = 1.05
"""A smaller γ is only advised if it promises that much more."""
FAR = 0.1
"""Share of a lane's time from which on the way to its server is worth a sentence."""
PAUSED = 0.05
"""Share of rounds without drafts from which on an adaptive γ is said to have paused."""
SHRUNK = 0.995
"""A share of a plain batch's rows below which the earlier ends of drafted rows show in the figures."""


def explain_race(traces: Sequence[Trace], titles: Sequence[str] | None = None) -> str | None:
    """Why each lane was fast or slow against plain decoding, and what quantised weights cost or gave: a line each.

    A lane is judged against a plain one of the same weights in the same place, which its line names, since others
    are another model, or another machine. Only such a lane's steps are what c, v and a prediction count in.

    Args:
        traces: of the lanes.
        titles: how the page calls them; every line begins with its lane's where there are several.
    """
    lines: dict[str, list[int]] = {}  # what is said of several lanes is said once
    for number, trace in enumerate(traces):
        if not is_plain(trace) and (line := _line(traces, trace)):
            lines.setdefault(line, []).append(number)
    named = titles is not None and sum(map(len, lines.values())) > 1
    said = [
        f"{', '.join(titles[n] for n in numbers)}: {line}" if named else f"{line[0].upper()}{line[1:]}"
        for line, numbers in lines.items()
    ]
    return "\n".join(filter(None, [*said, explain_quantization(traces)])) or None


def _line(traces: Sequence[Trace], lane: Trace) -> str | None:
    """The reason of one lane that drafts; None where the measurements do not suffice."""
    baseline = plain_of(traces, lane)
    if baseline is not None:
        return explain(baseline, lane, _name(traces, baseline))
    if not any(is_plain(t) and place_of(t) == place_of(lane) for t in traces):
        where = f"on {lane.server.name}" if lane.server else "here"
        if not any(map(is_plain, traces)):
            return f"no plain lane ran {where}, so there is nothing to count its costs in; add one."
        apart = "engines" if any(t.server and IN_TURN in t.server.notes for t in traces) else "machines"
        return (
            f"no plain lane ran {where}, so this speed-up is of {apart} and speculation together; "
            "add one to tell them apart."
        )
    return (
        f"no plain lane has the {lane.quantization or 'unquantised'} weights of this lane, so this "
        "speed-up is of quantisation and speculation together; add one to tell them apart."
    )


def _name(traces: Sequence[Trace], baseline: Trace) -> str:
    """A plain lane as a sentence calls it, with what sets it apart from the race's other plain lanes."""
    plain = [t for t in traces if is_plain(t)]
    weights = f"{baseline.quantization or 'unquantised'} " if len({t.quantization for t in plain}) > 1 else ""
    where = f" on {baseline.server.name}" if baseline.server and len(set(map(place_of, plain))) > 1 else ""
    return f"{weights}plain{where}"


def explain_quantization(traces: Sequence[Trace]) -> str | None:
    """How quantised weights change a target step, where the race has both; None where it has not."""
    plain = [t for t in traces if is_plain(t) and t.server is None and t.metrics().tokens_per_second]
    whole = next((t for t in plain if t.quantization is None), None)
    quantised = next((t for t in plain if t.quantization is not None), None)
    if whole is None or quantised is None:
        return None
    speeds = [t.metrics().tokens_per_second for t in (whole, quantised)]
    pace = speeds[1] / speeds[0]
    figures = f"({speeds[1]:.1f} against {speeds[0]:.1f} tokens/s without drafting)"
    weights = f"{quantised.quantization} weights"
    if 0.97 <= pace <= 1.03:
        return f"{weights} leave the target as fast as it was {figures}."
    if pace > 1:
        return f"{weights} make the target {ratio(pace)} as fast here {figures}."
    return f"{weights} make the target {ratio(1 / pace)} slower here {figures}: they save memory, not time."


def explain(baseline: Trace, lane: Trace, name: str = "plain") -> str | None:
    """The reason of one lane, for people; None where the measurements do not suffice.

    Args:
        baseline: a plain lane.
        lane: what is judged.
        name: what the sentence calls the baseline.
    """
    if baseline.server or lane.server:
        return explain_server(baseline, lane, name)
    if any(r.is_tree for r in lane.rounds):
        said = explain_tree(baseline, lane, name)
        return said and " ".join([said, *remarks(lane)])
    evidence = gather(baseline, lane)
    if evidence is None:
        return None
    rule = next(rule for rule in RULES if rule.applies(evidence))
    return " ".join([f"{pace(evidence.speedup, name)} {rule.text(evidence)}", *_pauses(lane), *remarks(lane)])


def _pauses(lane: Trace) -> list[str]:
    """A sentence on the rounds that an adaptive γ left without drafts, where there were many."""
    rounds = counts_of(lane.rounds)[:-1]  # the last has room for none
    if not lane.settings.adaptive_gamma or not DRAFTERS[lane.settings.drafter].always_drafts:
        return []
    share = sum(1 for r in rounds if not r.drafted) / len(rounds)
    return [f"Adaptive γ paused in {share:.0%} of the rounds, where no draft paid."] if share >= PAUSED else []


def gather(baseline: Trace, lane: Trace) -> Evidence | None:
    """The figures that the rules look at; None with fewer than three rounds or without costs."""
    plain, figures = baseline.metrics(), lane.metrics(baseline)
    rate, tau, c, v = (
        figures.acceptance_rate,
        figures.mean_acceptance_length,
        figures.draft_cost,
        figures.verify_cost,
    )
    speeds = (plain.tokens_per_second, figures.tokens_per_second)
    if None in (rate, tau, c, v, *speeds) or figures.rounds < 3:
        return None
    gamma, longest = figures.proposed / figures.rounds, figures.usual_draft
    rounds = counts_of(lane.rounds)

    def predict(tau: float, drafted: float) -> float:
        # A drafter may propose less than γ, or nothing: checking fewer tokens costs less, in proportion.
        return expected_speedup(tau, drafted, c, verify_cost(drafted, longest, v))

    predicted, speedup = predict(tau, gamma), speeds[1] / speeds[0]
    return Evidence(
        speedup=speedup,
        predicted=predicted,
        rate=rate,
        tau=tau,
        gamma=gamma,
        longest=longest,
        c=c,
        v=v,
        overhead=figures.other_share or 0.0,
        drafting=sum(1 for r in rounds if r.drafted) / len(rounds),
        quantization=lane.quantization,
        head=drafted_by_head(lane),
        remedy=_remedy(lane),
        shorter=_shorter(figures.per_position, max(predicted, speedup), predict)
        if gamma > 0.9 * longest and not lane.settings.adaptive_gamma
        else None,
    )


def _remedy(lane: Trace) -> str | None:
    """How the target would check several tokens for about one step, where its weights are why it does not."""
    if lane.quantization:
        return "On a CPU that multiplies bfloat16, a large target in bfloat16 checks so many for about one step."
    return None


def _shorter(
    per_position: list[float], now: float, predict: Callable[[float, float], float]
) -> tuple[int, float] | None:
    """The best γ below this one, predicted from the measured acceptance of the first drafted tokens."""
    promises = [(1 + sum(per_position[:g]), g) for g in range(1, len(per_position))]
    best, gamma = max(((predict(tau, g), g) for tau, g in promises), default=(0.0, 0))
    return (gamma, best) if best >= BETTER * now else None


def explain_server(baseline: Trace, lane: Trace, name: str = "plain") -> str | None:
    """The reason of a server's lane, from its acceptance and the client's clock.

    What a round costs is measured even here: its time over that of a plain lane's token, drafting and all.
    """
    plain, figures = baseline.metrics(), lane.metrics()
    if not plain.tokens_per_second or not figures.tokens_per_second:
        return None
    speedup = figures.tokens_per_second / plain.tokens_per_second
    rate, tau = figures.acceptance_rate, figures.mean_acceptance_length
    if rate is None or tau is None or (figures.rounds or 0) < 3:
        unknown = "the server does not say what it drafted and kept."
        return f"{pace(speedup, name)} by the client's clock; {unknown}{_far(lane)}"
    cost = tau / speedup
    kept = f"{rate:.0%} of drafted tokens were kept (τ {tau:.1f})"
    round_ = f"a round takes as long as {cost:.1f} plain steps"
    counts = lane.server.counts if lane.server else None
    drafting = counts.steps / figures.rounds if counts else 1.0
    if speedup >= PAYS:
        reason = f"because {kept}, and {round_}."
    elif drafting <= FEW_DRAFTS:
        reason = f"because the server drafted in only {drafting:.0%} of the rounds; the others are plain steps."
    elif tau < PAYS:
        reason = f"because hardly anything was kept: {kept}; {round_}. Try a draft that is closer to the target."
    else:
        reason = f"because {round_}, and {kept}: it pays from τ {cost:.1f} on. Try a smaller draft or γ."
    return f"{pace(speedup, name)} {reason}{_far(lane)}"


def _far(lane: Trace) -> str:
    """A sentence on the way to the server, which delays the first token; empty where it hardly matters."""
    network, figures = lane.server.network_seconds if lane.server else None, lane.metrics()
    if network is None or not figures.ttft or network < FAR * figures.seconds:
        return ""
    return f" The way to the server and back takes {1000 * network:.0f} ms, which is part of its TTFT."


def explain_batch(plain: BatchMetrics, drafted: BatchMetrics) -> str | None:
    """What a round of a batch keeps, what it costs, and what waste there was; None where nothing was measured.

    A speed-up is tokens kept a round over the time of a round, both against plain decoding of the same batch:
    (τ · rows taking part) / (cost in plain steps · rows taking part in a plain round).
    """
    speeds = (plain.tokens_per_second, drafted.tokens_per_second)
    if None in speeds or not plain.rounds or not drafted.rounds:
        return None
    step = (plain.seconds - plain.ttft) / plain.rounds
    parts = [
        (drafted.draft_seconds / drafted.rounds / step, "drafting"),
        (drafted.verify_seconds / drafted.rounds / step, "one pass of the target"),
        (drafted.other_seconds / drafted.rounds / step, "everything else"),
    ]
    cost = sum(amount for amount, _ in parts)
    spent = ", ".join(f"{amount:.2f} for {what}" for amount, what in parts if amount >= 0.005)
    sentences = [
        f"{speeds[1] / speeds[0]:.2f}×: a round keeps {drafted.mean_acceptance_length:.2f} tokens a row and takes "
        f"{cost:.2f} plain steps ({spent})."
    ]
    if drafted.mean_rows < SHRUNK * plain.mean_rows:
        sentences.append(
            f"Rows end apart, which leaves {drafted.mean_rows:.2f} of {drafted.rows} in a drafted round on "
            f"average and {plain.mean_rows:.2f} in a plain one."
        )
    if (drafted.padding or 0) > 0.1:
        sentences.append(f"{drafted.padding:.0%} of the positions computed only filled up shorter rows.")
    return " ".join(sentences)
