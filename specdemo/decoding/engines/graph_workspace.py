"""A Llama-shaped model over memory that stays in place, and the work captured over it as CUDA graphs.

A graph replays the same kernels on the same addresses. So everything that changes from one replay to the next is
read from the device: the tokens, their positions, and with them where keys and values are written and how far a
token may look. Fixed are how many tokens there are, how many slots are looked at, and how many logits come out.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import torch

from specdemo.decoding.engines.graph_capture import Body, Capture, InputBuffer, Replay
from specdemo.decoding.engines.llama import Attention, LlamaModel
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
    """Why something could not be captured, or was captured wrongly."""

    reason: str  # in a few words, for the record
    lasting: bool  # whether it would fail again; not where memory was short

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """An error of CUDA goes on for lines."""
        first = (str(error).strip().splitlines() or ["no message"])[0]
        return cls(f"{type(error).__name__}: {first[:120].rstrip('.')}", not out_of_memory(error))

    def __str__(self) -> str:
        return f"graphs failed ({self.reason})"


class GraphWorkspace:
    """The inputs, outputs and KV cache of all replays of one lane, which has them for itself.

    What cannot be captured runs as it is, each time anew: slower, and no different. ``capacity`` is the number of
    tokens that the KV cache takes.
    """

    def __init__(self, model: LlamaModel, capacity: int, capture: Capture) -> None:
        self.model, self.capacity, self._capture = model, capacity, capture
        device, shape = model.device, (len(model.layers), 2 * model.kv_heads, capacity, model.head_dim)
        # (layers, 2 · KV heads, capacity, head_dim): keys, then values. Slots that hold nothing yet are zeros,
        # since what is masked is still multiplied.
        self.states = torch.zeros(shape, dtype=model.dtype, device=device)
        self.positions = torch.arange(capacity, device=device)  # (capacity,) of all slots
        self._cos, self._sin = model.rotary.at(0, capacity)
        self.inputs = InputBuffer(1 + WIDEST, device)  # the position of the first token fed, then the tokens
        # (WIDEST, vocabulary) float32, the first rows written by every forward
        self.logits = torch.zeros(WIDEST, model.vocabulary, device=device)
        self.failure: Failure | None = None  # why something could not be captured
        self.proven: set[Hashable] = set()  # keys of what was compared with the model, and need not be again
        self._offsets = torch.arange(WIDEST, device=device)
        self._captured: OrderedDict[Hashable, Replay] = OrderedDict()
        self._hidden: dict[tuple[int, ...], torch.Tensor] = {}

    def run(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        kv_length: int | None,
        keep: int,
        layers: int | None = None,
        aux_layers: Sequence[int] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Feed tokens, by operations that do not wait for the device; logits and hidden states of ``model.run``.

        Args:
            tokens: (n,) ids on the model's device.
            positions: (n,) where they stand, and so the slots for their keys and values.
            kv_length: look at the first so many slots, of which each token attends to those up to its own; None if
                nothing stands before the first token.
            keep, layers, aux_layers: see ``model.run``.
        """
        model = self.model

        def store(index: int, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            states = self.states[index]
            states.index_copy_(1, positions, new)
            return states[:, :kv_length].unsqueeze(0).split(model.kv_heads, dim=1)

        mask = None if kv_length is None else self._causal_mask(self.positions[:kv_length], positions)
        angles = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        attention = Attention(model, angles, store, mask, causal=kv_length is None)
        return model.run(tokens, attention, keep, layers, aux_layers)

    def _causal_mask(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(n · heads per KV head, kv): −∞ where a slot stands behind the token that looks."""
        behind = slots > positions.unsqueeze(1)
        mask = torch.zeros(behind.shape, dtype=self.model.dtype, device=self.model.device)
        mask.masked_fill_(behind, -torch.inf)
        return mask.unsqueeze(1).expand(-1, self.model.heads_per_kv_head, -1).reshape(-1, mask.shape[1])

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
            tokens = self.inputs.numbers[1 : 1 + count]
            positions = self.inputs.numbers[:1] + self._offsets[:count]
            fed, hidden = self.run(tokens, positions, kv_length, count, layers, aux_layers)
            self.logits[:count].copy_(fed)
            if kept is not None and hidden is not None:
                kept[:count].copy_(hidden)

        return self._replay((count, kv_length, layers, aux_layers), body)

    def hidden(self, aux_layers: tuple[int, ...]) -> torch.Tensor | None:
        """(WIDEST, layers · H), the first rows written by forwards with these aux_layers; None without."""
        if aux_layers and aux_layers not in self._hidden:
            width = len(aux_layers) * self.model.hidden_size
            self._hidden[aux_layers] = torch.zeros(WIDEST, width, dtype=self.model.dtype, device=self.model.device)
        return self._hidden.get(aux_layers)

    def _replay(self, key: Hashable, body: Body) -> Replay:
        """The replay of a body, or the body itself where it cannot be captured."""
        if key in self._captured:
            self._captured.move_to_end(key)
            return self._captured[key]
        try:
            self._captured[key] = self._capture(body)
        except Exception as error:  # whatever it is: the lane can be decoded without, and the reason is shown
            _log.warning("a CUDA graph could not be captured", exc_info=True)
            self._captured[key] = body
            self.failure = self.failure or Failure.of(error)
        # Only now: the memory that all captures share is held by those that are left.
        if len(self._captured) > MOST_CAPTURED:
            self._captured.popitem(last=False)
        return self._captured[key]
