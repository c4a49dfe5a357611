"""The memory of one lane at a model that must stay in place, and the forwards captured over it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import NamedTuple

import torch

from specdemo.decoding.engines.draft_buffers import DraftBuffers
from specdemo.decoding.engines.graph_capture import Body, Capture, InputBuffer, Replay
from specdemo.decoding.engines.graph_model import GraphModel
from specdemo.decoding.sampling import Sampler
from specdemo.models.failures import out_of_memory
from specdemo.settings import MAX_GAMMA

FIRST_KV_BUCKET = 128
"""Slots that the shortest forwards look at; longer ones at twice as many, and so on."""
WIDEST = MAX_GAMMA + 1
"""Tokens of the widest captured forward: a verify at the largest γ."""
MOST_CAPTURED = 64
"""Forwards kept; each takes a GPU some MB beside the memory that all of them share."""
_log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """Why something could not be captured, or was captured wrongly.

    Attributes:
        reason: in a few words, for the record.
        lasting: whether it would fail again; not where memory was short.
    """

    reason: str
    lasting: bool

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """An error of CUDA goes on for lines."""
        first = (str(error).strip().splitlines() or ["no message"])[0]
        return cls(f"{type(error).__name__}: {first[:120].rstrip('.')}", not out_of_memory(error))


class GraphWorkspace:
    """The inputs, outputs and KV cache of all replays of one lane, which has them for itself.

    What cannot be captured runs as it is, each time anew: slower, and no different.

    Args:
        model: whose layers run.
        capacity: tokens that the KV cache takes.
        capture: turns a body into a replay.

    Attributes:
        inputs: the position of the first token fed, then the tokens.
        logits: (WIDEST, vocabulary) float32, the first rows written by every forward.
        failure: why a forward could not be captured; None if none failed.
        draft_failures: the same of drafts, by ``Sampler.sampling_key``.
        proven: keys of what was compared with the model, and need not be again.
    """

    def __init__(self, model: GraphModel, capacity: int, capture: Capture) -> None:
        self.model, self._capture = model, capture
        self.slots = model.slots(capacity)
        self.inputs = InputBuffer(1 + WIDEST, model.device)
        self.logits = torch.zeros(WIDEST, model.vocabulary, device=model.device)
        self._offsets = torch.arange(WIDEST + MAX_GAMMA, device=model.device)
        self._captured: OrderedDict[Hashable, Replay] = OrderedDict()
        self.failure: Failure | None = None
        self.draft_failures: dict[Hashable, Failure] = {}
        self.proven: set[Hashable] = set()
        self._drafts: dict[tuple[int, bool], DraftBuffers] = {}
        self._hidden: dict[tuple[int, ...], torch.Tensor] = {}

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return self.slots.capacity

    def kv_length(self, end: int) -> int:
        """How many slots a forward looks at whose last token stands in slot ``end`` − 1."""
        length = FIRST_KV_BUCKET
        while length < end:
            length *= 2
        return min(length, self.capacity)

    def kv_buckets(self, first: int, last: int) -> Iterator[int]:
        """All that :meth:`kv_length` gives from ``first`` to ``last``."""
        length = self.kv_length(first)
        while length < self.kv_length(last):
            yield length
            length = self.kv_length(length + 1)
        yield length

    def forward(
        self, count: int, kv_length: int, layers: int | None = None, aux_layers: tuple[int, ...] = ()
    ) -> Replay:
        """A replay that feeds ``count`` tokens of the inputs and leaves logits and auxiliary hidden states."""
        kept = self.hidden(aux_layers)

        def body() -> None:
            tokens, positions = self.inputs.numbers[1 : 1 + count], self._positions(0, count)
            fed, hidden = self.model.forward(tokens, positions, self.slots, kv_length, count, layers, aux_layers)
            self.logits[:count].copy_(fed)
            if kept is not None and hidden is not None:
                kept[:count].copy_(hidden)

        replay, failure = self._replay(("forward", count, kv_length, layers, aux_layers), body)
        self.failure = self.failure or failure
        return replay

    def draft(
        self, gamma: int, prefix: int, kv_length: int, sampler: Sampler, layers: int | None = None
    ) -> Replay:
        """A replay that feeds ``prefix`` tokens of the inputs and drafts γ, each fed to give the next.

        What comes out stands in :meth:`draft_buffers`; noise must be there if tokens are drawn.
        """
        buffers = self.draft_buffers(sampler)

        def body() -> None:
            tokens, positions = self.inputs.numbers[1 : 1 + prefix], self._positions(0, prefix)
            for step in range(gamma):
                logits, _ = self.model.forward(tokens, positions, self.slots, kv_length, 1, layers)
                tokens = buffers.take(step, sampler, logits.float())
                positions = self._positions(prefix + step, 1)

        replay, failure = self._replay(("draft", gamma, prefix, kv_length, layers, sampler.sampling_key), body)
        if failure is not None:
            self.draft_failures[sampler.sampling_key] = failure
        return replay

    def hidden(self, aux_layers: tuple[int, ...]) -> torch.Tensor | None:
        """(WIDEST, layers · width), the first rows written by forwards with these aux_layers; None without."""
        if aux_layers and aux_layers not in self._hidden:
            width = len(aux_layers) * self.model.hidden_size
            self._hidden[aux_layers] = torch.zeros(WIDEST, width, dtype=self.model.dtype, device=self.model.device)
        return self._hidden.get(aux_layers)

    def draft_buffers(self, sampler: Sampler) -> DraftBuffers:
        """Where drafts by this sampler come out."""
        key = (sampler.vocabulary, sampler.greedy)
        if key not in self._drafts:
            self._drafts[key] = DraftBuffers(sampler, self.model.vocabulary, self.model.device)
        return self._drafts[key]

    def _positions(self, first: int, count: int) -> torch.Tensor:
        return self.inputs.numbers[:1] + self._offsets[first : first + count]

    def _replay(self, key: Hashable, body: Body) -> tuple[Replay, Failure | None]:
        """The replay of a body, and why it is the body itself if it is."""
        if key in self._captured:
            self._captured.move_to_end(key)
            return self._captured[key], None
        failure = None
        try:
            self._captured[key] = self._capture(body)
        except Exception as error:  # whatever it is: the lane can be decoded without, and the reason is shown
            _log.warning("a CUDA graph could not be captured", exc_info=True)
            self._captured[key], failure = body, Failure.of(error)
        # Only now: the memory that all captures share is held by those that are left.
        if len(self._captured) > MOST_CAPTURED:
            self._captured.popitem(last=False)
        return self._captured[key], failure
