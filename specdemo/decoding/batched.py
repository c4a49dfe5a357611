"""Speculative decoding of several prompts together, each row keeping its own number of tokens a round.

The loops are those of ``autoregressive`` and ``speculative`` with rows in the forwards; what is decided or drawn is
decided for each row by itself, with its own sampler, in the order of its own batch-1 run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from specdemo.decoding.acceptance import Rule, Verdict, rule_for
from specdemo.decoding.batch_drafters import BatchDrafter
from specdemo.decoding.clock import LaneClock
from specdemo.decoding.drafters import Proposal
from specdemo.decoding.gamma import Costs, GammaPolicy, gamma_policy
from specdemo.decoding.lane import Lane
from specdemo.decoding.ragged import RaggedRunner
from specdemo.trace import Round

Rounds = list[tuple[int, Round]]
"""One round of every row that took part, with the row's number."""


@dataclass(slots=True)
class Row:
    """One prompt of the batch: a lane, on the clock of all."""

    number: int
    lane: Lane
    policy: GammaPolicy
    rule: Rule = field(init=False)

    def __post_init__(self) -> None:
        self.rule = rule_for(self.lane.settings)


def open_rows(lanes: Sequence[Lane], costs: Costs) -> list[Row]:
    """The rows of a batch that has just begun; with adaptive γ they learn from the same costs."""
    return [Row(number, lane, gamma_policy(lane.settings, costs)) for number, lane in enumerate(lanes)]


def batched_autoregressive(lanes: Sequence[Lane], target: RaggedRunner, clock: LaneClock) -> Iterator[Rounds]:
    """Rounds of one token a row, until all have stopped."""
    rows = open_rows(lanes, Costs())
    clock.resume()
    yield _step(rows, target.forward([row.lane.prompt_ids for row in rows], last=True), clock)
    while rows := _alive(rows, target):
        clock.resume()
        feeds = [row.lane.committed[-1:] for row in rows]
        yield _step(rows, target.forward(feeds, last=True), clock)


def batched_speculative(
    lanes: Sequence[Lane], target: RaggedRunner, drafter: BatchDrafter, clock: LaneClock
) -> Iterator[Rounds]:
    """Rounds of up to γ+1 tokens a row, until all have stopped."""
    costs = Costs()
    rows = open_rows(lanes, costs)

    # 0. Both models take in the prompts; the target's last logits give the first tokens.
    clock.resume()
    drafter.prefill([row.lane for row in rows])
    clock.lap("draft")
    yield _step(rows, target.forward([row.lane.prompt_ids for row in rows], last=True), clock)

    while rows := _alive(rows, target, drafter):
        clock.resume()
        # 1. Draft for each row, but never past its end: a round also emits one token of the target's own.
        gammas = [min(row.policy.next(), row.lane.remaining - 1) for row in rows]
        proposals = drafter.propose([row.lane for row in rows], gammas)
        clock.lap("draft")

        # 2. One target forward over each row's last committed token and its drafted ones.
        feeds = [[row.lane.committed[-1], *proposal.ids] for row, proposal in zip(rows, proposals, strict=True)]
        logits = target.forward(feeds)
        clock.lap("verify")

        # 3. Each row keeps the leading drafted tokens that pass, then one token of the target's.
        judged = [
            _judge(row, proposal, of_row) for row, proposal, of_row in zip(rows, proposals, logits, strict=True)
        ]

        # 4. The caches forget what was not kept, in each row its own number.
        target.rollback_to([len(row.lane.committed) - 1 for row in rows])
        drafter.settle([row.lane for row in rows])
        clock.lap("other")
        drafted = max(len(proposal.ids) for proposal in proposals)
        costs.see(drafted, clock.phases["draft"], clock.phases["verify"] + clock.phases["other"])
        yield [
            (row.number, _recorded(row, proposal, clock, *result))
            for row, proposal, result in zip(rows, proposals, judged, strict=True)
        ]


def _alive(rows: list[Row], target: RaggedRunner, drafter: BatchDrafter | None = None) -> list[Row]:
    """The rows that go on; the others leave the batch and its caches."""
    staying = [place for place, row in enumerate(rows) if row.lane.stop is None]
    if staying and len(staying) < len(rows):
        target.keep(staying)
        if drafter is not None:
            drafter.keep(staying)
    return [rows[place] for place in staying]


def _step(rows: list[Row], logits: torch.Tensor, clock: LaneClock) -> Rounds:
    """One token a row from its logits (B, V): the prefill, or a step of autoregressive decoding."""
    clock.lap("verify")
    picked = []
    for row, of_row in zip(rows, logits.split(1), strict=True):
        scores = row.lane.sampler.scores(of_row, row.lane.committed)
        token = int(row.lane.sampler.pick(scores))
        row.lane.commit([token])
        picked.append((scores, token))
    clock.lap("other")
    return [
        (row.number, row.lane.recorder.plain(scores, token, clock, row.lane.stop))
        for row, (scores, token) in zip(rows, picked, strict=True)
    ]


def _judge(row: Row, proposal: Proposal, logits: torch.Tensor) -> tuple[torch.Tensor, Verdict, int]:
    """What a row keeps of its proposal: its scores (γ+1, V), the rule's verdict, the tokens committed."""
    lane = row.lane
    scores = lane.sampler.scores(logits[: len(proposal.ids) + 1], lane.committed, proposal.ids)
    drafted = torch.tensor([proposal.ids], dtype=torch.long, device=scores.device)
    q = None if proposal.q is None else proposal.q.unsqueeze(0)
    verdict = row.rule(scores.unsqueeze(0), drafted, q, lane.sampler)
    kept = lane.commit([*proposal.ids[: int(verdict.accepted)], int(verdict.token)])
    return scores, verdict, kept


def _recorded(
    row: Row, proposal: Proposal, clock: LaneClock, scores: torch.Tensor, verdict: Verdict, kept: int
) -> Round:
    round_ = row.lane.recorder.speculative(scores, proposal, verdict, kept, clock, row.lane.stop)
    row.policy.observe(round_)
    return round_
