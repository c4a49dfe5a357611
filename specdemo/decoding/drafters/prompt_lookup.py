"""Prompt lookup: what followed the last words when they stood here before is likely to follow again."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.decoding.batch.drafters import SeparateDrafters
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal
from specdemo.drafters import DrafterSpec


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

    Its choice is certain, so q is one-hot. Where nothing matches it proposes nothing, and the round is a plain
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


SPEC = DrafterSpec(
    name="prompt_lookup",
    label="prompt lookup",
    open=lambda pair, target, lane: LookupDrafter(lane.settings.lookup_ngram),
    method="lookup",
    open_batch=lambda pair, rows: SeparateDrafters([LookupDrafter(r.settings.lookup_ngram) for r in rows]),
    reads=("lookup_ngram",),
    copies=True,
    assisted="assisted_lookup",
    elsewhere={
        "transformers": "prompt_lookup_num_tokens={gamma},\n    max_matching_ngram_size={lookup_ngram}",
        "vllm": '{{"method": "ngram", "num_speculative_tokens": {gamma}, "prompt_lookup_max": {lookup_ngram}, '
        '"prompt_lookup_min": 1}}',
        "sglang": "--speculative-algorithm NGRAM --speculative-num-draft-tokens {rows}",
        "llama.cpp": "--spec-type ngram-simple --spec-ngram-simple-size-n {lookup_ngram} "
        "--spec-ngram-simple-size-m {gamma}",
    },
    about="copies what followed the last `lookup_ngram` tokens when they stood in prompt or output before; "
    "needs no draft model",
)
