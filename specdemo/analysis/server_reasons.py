"""Why a server's lane was fast or slow: from its acceptance and the client's clock, no costs inside it."""

from __future__ import annotations

from specdemo.analysis.reasons import PAYS, ratio
from specdemo.trace import Trace

FEW_DRAFTS = 0.35
FAR = 0.1
"""Share of a lane's time from which on the way to the server is worth a word."""


def explain_server(baseline: Trace, lane: Trace) -> str | None:
    """A reason for people; None where nothing was measured to reason from.

    What a round costs is measured even here: its time over that of a plain lane's token, drafting and all.
    """
    plain, figures = baseline.metrics(), lane.metrics()
    if not plain.tokens_per_second or not figures.tokens_per_second:
        return None
    speedup = figures.tokens_per_second / plain.tokens_per_second
    rate, tau = figures.acceptance_rate, figures.mean_acceptance_length
    if rate is None or tau is None or (figures.rounds or 0) < 3:
        told = "the server does not say what it drafted and kept."
        return f"{ratio(speedup)} by the client's clock; {told}{_far(lane)}"
    cost = tau / speedup
    kept = f"{rate:.0%} of drafted tokens were kept (τ {tau:.1f})"
    drafting = _drafting(lane)
    round_ = f"a round takes as long as {cost:.1f} plain steps"
    if speedup >= PAYS:
        reason = f"because {kept}, and {round_}."
    elif drafting is not None and drafting <= FEW_DRAFTS:
        reason = f"because the server drafted in only {drafting:.0%} of the rounds; the others are plain steps."
    elif tau < PAYS:
        reason = f"because hardly anything was kept: {kept}; {round_}. Try a draft that is closer to the target."
    else:
        reason = f"because {round_}, and {kept}: it pays from τ {cost:.1f} on. Try a smaller draft or γ."
    return f"{ratio(speedup)} {reason}{_far(lane)}"


def _drafting(lane: Trace) -> float | None:
    """Share of the rounds in which anything was drafted; None where that is not known."""
    rounds = lane.metrics().rounds
    return lane.server.counts.steps / rounds if lane.server and lane.server.counts and rounds else None


def _far(lane: Trace) -> str:
    """Only the first token waits for the way there; the others stream."""
    network, ttft = lane.server.network_seconds if lane.server else None, lane.metrics().ttft
    if network is None or not ttft or network < FAR * lane.metrics().seconds:
        return ""
    return f" The way to the server and back takes {1000 * network:.0f} ms, which is part of its TTFT."
