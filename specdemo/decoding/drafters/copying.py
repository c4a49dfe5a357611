"""Copying: what followed the last tokens when they stood here before is likely to follow again. Needs no model."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from operator import mul
from typing import Any

import torch

from specdemo.decoding.batch.loop import BatchDrafter
from specdemo.decoding.drafters.base import Drafter, DrafterSpec
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal

LENGTHS = (1, 2, 4, 8, 16)
"""Of the matches that suffix decoding looks for, in tokens."""
PLACES = 32
"""Latest places of a match that it counts."""
LEAST = 0.1
"""Tokens that are less likely than that to be kept are not drafted: Arctic Inference's least probability."""
BREAK = -1
"""Stands between texts, over which nothing is copied."""
DECAY, PRIOR = 0.95, 4.0  # of what older copies count, per copy, and tokens that the first estimate counts for


class Places:
    """Where the n-grams of a growing text ended, for some n; a token is taken in, and a place found, in O(1).

    A place is the number of the token that follows, so that the end of the text is none yet.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.text: list[int] = []
        self._latest: dict[tuple[int, ...], int] = {}
        self._before = {n: array("i") for n in lengths}  # by place − n: the place before of the same n-gram
        self._indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """The text goes on with ``tokens``."""
        text, latest = self.text, self._latest
        text += tokens
        for place in range(self._indexed + 1, len(text)):
            for n, before in self._before.items():
                if n > place:
                    break
                ngram = tuple(text[place - n : place])
                before.append(latest.get(ngram, -1))
                latest[ngram] = place
            self._indexed = place

    def find(self, tail: Sequence[int], n: int, most: int) -> list[int]:
        """The latest places, at most so many, behind the last ``n`` tokens of ``tail``; the latest first."""
        before, found = self._before[n], list[int]()
        place = self._latest.get(tuple(tail[-n:]), -1) if len(tail) >= n else -1
        while place >= 0 and len(found) < most:
            found.append(place)
            place = before[place - n]
        return found

    def at(self, place: int, offset: int) -> int:
        """The token so far behind a place. What reaches the end begins again, as a repetition would."""
        here = place + offset
        return self.text[here if here < len(self.text) else place + offset % (len(self.text) - place)]


class Trust:
    """How often copied tokens were right, by the length of the match before them, over how often counts say so."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._right = [PRIOR * n / (n + 2) for n in lengths]
        self._tested = [PRIOR for _ in lengths]

    def of(self, length: int) -> float:
        """That a token behind a match of this length is right, if all its places go on with it."""
        place = bisect_right(self._lengths, length) - 1
        return min(self._right[place] / self._tested[place], 1.0)

    def most(self, length: int, depth: int) -> float:
        """Tokens to be kept of so many, if all places go on with them."""
        return sum(accumulate((self.of(length + level) for level in range(depth)), mul))

    def learn(self, length: int, share: float, right: bool) -> None:
        """A token was right or not, with which a ``share`` of the places go on."""
        place = bisect_right(self._lengths, length) - 1
        self._right[place] = DECAY * self._right[place] + right
        self._tested[place] = DECAY * self._tested[place] + share


class CopyingDrafter(Drafter):
    """Copies from prompt and output so far, and from ``earlier`` texts, behind matches of these ``lengths``.

    *Prompt lookup* (Saxena 2023) copies what followed the latest place of the longest match. *Suffix decoding*
    (``counts``; Oliaro et al., arXiv 2411.04975, as in Arctic Inference) counts what followed each of the latest
    places, for matches of several lengths, in this text and in earlier ones, and takes the copy that promises most
    tokens. It promises what the counts say times how often copies behind such a match have been right here. That
    is learned in every round, also from copies that were not drafted: the committed text shows what was right.

    Nothing is drawn, so q is one-hot. Where nothing matches the round is a plain step of the target.
    """

    def __init__(
        self, lengths: Sequence[int], counts: bool, p_min: float = 0.0, earlier: Sequence[Sequence[int]] = ()
    ) -> None:
        self._lengths, self._counts, self._p_min = lengths, counts, p_min
        self._own, self._trust = Places(lengths), Trust(lengths)
        self._indices = [self._own]
        if earlier:
            self._indices.append(Places(lengths))
            self._indices[1].extend([*chain.from_iterable((*text, BREAK) for text in earlier)])
        self._path: list[tuple[int, int, float]] = []

    def prefill(self, ids: Sequence[int]) -> None:
        self._own.extend(ids)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        return self._proposal(committed, gamma, gamma, 1)

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        return self._proposal(committed, depth, nodes, nodes)

    def _proposal(self, committed: Sequence[int], depth: int, nodes: int, siblings: int) -> Proposal:
        best = NOTHING_DRAFTED, list[Any]()
        for index in self._indices:
            places: list[int] = []
            for n in reversed(self._lengths):
                longer, places = places, index.find(committed, n, PLACES if self._counts else 1)
                known = best[0].expected or 0.0
                if places and places != longer and self._trust.most(n, depth) > known:
                    copy = self._grow(index, places, n, depth, nodes, siblings)
                    best = copy if (copy[0].expected or 0.0) > known else best
                    if not self._counts:
                        break
        self._path = best[1]
        return best[0]

    def _grow(
        self, index: Places, places: list[int], n: int, depth: int, nodes: int, siblings: int
    ) -> tuple[Proposal, list[tuple[int, int, float]]]:
        """The likeliest tokens behind a match of length ``n``, at most so many and so deep, each with at most so
        many beside it; and the first guesses: tokens, lengths of the matches before them, shares of the places.
        """
        tokens, parents, expected, source = list[int](), list[int](), 0.0, None
        path, on_path = list[tuple[int, int, float]](), 0
        heap, least = list[tuple[Any, ...]](), LEAST if self._counts else 0.0

        def offer(places: list[int], parent: int, level: int, chance: float) -> None:
            after: dict[int, list[int]] = {}
            for place in places:
                after.setdefault(index.at(place, level), []).append(place)
            after.pop(BREAK, None)
            trust = self._trust.of(n + level)
            # Of tokens alike the one that was found first: the latest.
            for rank, (token, those) in enumerate(sorted(after.items(), key=lambda a: -len(a[1]))[:siblings]):
                share = len(those) / len(places)
                if rank == 0 and share * trust < self._p_min:
                    break
                if chance * share * trust >= least:
                    order = len(tokens), rank
                    heapq.heappush(heap, (-chance * share * trust, order, parent, level, token, share, those))

        offer(places, 0, 0, 1.0)
        while heap and len(tokens) < nodes:
            chance, (_, rank), parent, level, token, share, those = heapq.heappop(heap)
            tokens.append(token)
            parents.append(parent)
            expected -= chance
            if rank == 0 and parent == on_path:
                on_path = len(tokens)
                path.append((token, n + level, share))
                source = those[0] if index is self._own else None
            if level + 1 < depth:
                offer(those, len(tokens), level + 1, -chance)
        if not tokens:
            return NOTHING_DRAFTED, path
        if parents == [*range(len(tokens))]:
            return Proposal(torch.tensor(tokens), source=source, expected=expected), path
        return Proposal(torch.tensor(tokens), parents=tuple(parents), expected=expected), path

    def commit(self, committed: Sequence[int]) -> None:
        new = committed[len(self._own.text) :]
        for (token, length, share), right in zip(self._path, new, strict=False):
            self._trust.learn(length, share, token == right)
            if token != right:
                break
        self._path = []
        self._own.extend(new)


def _spec(counts: bool) -> DrafterSpec:
    def opened(lane: Lane) -> CopyingDrafter:
        settings = lane.settings
        if not counts:
            return CopyingDrafter(range(1, settings.lookup_ngram + 1), counts, settings.p_min)
        earlier = lane.earlier if settings.earlier_outputs else ()
        return CopyingDrafter(LENGTHS, counts, settings.p_min, earlier)

    return DrafterSpec(
        open=lambda pair, target, lane: opened(lane),
        open_batch=lambda pair, rows: BatchDrafter([opened(lane) for lane in rows]),
    )


LOOKUP, SUFFIX = _spec(counts=False), _spec(counts=True)
