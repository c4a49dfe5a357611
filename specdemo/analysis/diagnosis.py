"""Why a lane or a batch was fast or slow, in one or two sentences, from measured numbers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.reasons import FEW_DRAFTS, PAYS, RULES, Evidence, ratio
from specdemo.metrics import counts_of
from specdemo.theory import expected_speedup, verify_cost
from specdemo.trace import Trace

BETTER = 1.05
"""A smaller γ is only advised if it promises that much more."""
FAR = 0.1
"""Share of a lane's time from which on the way to its server is worth a sentence."""
SHRUNK = 0.995
"""A share of a plain batch's rows below which the earlier ends of drafted rows show in the figures."""


def explain_race(traces: Sequence[Trace]) -> str | None:
    """Why the fastest lane was fast or slow against the first, and what quantised weights cost or gave.

    A lane is judged against a plain one of the same weights in the same place, since others are another model, or
    another machine.
    """
    fastest = max(traces[1:], key=lambda t: t.metrics().tokens_per_second or 0.0)
    near = [t for t in traces if _place(t) == _place(fastest)]
    alike = [t for t in near if t.quantization == fastest.quantization]
    baseline = traces[0] if traces[0] in alike else next((t for t in alike if _plain(t)), None)
    if baseline is None and not any(_plain(t) for t in near):
        where = "on the server of the fastest lane" if fastest.server else "here, as the fastest lane did"
        return (
            f"No plain lane ran {where}, so this speed-up is of machines and speculation together; "
            "add one to tell them apart."
        )
    if baseline is None:
        return (
            f"No plain lane has the {fastest.quantization or 'unquantised'} weights of the fastest lane, so this "
            "speed-up is of quantisation and speculation together; add one to tell them apart."
        )
    reasons = [None if baseline is fastest else explain(baseline, fastest), explain_quantization(traces)]
    if baseline is not traces[0] and reasons[0]:
        same = "in the same place" if _place(traces[0]) != _place(fastest) else "with the same weights"
        reasons[0] = f"Against plain decoding {same} {reasons[0]}"
    return " ".join(reason for reason in reasons if reason) or None


def explain_quantization(traces: Sequence[Trace]) -> str | None:
    """How quantised weights change a target step, where the race has both; None where it has not."""
    plain = [t for t in traces if _plain(t) and t.server is None and t.metrics().tokens_per_second]
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


def _plain(trace: Trace) -> bool:
    return trace.settings.strategy == "autoregressive"


def _place(trace: Trace) -> str | None:
    """The server that a lane ran on; None is here."""
    return trace.server.name if trace.server else None


def explain(baseline: Trace, lane: Trace) -> str | None:
    """The reason of one lane, for people; None where the measurements do not suffice."""
    if baseline.server or lane.server:
        return explain_server(baseline, lane)
    evidence = gather(baseline, lane)
    if evidence is None:
        return None
    rule = next(rule for rule in RULES if rule.applies(evidence))
    return f"{ratio(evidence.speedup)} {rule.text(evidence)}"


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
    gamma = figures.proposed / figures.rounds
    longest = len(figures.accepted_histogram) - 1
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
        shorter=_shorter(figures.per_position, max(predicted, speedup), predict)
        if gamma > 0.9 * longest
        else None,
    )


def _shorter(
    per_position: list[float], now: float, predict: Callable[[float, float], float]
) -> tuple[int, float] | None:
    """The best γ below this one, predicted from the measured acceptance of the first drafted tokens."""
    promises = [(1 + sum(per_position[:g]), g) for g in range(1, len(per_position))]
    best, gamma = max(((predict(tau, g), g) for tau, g in promises), default=(0.0, 0))
    return (gamma, best) if best >= BETTER * now else None


def explain_server(baseline: Trace, lane: Trace) -> str | None:
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
        return f"{ratio(speedup)} by the client's clock; {unknown}{_far(lane)}"
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
    return f"{ratio(speedup)} {reason}{_far(lane)}"


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
