"""The attention of a Llama-shaped model for the tokens of one forward; where keys are kept is the caller's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from specdemo.decoding.engines.llama_parts import Attending, Layer

Store = Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Writes the new keys, then values, of the layer with this index, (2 · KV heads, n, head_dim), into a KV cache.

Returns all keys and all values of the layer that the tokens look at, (1, KV heads, kv, head_dim) each.
"""


class Attention:
    """Grouped attention with rotary positions, layer after layer.

    Args:
        model: whose layers they pass.
        angles: cosines and sines (n, 1, head_dim) of the tokens' positions.
        store: the KV cache.
        mask: (n · heads per KV head, kv), added to the scores; None where every token
            attends to all that ``store`` returns.
        causal: there is nothing before these tokens, and each attends to those up to its own; needs no mask.
    """

    def __init__(
        self,
        model: Attending,
        angles: tuple[torch.Tensor, torch.Tensor],
        store: Store,
        mask: torch.Tensor | None = None,
        causal: bool = False,
    ) -> None:
        self._model, self._store, self._mask, self._causal = model, store, mask, causal
        self._cos, self._sin = angles
        self._count = len(self._cos)
        heads, kv_heads = model.heads, model.kv_heads
        # Queries, keys and values of one layer; the next layer writes over them.
        self._states = self._cos.new_empty(self._count, heads + 2 * kv_heads, model.head_dim)
        self._projected = self._states.view(self._count, -1).split(
            [n * model.head_dim for n in (heads, kv_heads, kv_heads)], dim=1
        )
        self._rotated = self._states[:, : heads + kv_heads]

    def __call__(self, index: int, layer: Layer, y: torch.Tensor) -> torch.Tensor:
        """What the tokens, normed as y (n, H), gather from all before them: (n, heads · head_dim)."""
        for product, out in zip((layer.query, layer.key, layer.value), self._projected, strict=True):
            product.write_to(out, y)
        self._rotate(layer)
        # Keys and values stand beside each other: one write for both where the cache has them so too.
        keys, values = self._store(index, self._states[:, self._model.heads :].transpose(0, 1))
        return self._among_themselves() if self._causal else self._gather(keys, values)

    def _rotate(self, layer: Layer) -> None:
        """Norm the heads of queries and keys where the model does, and rotate them by their positions."""
        plain = self._rotated
        if layer.head_norms:
            split = plain.split([self._model.heads, self._model.kv_heads], dim=1)
            plain = torch.cat([norm(part) for norm, part in zip(layer.head_norms, split, strict=True)], dim=1)
        swapped = plain.roll(self._model.head_dim // 2, dims=-1)
        torch.addcmul(plain * self._cos, swapped, self._sin, out=self._rotated)

    def _gather(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        # The queries that share a group's keys stand beside each other as if they were more tokens, so that the
        # keys of the whole context need not be repeated for each of them.
        model = self._model
        queries = self._states[:, : model.heads]
        grouped = queries.reshape(self._count, model.kv_heads, model.heads_per_kv_head, model.head_dim).transpose(
            0, 1
        )
        out = functional.scaled_dot_product_attention(
            grouped.reshape(1, model.kv_heads, -1, model.head_dim), keys, values, self._mask, scale=model.scale
        )
        out = out.view(model.kv_heads, self._count, model.heads_per_kv_head, model.head_dim).transpose(0, 1)
        return out.reshape(self._count, -1)

    def _among_themselves(self) -> torch.Tensor:
        model = self._model
        queries, *shared = self._states.transpose(0, 1).split([model.heads, model.kv_heads, model.kv_heads])
        # Repeated for each query of a group: not every way of computing this on a GPU knows of groups, and the
        # one that knows none of the fast ways holds all scores at once.
        keys, values = (states.repeat_interleave(model.heads_per_kv_head, dim=0) for states in shared)
        out = functional.scaled_dot_product_attention(
            queries.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), is_causal=True, scale=model.scale
        )
        return out[0].transpose(0, 1).reshape(self._count, -1)
