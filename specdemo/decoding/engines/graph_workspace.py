"""One lane's place at a model: slots for its keys and values, and the forwards captured over them."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Protocol

import torch

from specdemo.decoding.engines.graph_capture import Body, Capture, Inbox, Replay
from specdemo.decoding.engines.graph_model import StaticModel
from specdemo.settings import MAX_GAMMA

FIRST_SEEN = 128
"""Slots that the shortest forwards look at; longer ones at twice as many, and so on."""
WIDEST = MAX_GAMMA + 1
"""Tokens of the widest captured forward: a verify at the largest γ."""
MOST_CAPTURED = 64
"""Forwards kept; each takes a GPU some MB beside the memory that all of them share."""
_log = logging.getLogger(__name__)


class Chooser(Protocol):
    """How drafted tokens are chosen; all operations must be capturable."""

    greedy: bool
    width: int
    recipe: Hashable

    def scores(self, logits: torch.Tensor, prefix: tuple[()]) -> torch.Tensor:
        """(1, V) gives (1, ≤V)."""

    def probabilities(self, scores: torch.Tensor) -> torch.Tensor:
        """(1, V) gives (1, width)."""


class Seat:
    """Everything that must stay in place for one lane.

    Whoever holds a seat is alone on it: its tensors are the inputs and outputs of all its replays.

    Args:
        model: whose layers run.
        room: tokens that the slots take.
        capture: turns a body into a replay.

    Attributes:
        inbox: the position of the first token fed, then the tokens.
        logits: (WIDEST, vocabulary) float32, the first rows written by every forward.
        failure: why a forward could not be captured; None if none failed.
        draft_failures: the same of drafts, by their chooser's recipe.

    What cannot be captured runs as it is, each time anew: slower, and no different.
    """

    def __init__(self, model: StaticModel, room: int, capture: Capture) -> None:
        self.model, self._capture = model, capture
        self.slots = model.slots(room)
        self.inbox = Inbox(1 + WIDEST, model.device)
        self.logits = torch.zeros(WIDEST, model.vocabulary, device=model.device)
        self._offsets = torch.arange(WIDEST + MAX_GAMMA, device=model.device)
        self._captured: OrderedDict[Hashable, Replay] = OrderedDict()
        self.failure: str | None = None
        self.draft_failures: dict[Hashable, str] = {}
        self._drafts: dict[tuple[int, bool], DraftRoom] = {}

    @property
    def room(self) -> int:
        """Tokens that fit."""
        return self.slots.room

    def seen(self, end: int) -> int:
        """How many slots a forward looks at whose last token stands in slot ``end`` − 1."""
        seen = FIRST_SEEN
        while seen < end:
            seen *= 2
        return min(seen, self.room)

    def stages(self, first: int, last: int) -> Iterator[int]:
        """All that :meth:`seen` gives from ``first`` to ``last``."""
        seen = self.seen(first)
        while seen < self.seen(last):
            yield seen
            seen = self.seen(seen + 1)
        yield seen

    def forward(self, count: int, seen: int, layers: int | None = None) -> Replay:
        """A replay that feeds ``count`` tokens of the inbox and leaves their logits."""

        def body() -> None:
            tokens, positions = self.inbox.numbers[1 : 1 + count], self._positions(0, count)
            fed = self.model.forward(tokens, positions, self.slots, seen, count, layers)
            self.logits[:count].copy_(fed)

        replay, failure = self._replay(("forward", count, seen, layers), body)
        self.failure = self.failure or failure
        return replay

    def draft(self, gamma: int, lead: int, seen: int, chooser: Chooser, layers: int | None = None) -> Replay:
        """A replay that feeds ``lead`` tokens of the inbox and drafts γ, each fed to give the next.

        What comes out stands in :meth:`draft_room`; noise must be there if tokens are drawn.
        """
        room = self.draft_room(chooser)

        def body() -> None:
            tokens, positions = self.inbox.numbers[1 : 1 + lead], self._positions(0, lead)
            for step in range(gamma):
                logits = self.model.forward(tokens, positions, self.slots, seen, 1, layers)
                tokens = room.take(step, chooser, logits.float())
                positions = self._positions(lead + step, 1)

        replay, failure = self._replay(("draft", gamma, lead, seen, layers, chooser.recipe), body)
        if failure is not None:
            self.draft_failures[chooser.recipe] = failure
        return replay

    def draft_room(self, chooser: Chooser) -> DraftRoom:
        """Where drafts by this chooser come out."""
        key = (chooser.width, chooser.greedy)
        if key not in self._drafts:
            scored = min(chooser.width, self.model.vocabulary)
            drawn = 0 if chooser.greedy else chooser.width
            self._drafts[key] = DraftRoom(scored, drawn, self.model.device)
        return self._drafts[key]

    def _positions(self, first: int, count: int) -> torch.Tensor:
        return self.inbox.numbers[:1] + self._offsets[first : first + count]

    def _replay(self, key: Hashable, body: Body) -> tuple[Replay, str | None]:
        """The replay of a body, and why it is the body itself if it is."""
        if key in self._captured:
            self._captured.move_to_end(key)
            return self._captured[key], None
        failure = None
        try:
            self._captured[key] = self._capture(body)
        except Exception as error:  # whatever it is: the lane can be decoded without, and the reason is shown
            _log.warning("a CUDA graph could not be captured", exc_info=True)
            self._captured[key], failure = body, _said(error)
        # Only now: the memory that all captures share is held by those that are left.
        if len(self._captured) > MOST_CAPTURED:
            self._captured.popitem(last=False)
        return self._captured[key], failure


def _said(error: Exception) -> str:
    """In a few words: an error of CUDA goes on for lines."""
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first[:120].rstrip('.')}"


class DraftRoom:
    """Where a draft of up to MAX_GAMMA tokens comes out.

    Attributes:
        tokens: (MAX_GAMMA,) drafted ids.
        scores: (MAX_GAMMA, scored) what they were chosen by.
        q: (MAX_GAMMA, drawn) what they were drawn from; nothing of a greedy draft.
        noise: (MAX_GAMMA, drawn) exponential draws, made before the replay.
    """

    def __init__(self, scored: int, drawn: int, device: torch.device) -> None:
        self.tokens = torch.zeros(MAX_GAMMA, dtype=torch.long, device=device)
        self.scores = torch.zeros(MAX_GAMMA, scored, device=device)
        self.q = torch.zeros(MAX_GAMMA, drawn, device=device)
        self.noise = torch.ones(MAX_GAMMA, drawn, device=device)

    def draw(self, count: int, generator: torch.Generator) -> None:
        """Fresh noise for the first ``count`` tokens, by the draws that ``Sampler.draw`` makes for one each."""
        for row in range(count):
            self.noise[row : row + 1].exponential_(generator=generator)

    def take(self, step: int, chooser: Chooser, logits: torch.Tensor) -> torch.Tensor:
        """The token (1,) that ``logits`` (1, V) give at this step; written down with where it came from."""
        row = slice(step, step + 1)
        scores = chooser.scores(logits, ())
        self.scores[row].copy_(scores)
        if chooser.greedy:
            self.tokens[row].copy_(scores.argmax(-1))
        else:
            q = chooser.probabilities(scores)
            self.q[row].copy_(q)
            # The most of p/e, e from the exponential distribution, is a draw from p: torch.multinomial's own way,
            # but without its questions to the device.
            self.tokens[row].copy_((q / self.noise[row]).argmax(-1))
        return self.tokens[row]
