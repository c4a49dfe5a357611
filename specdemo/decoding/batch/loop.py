"""Decoding of several prompts together, each row keeping its own number of tokens a round.

The loop is that of ``speculative`` with rows in the forwards. What is decided or drawn is so for each row by
itself, with its own sampler, in the order of its own batch-1 run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdemo.decoding.batch.drafters import BatchDrafter
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.clock import LaneClock
from specdemo.decoding.gamma import Costs, GammaPolicy
from specdemo.decoding.lane import Lane, RawRound, RoundResult

RawRounds = list[tuple[int, RawRound]]
"""One round of every row that took part, with the row's number."""


def batched(
    lanes: Sequence[Lane], target: RaggedRunner, clock: LaneClock, drafter: BatchDrafter | None = None
) -> Iterator[RawRounds]:
    """Rounds of up to γ+1 tokens a row, of one token without a drafter, until all rows have stopped.

    Args:
        lanes: the rows, all on one clock.
        target: empty.
        clock: of all rows.
        drafter: for all rows.
    """
    numbers = list(range(len(lanes)))
    costs = Costs()  # of rounds of the whole batch, whichever row asked for how many tokens
    policies = [GammaPolicy(lane.settings, costs) for lane in lanes]

    def finished(results: Sequence[RoundResult]) -> RawRounds:
        clock.lap("other")
        return [(n, lanes[n].raw_round(result)) for n, result in zip(numbers, results, strict=True)]

    def plain(feeds: Sequence[Sequence[int]]) -> RawRounds:
        logits = target.forward(feeds, last=True)
        clock.lap("verify")
        return finished([lanes[n].emit(row) for n, row in zip(numbers, logits.split(1), strict=True)])

    # 0. The models take in the prompts; the target's last logits give the first tokens.
    clock.resume()
    if drafter is not None:
        drafter.prefill(lanes)
        clock.lap("draft")
    yield plain([lane.prompt_ids for lane in lanes])

    while staying := [place for place, n in enumerate(numbers) if lanes[n].stop is None]:
        if len(staying) < len(numbers):  # the others leave the batch and its caches
            numbers = [numbers[place] for place in staying]
            target.keep(staying)
            if drafter is not None:
                drafter.keep(staying)
        rows = [lanes[n] for n in numbers]
        clock.resume()
        if drafter is None:
            yield plain([row.committed[-1:] for row in rows])
            continue

        # 1. Draft for each row.
        proposals = drafter.propose(rows, [policies[n].next(lanes[n].remaining) for n in numbers])
        clock.lap("draft")

        # 2. One target forward over each row's last committed token and its drafted ones.
        logits = target.forward([[row.committed[-1], *p.ids] for row, p in zip(rows, proposals, strict=True)])
        clock.lap("verify")

        # 3. Each row keeps the leading drafted tokens that pass, then one token of the target's.
        results = [
            row.accept(proposal, of_row[: len(proposal) + 1])
            for row, proposal, of_row in zip(rows, proposals, logits, strict=True)
        ]

        # 4. The caches forget what was not kept, in each row its own number.
        target.rollback_to([len(row.committed) - 1 for row in rows])
        drafter.commit(rows)
        raw_rounds = finished(results)
        drafted = max(len(proposal) for proposal in proposals)
        costs.observe(drafted, clock.phases["draft"], clock.phases["verify"] + clock.phases["other"])
        for n, raw in raw_rounds:
            policies[n].observe(raw)
        yield raw_rounds
