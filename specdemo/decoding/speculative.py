"""Draft, verify, keep: the whole of speculative decoding, read from top to bottom, and the baseline beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.gamma import GammaPolicy
from specdemo.decoding.lane import Lane, RawRound
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal

MOST_FED_AGAIN = 8
"""Kept tokens that a verify reads again before the drafted ones; more go before it in a forward of their own."""


def autoregressive(lane: Lane, target: Runner) -> Iterator[RawRound]:
    """The baseline: rounds of one token and one target forward each, until the lane stops."""
    lane.clock.resume()
    yield _plain_step(lane, target, lane.prompt_ids)
    while lane.stop is None:
        lane.clock.resume()
        yield _plain_step(lane, target, lane.committed[target.length :])


def speculative(lane: Lane, target: Runner, drafter: Drafter) -> Iterator[RawRound]:
    """Rounds of up to γ+1 tokens each (Leviathan et al., arXiv 2211.17192, algorithm 1), until the lane stops.

    A draft is a tree, and a chain is one whose tokens each follow the one before.
    """
    policy, clock = GammaPolicy(lane.settings), lane.clock

    # 0. Both models take in the prompt; the target's last logits give the first token.
    clock.resume()
    drafter.prefill(lane.prompt_ids)
    clock.mark("draft")
    yield _plain_step(lane, target, lane.prompt_ids, drafter)

    while lane.stop is None:
        clock.resume()
        # 1. Draft, no deeper than γ.
        proposal = _draft(lane, drafter, policy.next(lane.remaining))
        clock.mark("draft")

        # 2. One target forward over the last committed token and all drafted ones; where states were put back,
        #    over what was kept since, too.
        again = len(lane.committed) - 1 - target.length
        if again > MOST_FED_AGAIN:
            target.forward(lane.committed[target.length : -1], keep=0)
            again = 0
        if proposal:
            target.checkpoint()
        begin = target.length
        tree_mask = proposal.tree_mask(begin)
        output = target.forward(lane.committed[begin:], len(proposal) + 1, proposal.tokens, tree_mask)
        clock.mark("verify")

        # 3. Keep the drafted tokens of the path that passes the rule, then one token of the target's.
        raw = lane.accept(proposal, output.logits)

        # 4. Both caches forget what was not kept; neither holds the last committed token yet.
        kept = [0, *raw.path[: raw.kept - 1]]
        target.rollback_to(begin + again, kept)
        if output.hidden is not None:
            hidden = output.hidden[again:]
            drafter.observe(hidden[: len(kept)] if proposal.is_chain else hidden[kept])
        drafter.commit(lane.committed)
        clock.lap("other")
        policy.observe(lane.ended(raw))
        yield raw


def _plain_step(lane: Lane, target: Runner, fed: Sequence[int], drafter: Drafter | None = None) -> RawRound:
    """One token from the target's logits behind ``fed``: round 0 of any strategy, or a round of the baseline."""
    output = target.forward(fed)
    lane.clock.mark("verify")
    if drafter is not None and output.hidden is not None:
        drafter.observe(output.hidden)
        lane.clock.mark("draft")
    raw = lane.emit(output.logits)
    lane.clock.lap("other")
    return lane.ended(raw)


def _draft(lane: Lane, drafter: Drafter, gamma: int) -> Proposal:
    if not gamma:
        return NOTHING_DRAFTED
    if not lane.settings.drafts_trees:
        return drafter.propose(lane.committed, gamma)
    return drafter.propose_tree(lane.committed, gamma, lane.settings.tree_nodes)
