"""Speculative decoding of several prompts together, each row keeping its own number of tokens a round.

The loops are those of ``autoregressive`` and ``speculative`` with rows in the forwards. What is decided or drawn
is so for each row by itself, with its own sampler, in the order of its own batch-1 run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from specdemo.decoding.batch.drafters import BatchDrafter
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.clock import LaneClock
from specdemo.decoding.gamma import Costs, adaptive_gamma, next_gamma
from specdemo.decoding.lane import Lane, RawRound, RoundResult

RawRounds = list[tuple[int, RawRound]]
"""One round of every row that took part, with the row's number."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt of the batch: a lane, on the clock of all."""

    number: int
    lane: Lane


def batched_autoregressive(lanes: Sequence[Lane], target: RaggedRunner, clock: LaneClock) -> Iterator[RawRounds]:
    """Rounds of one token a row, until all have stopped."""
    rows = [Row(number, lane) for number, lane in enumerate(lanes)]
    clock.resume()
    yield _emit(rows, target.forward([row.lane.prompt_ids for row in rows], last=True), clock)
    while rows := _alive(rows, target):
        clock.resume()
        feeds = [row.lane.committed[-1:] for row in rows]
        yield _emit(rows, target.forward(feeds, last=True), clock)


def batched_speculative(
    lanes: Sequence[Lane], target: RaggedRunner, drafter: BatchDrafter, clock: LaneClock
) -> Iterator[RawRounds]:
    """Rounds of up to γ+1 tokens a row, until all have stopped."""
    rows = [Row(number, lane) for number, lane in enumerate(lanes)]
    costs = Costs()  # of rounds of the whole batch, whichever row asked for how many tokens
    adaptive = [adaptive_gamma(lane.settings, costs) for lane in lanes]

    # 0. Both models take in the prompts; the target's last logits give the first tokens.
    clock.resume()
    drafter.prefill([row.lane for row in rows])
    clock.lap("draft")
    yield _emit(rows, target.forward([row.lane.prompt_ids for row in rows], last=True), clock)

    while rows := _alive(rows, target, drafter):
        clock.resume()
        # 1. Draft for each row, but never past its end: a round also emits one token of the target's own.
        gammas = [next_gamma(row.lane, adaptive[row.number]) for row in rows]
        proposals = drafter.propose([row.lane for row in rows], gammas)
        clock.lap("draft")

        # 2. One target forward over each row's last committed token and its drafted ones.
        feeds = [[row.lane.committed[-1], *proposal.ids] for row, proposal in zip(rows, proposals, strict=True)]
        logits = target.forward(feeds)
        clock.lap("verify")

        # 3. Each row keeps the leading drafted tokens that pass, then one token of the target's.
        results = [
            row.lane.accept(proposal, of_row[: len(proposal) + 1])
            for row, proposal, of_row in zip(rows, proposals, logits, strict=True)
        ]

        # 4. The caches forget what was not kept, in each row its own number.
        target.rollback_to([len(row.lane.committed) - 1 for row in rows])
        drafter.commit([row.lane for row in rows])
        clock.lap("other")
        drafted = max(len(proposal) for proposal in proposals)
        costs.observe(drafted, clock.phases["draft"], clock.phases["verify"] + clock.phases["other"])
        raw_rounds = _raw_rounds(rows, results)
        for number, raw in raw_rounds:
            if (policy := adaptive[number]) is not None:
                policy.observe(raw)
        yield raw_rounds


def _alive(rows: list[Row], target: RaggedRunner, drafter: BatchDrafter | None = None) -> list[Row]:
    """The rows that go on; the others leave the batch and its caches."""
    staying = [place for place, row in enumerate(rows) if row.lane.stop is None]
    if staying and len(staying) < len(rows):
        target.keep(staying)
        if drafter is not None:
            drafter.keep(staying)
    return [rows[place] for place in staying]


def _emit(rows: list[Row], logits: torch.Tensor, clock: LaneClock) -> RawRounds:
    """One token a row from its logits (B, V): the prefill, or a step of autoregressive decoding."""
    clock.lap("verify")
    results = [row.lane.emit(of_row) for row, of_row in zip(rows, logits.split(1), strict=True)]
    clock.lap("other")
    return _raw_rounds(rows, results)


def _raw_rounds(rows: list[Row], results: list[RoundResult]) -> RawRounds:
    """Made once the clock has been read for all rows."""
    return [(row.number, row.lane.raw_round(result)) for row, result in zip(rows, results, strict=True)]
