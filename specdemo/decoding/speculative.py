"""Draft, verify, keep: the whole of speculative decoding, read from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator

from specdemo.decoding.acceptance import rule_for
from specdemo.decoding.autoregressive import prefill
from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.gamma import gamma_policy
from specdemo.decoding.lane import Lane, Step
from specdemo.decoding.proposal import NOTHING_DRAFTED


def speculative(lane: Lane, target: Runner, drafter: Drafter) -> Iterator[Step]:
    """Rounds of up to γ+1 tokens each (Leviathan et al., arXiv 2211.17192, algorithm 1), until the lane stops."""
    rule = rule_for(lane.settings)
    policy = gamma_policy(lane.settings)
    clock = lane.clock

    # 0. Both models take in the prompt; the target's last logits give the first token.
    clock.resume()
    drafter.prefill(lane.prompt_ids)
    clock.mark("draft")
    yield prefill(lane, target)

    while lane.stop is None:
        clock.resume()
        # 1. Draft, but never past the end: a round also emits one token of the target's own.
        gamma = min(policy.next(), lane.remaining - 1)
        proposal = drafter.propose(lane.committed, gamma) if gamma else NOTHING_DRAFTED
        drafted = proposal.tokens.to(target.device)
        clock.mark("draft")

        # 2. One target forward over the last committed token and all drafted ones.
        logits = target.forward(lane.committed[target.length :], len(drafted) + 1, drafted).logits
        clock.mark("verify")

        # 3. Keep the leading drafted tokens that pass the acceptance rule, then one token of the target's.
        outcome = lane.accept(rule, proposal, logits)

        # 4. Both caches forget what was not kept; neither holds the last committed token yet.
        target.rollback_to(len(lane.committed) - 1)
        drafter.commit(lane.committed)
        clock.lap("other")
        step = lane.step(outcome)
        policy.observe(step)
        yield step
