"""A Llama-shaped model's forward over slots that never move: what a CUDA graph can record.

A graph replays the same kernels on the same addresses. So everything that changes from one replay to the next is
read from the device: the tokens, their positions, and with them where keys and values are written and how far a
token may look. Fixed are how many tokens there are, how many slots are looked at, and how many logits come out.
The arithmetic is that of :mod:`specdemo.decoding.engines.llama`; no operation here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from specdemo.decoding.engines.llama_parts import Layer, Norm, Product, Turns

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Slots:
    """Room for the keys and values of one sequence.

    Attributes:
        states: (layers, 2·groups, room, size): the groups' keys, then their values. Slots that hold nothing yet
            are zeros, since what is masked is still multiplied.
        cos, sin: (room, 1, size) of every position.
        numbers: (room,) the positions themselves.
    """

    states: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    numbers: torch.Tensor

    @property
    def room(self) -> int:
        """Tokens that fit."""
        return self.states.shape[2]

    @property
    def held(self) -> int:
        """Bytes of keys and values."""
        return self.states.numel() * self.states.element_size()


class StaticModel:
    """The layers of one model. Holds its parameters, not the model."""

    def __init__(self, model: PreTrainedModel) -> None:
        config, decoder = model.config, model.model
        self.dtype = model.dtype
        self._embeddings = decoder.embed_tokens.weight.detach()
        self.device = self._embeddings.device
        self._layers = [Layer.of(layer, columns=False) for layer in decoder.layers]
        self._norm = Norm.of(decoder.norm)
        self._head = Product.of(model.lm_head, columns=False)
        self._turns = Turns(decoder.rotary_emb, model.dtype, self.device)
        attention = decoder.layers[0].self_attn
        self.size, self.scale = attention.head_dim, attention.scaling
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.vocabulary = self._head.weight.shape[0]

    def slots(self, room: int) -> Slots:
        """Empty slots for ``room`` tokens."""
        cos, sin = self._turns.at(0, room)
        return Slots(
            torch.zeros(
                (len(self._layers), 2 * self.groups, room, self.size), dtype=self.dtype, device=self.device
            ),
            cos.contiguous(),
            sin.contiguous(),
            torch.arange(room, device=self.device),
        )

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: Slots,
        seen: int | None,
        keep: int,
        layers: int | None = None,
    ) -> torch.Tensor:
        """Write the tokens' keys and values into their slots.

        Args:
            tokens: (n,) ids on the model's device; one that it has no embedding for is taken for the last.
            positions: (n,) where they stand.
            slots: hold what stands before them.
            seen: look at the first so many slots, of which each token sees those up to its own; None if nothing
                stands before the first token.
            keep: of how many of the last tokens logits are wanted.
            layers: run only the first so many, then norm and head.

        Returns:
            logits (keep, vocabulary) in the model's type.
        """
        x = functional.embedding(tokens.clamp(max=self._embeddings.shape[0] - 1), self._embeddings)
        step = _Step(self, positions, slots, seen, x)
        for layer, states in zip(self._layers[:layers], slots.states, strict=False):
            layer.attended.onto(x, step.attend(layer, layer.before_attention(x), states))
            y = layer.before_mlp(x)
            gate = functional.silu(layer.gate(y), inplace=True)
            layer.down.onto(x, gate.mul_(layer.up(y)))
        return self._head(self._norm(x[len(x) - keep :]))


class _Step:
    """What all layers of one forward share: positions, angles and mask."""

    def __init__(
        self, model: StaticModel, positions: torch.Tensor, slots: Slots, seen: int | None, x: torch.Tensor
    ) -> None:
        self._heads, self._groups, self._size = model.heads, model.groups, model.size
        self._per_group, self._scale = model.heads // model.groups, model.scale
        self._count, self._positions, self._seen = len(x), positions, seen
        self._cos, self._sin = slots.cos.index_select(0, positions), slots.sin.index_select(0, positions)
        self._mask = None if seen is None else self._hidden(slots.numbers[:seen], x)

    def _hidden(self, numbers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """(n·per group, seen) to be added to the scores: −∞ where a slot stands behind the token that looks."""
        behind = numbers > self._positions.unsqueeze(1)
        mask = x.new_zeros(behind.shape).masked_fill_(behind, -torch.inf)
        return mask.unsqueeze(1).expand(-1, self._per_group, -1).reshape(-1, mask.shape[1])

    def attend(self, layer: Layer, y: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """What the tokens y (n, width) gather from all before them, before the output product."""
        turning = self._heads + self._groups
        mixed = y.new_empty(self._count, turning + self._groups, self._size)
        flat = mixed.view(self._count, -1).split(
            [heads * self._size for heads in (self._heads, self._groups, self._groups)], dim=1
        )
        for product, out in zip((layer.query, layer.key, layer.value), flat, strict=True):
            product.into(out, y)
        turned = mixed[:, :turning]
        if layer.query_norm is not None and layer.key_norm is not None:
            split = turned.split([self._heads, self._groups], dim=1)
            norms = (layer.query_norm, layer.key_norm)
            turned = torch.cat([norm(part) for norm, part in zip(norms, split, strict=True)], dim=1)
        swapped = turned.roll(self._size // 2, dims=-1)
        torch.addcmul(turned * self._cos, swapped, self._sin, out=mixed[:, :turning])
        # Keys and values stand beside each other there as here: one write for both.
        states.index_copy_(1, self._positions, mixed[:, self._heads :].transpose(0, 1))
        queries = mixed[:, : self._heads]
        return self._first(mixed) if self._seen is None else self._gather(queries, states[:, : self._seen])

    def _gather(self, queries: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        # Queries that share a group's keys stand beside each other as if they were more tokens: see direct.py.
        packed = queries.reshape(self._count, self._groups, self._per_group, self._size).transpose(0, 1)
        keys, values = states.unsqueeze(0).split(self._groups, dim=1)
        out = functional.scaled_dot_product_attention(
            packed.reshape(1, self._groups, -1, self._size), keys, values, self._mask, scale=self._scale
        )
        out = out.view(self._groups, self._count, self._per_group, self._size).transpose(0, 1)
        return out.reshape(self._count, -1)

    def _first(self, mixed: torch.Tensor) -> torch.Tensor:
        """The same for tokens with nothing before them, where no mask need be made."""
        split = mixed.transpose(0, 1).split([self._heads, self._groups, self._groups])
        # Repeated for each query of a group: not every way of computing this on a GPU knows of groups, and the
        # one that knows none of the fast ways holds all scores at once.
        keys, values = (part.repeat_interleave(self._per_group, dim=0) for part in split[1:])
        out = functional.scaled_dot_product_attention(
            split[0].unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), is_causal=True, scale=self._scale
        )
        return out[0].transpose(0, 1).reshape(self._count, -1)
