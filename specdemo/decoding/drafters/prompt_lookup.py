"""Prompt lookup: what followed the last words when they stood here before is likely to follow again."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.decoding.batch.drafters import SeparateDrafters
from specdemo.decoding.drafters.base import DrafterSpec
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal


class NgramIndex:
    """Where each n-gram of a growing text last ended, for n from 1 to ``longest``; O(1) a token and a look-up."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def extend(self, ids: Sequence[int]) -> None:
        """Index the n-grams of ``ids`` that have a token after them; ``ids`` only ever grows."""
        for end in range(self._indexed + 1, len(ids)):
            for n in range(1, min(self._longest, end) + 1):
                self._after[tuple(ids[end - n : end])] = end
            self._indexed = end

    def find(self, ids: Sequence[int]) -> int | None:
        """Where the most recent occurrence of the longest known end of ``ids`` goes on; None if none is known."""
        for n in range(min(self._longest, len(ids)), 0, -1):
            place = self._after.get(tuple(ids[-n:]))
            if place is not None:
                return place
        return None


class LookupDrafter:
    """Copies from the prompt and the output so far; needs no model (Saxena 2023, "Prompt lookup decoding").

    Nothing is drawn, so q is one-hot. Where nothing matches it proposes nothing, and the round is a plain
    step of the target.
    """

    engine = None

    def __init__(self, longest: int) -> None:
        self._index = NgramIndex(longest)

    def prefill(self, ids: Sequence[int]) -> None:
        self._index.extend(ids)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        start = self._index.find(committed)
        if start is None:
            return NOTHING_DRAFTED
        # A copy that reaches the end of the text goes on with its own beginning, as a repetition would.
        period = len(committed) - start
        return Proposal.known([committed[start + i % period] for i in range(gamma)], source=start)

    def commit(self, committed: Sequence[int]) -> None:
        self._index.extend(committed)


def _fresh(lane: Lane) -> LookupDrafter:
    return LookupDrafter(lane.settings.lookup_ngram)


SPEC = DrafterSpec(
    open=lambda pair, target, lane: _fresh(lane),
    open_batch=lambda pair, rows: SeparateDrafters([_fresh(lane) for lane in rows]),
)
