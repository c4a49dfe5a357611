"""Decoding of several prompts together, each row keeping its own number of tokens a round.

The loop is that of ``speculative`` with rows in the forwards. What is decided or drawn is so for each row by
itself, with its own sampler, in the order of its own batch-1 run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.clock import LaneClock
from specdemo.decoding.gamma import Costs, GammaPolicy
from specdemo.decoding.lane import Lane, RawRound
from specdemo.decoding.proposal import NOTHING_DRAFTED, Draft, Proposal

if TYPE_CHECKING:
    from specdemo.decoding.drafters.base import Drafter

RawRounds = list[tuple[int, RawRound]]
"""One round of every row that took part, with the row's number."""


class BatchDrafter:
    """Proposes for all rows, which are always given in the same order: by a drafter of its own for each.

    Without a model nothing is won by working together.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = list(drafters)

    def prefill(self, rows: Sequence[Lane]) -> None:
        for drafter, row in zip(self._drafters, rows, strict=True):
            drafter.prefill(row.prompt_ids)

    def propose(self, rows: Sequence[Lane], gammas: Sequence[int]) -> list[Proposal]:
        """For each row up to its own γ tokens; none for γ = 0."""
        return [
            drafter.propose(row.committed, gamma) if gamma else NOTHING_DRAFTED
            for drafter, row, gamma in zip(self._drafters, rows, gammas, strict=True)
        ]

    def commit(self, rows: Sequence[Lane]) -> None:
        """The round ended: the rows' committed tokens hold what was kept and the target's own."""
        for drafter, row in zip(self._drafters, rows, strict=True):
            drafter.commit(row.committed)

    def keep(self, places: Sequence[int]) -> None:
        """All rows but these have left."""
        self._drafters = [self._drafters[place] for place in places]


class BatchModelDrafter(BatchDrafter):
    """A smaller model that decodes ahead in all rows at once; each draws with its own sampler.

    Rows that asked for fewer tokens wait for the others: they are fed along, and what comes of it is dropped.
    """

    def __init__(self, runner: RaggedRunner) -> None:
        self._runner = runner

    def prefill(self, rows: Sequence[Lane]) -> None:
        self._runner.forward([row.prompt_ids for row in rows], last=True)

    def propose(self, rows: Sequence[Lane], gammas: Sequence[int]) -> list[Proposal]:
        drafts = [Draft(row.sampler, row.committed) for row in rows]
        # What the cache lacks: the target's last token, and the last drafted one if all were kept.
        feeds: Sequence[Sequence[int]] | torch.Tensor
        feeds = [row.committed[held:] for row, held in zip(rows, self._runner.lengths, strict=True)]
        nothing = torch.zeros(1, dtype=torch.long, device=rows[0].sampler.device)
        left = list(gammas)  # tokens that each row may still draft
        while any(left):
            logits = self._runner.forward(feeds, last=True).split(1)
            taken = [draft.take(row) if n else None for draft, row, n in zip(drafts, logits, left, strict=True)]
            left = [0 if token is None else n - 1 for token, n in zip(taken, left, strict=True)]
            feeds = torch.stack([nothing if token is None else token for token in taken])
        return [draft.proposal() for draft in drafts]

    def commit(self, rows: Sequence[Lane]) -> None:
        # Everything before the target's new token is common ground, unless it was never fed.
        held = zip(rows, self._runner.lengths, strict=True)
        self._runner.rollback_to([min(length, len(row.committed) - 1) for row, length in held])

    def keep(self, places: Sequence[int]) -> None:
        self._runner.keep(places)


def batched(
    lanes: Sequence[Lane], target: RaggedRunner, clock: LaneClock, drafter: BatchDrafter | None = None
) -> Iterator[RawRounds]:
    """Rounds of up to γ+1 tokens a row, of one token without a drafter, until all rows have stopped.

    All ``lanes``, the rows, are on the one ``clock``; ``target`` is empty.
    """
    numbers = list(range(len(lanes)))
    costs = Costs()  # of rounds of the whole batch, whichever row asked for how many tokens
    policies = [GammaPolicy(lane.settings, costs) for lane in lanes]

    def ended(raws: Sequence[RawRound]) -> RawRounds:
        clock.lap("other")
        return [(n, lanes[n].ended(raw)) for n, raw in zip(numbers, raws, strict=True)]

    def plain(feeds: Sequence[Sequence[int]]) -> RawRounds:
        logits = target.forward(feeds, last=True)
        clock.lap("verify")
        return ended([lanes[n].emit(row) for n, row in zip(numbers, logits.split(1), strict=True)])

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
        raws = [
            row.accept(proposal, of_row[: len(proposal) + 1])
            for row, proposal, of_row in zip(rows, proposals, logits, strict=True)
        ]

        # 4. The caches forget what was not kept, in each row its own number.
        target.rollback_to([len(row.committed) - 1 for row in rows])
        drafter.commit(rows)
        raw_rounds = ended(raws)
        drafted = max(len(proposal) for proposal in proposals)
        costs.observe(drafted, clock.phases["draft"], clock.phases["verify"] + clock.phases["other"])
        for n, raw in raw_rounds:
            policies[n].observe(raw)
        yield raw_rounds
