"""A Llama-shaped model's forward over slots that never move: what a CUDA graph can record.

A graph replays the same kernels on the same addresses. So everything that changes from one replay to the next is
read from the device: the tokens, their positions, and with them where keys and values are written and how far a
token may look. Fixed are how many tokens there are, how many slots are looked at, and how many logits come out.
The arithmetic is that of :mod:`specdemo.decoding.engines.llama`; no operation here waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdemo.decoding.engines.llama_attention import Attention
from specdemo.decoding.engines.llama_parts import LlamaModel


@dataclass(frozen=True, slots=True)
class Slots:
    """Memory for the keys and values of one sequence.

    Attributes:
        states: (layers, 2 · KV heads, capacity, head_dim): keys, then values. Slots that hold nothing yet are
            zeros, since what is masked is still multiplied.
        cos, sin: (capacity, 1, head_dim) of every position.
        positions: (capacity,) the positions themselves.
    """

    states: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    positions: torch.Tensor

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return self.states.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self.states.nbytes


class GraphModel(LlamaModel):
    """The layers of one model; every tensor that a forward reads or writes is given to it."""

    def slots(self, capacity: int) -> Slots:
        """Empty slots."""
        shape = (len(self.layers), 2 * self.kv_heads, capacity, self.head_dim)
        states = torch.zeros(shape, dtype=self.dtype, device=self.device)
        return Slots(states, *self.rotary.at(0, capacity), torch.arange(capacity, device=self.device))

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: Slots,
        kv_length: int | None,
        keep: int,
        layers: int | None = None,
        aux_layers: Sequence[int] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Write the tokens' keys and values into their slots.

        Args:
            tokens: (n,) ids on the model's device; one that it has no embedding for is taken for the last.
            positions: (n,) where they stand.
            slots: hold what stands before them.
            kv_length: look at the first so many slots, of which each token attends to those up to its own; None if
                nothing stands before the first token.
            keep: of how many of the last tokens logits are wanted.
            layers: run only the first so many, then norm and head.
            aux_layers: layers whose input is wanted.

        Returns:
            logits (keep, vocabulary) and auxiliary hidden states (n, layers · H), in the model's type.
        """

        def store(index: int, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            states = slots.states[index]
            states.index_copy_(1, positions, new)
            return states[:, :kv_length].unsqueeze(0).split(self.kv_heads, dim=1)

        mask = None if kv_length is None else self._causal_mask(slots.positions[:kv_length], positions)
        angles = slots.cos.index_select(0, positions), slots.sin.index_select(0, positions)
        attention = Attention(self, angles, store, mask, causal=kv_length is None)
        return self.run(tokens, attention, keep, layers, aux_layers)

    def _causal_mask(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(n · heads per KV head, kv): −∞ where a slot stands behind the token that looks."""
        behind = slots > positions.unsqueeze(1)
        mask = torch.zeros(behind.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(behind, -torch.inf)
        return mask.unsqueeze(1).expand(-1, self.heads_per_kv_head, -1).reshape(-1, mask.shape[1])
