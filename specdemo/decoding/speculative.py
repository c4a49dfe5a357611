"""Draft, verify, keep: the whole of speculative decoding, read from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator

from specdemo.decoding.acceptance import rule_for
from specdemo.decoding.autoregressive import prefill
from specdemo.decoding.draft_shape import DraftShape, shape_policy
from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.engines.base import Output, Runner
from specdemo.decoding.lane import Lane, Outcome, Step
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal
from specdemo.decoding.tree_acceptance import tree_rule_for
from specdemo.decoding.tree_draft import choice_for
from specdemo.drafters import DRAFTERS


def speculative(lane: Lane, target: Runner, drafter: Drafter) -> Iterator[Step]:
    """Rounds of up to γ+1 tokens each (Leviathan et al., arXiv 2211.17192, algorithm 1), until the lane stops."""
    policy = shape_policy(lane.settings)
    clock = lane.clock

    # 0. Both models take in the prompt; the target's last logits give the first token.
    clock.resume()
    drafter.prefill(lane.prompt_ids)
    clock.mark("draft")
    yield prefill(lane, target, drafter)

    while lane.stop is None:
        clock.resume()
        # 1. Draft a chain or a tree, but never past the end: a round also emits one token of the target's own.
        proposal = _draft(lane, drafter, policy.next())
        clock.mark("draft")

        # 2. One target forward over the last committed token and all drafted ones.
        output = _verify(lane, target, proposal)
        clock.mark("verify")

        # 3. Keep the drafted tokens that pass the rule, leading ones or a path, then one token of the target's.
        if proposal.parents is None:
            outcome = lane.accept(rule_for(lane.settings), proposal, output.logits)
        else:
            outcome = lane.accept_tree(tree_rule_for(lane.settings), proposal, output.logits)

        # 4. Both caches forget what was not kept; neither holds the last committed token yet.
        _roll_back(lane, target, drafter, output, outcome)
        clock.lap("other")
        step = lane.step(outcome)
        policy.observe(step)
        yield step


def _draft(lane: Lane, drafter: Drafter, shape: DraftShape) -> Proposal:
    depth = min(shape.depth, lane.remaining - 1)
    if not depth:
        return NOTHING_DRAFTED
    if not shape.nodes:
        return drafter.propose(lane.committed, depth)
    width = DRAFTERS[lane.settings.drafter].tree_width
    choice = choice_for(lane.settings, lane.sampler, depth, shape.nodes, width)
    return drafter.propose_tree(lane.committed, choice)


def _verify(lane: Lane, target: Runner, proposal: Proposal) -> Output:
    last, drafted = lane.committed[target.length :], proposal.tokens.to(target.device)
    if proposal.parents is None:
        return target.forward(last, len(drafted) + 1, drafted)
    # A token of a tree sees what it follows and nothing else of the tree.
    return target.forward(last, len(drafted) + 1, drafted, proposal.tree.branches(target.length))


def _roll_back(lane: Lane, target: Runner, drafter: Drafter, output: Output, outcome: Outcome) -> None:
    hidden = output.hidden
    if outcome.proposal.parents is None:
        target.rollback_to(len(lane.committed) - 1)
    else:
        # The kept path lies scattered among the tree's slots.
        path = [0, *outcome.path[: outcome.kept - 1]]
        target.rollback_to(len(lane.committed) - outcome.kept - 1, path)
        hidden = None if hidden is None else hidden[path]
    if hidden is not None:
        drafter.observe(hidden)
    drafter.commit(lane.committed)
