"""Prompt lookup: what followed the last words when they stood here before is likely to follow again."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.decoding.batch.loop import BatchDrafter
from specdemo.decoding.drafters.base import Drafter, DrafterSpec
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal


class LookupDrafter(Drafter):
    """Copies from the prompt and the output so far; needs no model (Saxena 2023, "Prompt lookup decoding").

    What is copied followed the most recent occurrence of the longest end of the text, of up to ``longest`` tokens,
    that stood there before. Nothing is drawn, so q is one-hot. Where nothing matches it proposes nothing, and the
    round is a plain step of the target. A token and a look-up take O(1).
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._after: dict[tuple[int, ...], int] = {}  # where each n-gram that has a token after it last ended
        self._indexed = 0

    def prefill(self, ids: Sequence[int]) -> None:
        self.commit(ids)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        lengths = range(min(self._longest, len(committed)), 0, -1)
        found = (self._after.get(tuple(committed[-n:])) for n in lengths)
        start = next((place for place in found if place is not None), None)
        if start is None:
            return NOTHING_DRAFTED
        # A copy that reaches the end of the text goes on with its own beginning, as a repetition would.
        period = len(committed) - start
        return Proposal.known([committed[start + i % period] for i in range(gamma)], source=start)

    def commit(self, committed: Sequence[int]) -> None:
        for end in range(self._indexed + 1, len(committed)):
            for n in range(1, min(self._longest, end) + 1):
                self._after[tuple(committed[end - n : end])] = end
            self._indexed = end


def _fresh(lane: Lane) -> LookupDrafter:
    return LookupDrafter(lane.settings.lookup_ngram)


SPEC = DrafterSpec(
    open=lambda pair, target, lane: _fresh(lane),
    open_batch=lambda pair, rows: BatchDrafter([_fresh(lane) for lane in rows]),
)
