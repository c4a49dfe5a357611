"""The attention of a Llama-shaped model for the tokens of one forward; where keys are kept is the caller's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from specdemo.decoding.engines.llama_parts import Attending, Layer

Store = Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Writes the new keys, then values, of the layer with this index, (2 · groups, n, size), into a KV cache.

Returns all keys and all values of the layer that the tokens look at, (1, groups, kv, size) each.
"""


class Attention:
    """Grouped attention with rotary positions, layer after layer.

    Args:
        model: whose layers they pass.
        angles: cosines and sines (n, 1, size) of the tokens' positions.
        store: the KV cache.
        mask: (n · per group, kv), added to the scores; None where every token sees all that ``store`` returns.
        causal: there is nothing before these tokens, and each sees those up to its own; needs no mask.
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
        heads, groups = model.heads, model.groups
        # Queries, keys and values of one layer; the next layer writes over them.
        self._states = self._cos.new_empty(self._count, heads + 2 * groups, model.size)
        self._projected = self._states.view(self._count, -1).split(
            [n * model.size for n in (heads, groups, groups)], dim=1
        )
        self._rotated = self._states[:, : heads + groups]

    def __call__(self, index: int, layer: Layer, y: torch.Tensor) -> torch.Tensor:
        """What the tokens, normed as y (n, width), gather from all before them: (n, heads · size)."""
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
            split = plain.split([self._model.heads, self._model.groups], dim=1)
            plain = torch.cat([norm(part) for norm, part in zip(layer.head_norms, split, strict=True)], dim=1)
        swapped = plain.roll(self._model.size // 2, dims=-1)
        torch.addcmul(plain * self._cos, swapped, self._sin, out=self._rotated)

    def _gather(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        # The queries that share a group's keys stand beside each other as if they were more tokens, so that the
        # keys of the whole context need not be repeated for each of them.
        model = self._model
        queries = self._states[:, : model.heads]
        packed = queries.reshape(self._count, model.groups, model.per_group, model.size).transpose(0, 1)
        out = functional.scaled_dot_product_attention(
            packed.reshape(1, model.groups, -1, model.size), keys, values, self._mask, scale=model.scale
        )
        out = out.view(model.groups, self._count, model.per_group, model.size).transpose(0, 1)
        return out.reshape(self._count, -1)

    def _among_themselves(self) -> torch.Tensor:
        model = self._model
        queries, *shared = self._states.transpose(0, 1).split([model.heads, model.groups, model.groups])
        # Repeated for each query of a group: not every way of computing this on a GPU knows of groups, and the
        # one that knows none of the fast ways holds all scores at once.
        keys, values = (states.repeat_interleave(model.per_group, dim=0) for states in shared)
        out = functional.scaled_dot_product_attention(
            queries.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), is_causal=True, scale=model.scale
        )
        return out[0].transpose(0, 1).reshape(self._count, -1)
