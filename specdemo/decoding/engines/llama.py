"""A Llama-shaped model's forward without transformers' modules, for one sequence on a CPU.

A small model's step is mostly calls: a third of the time of a builtin target's step passes around its arithmetic.
Here the same arithmetic runs straight from the caller's own parameters, in the parts of
:mod:`specdemo.decoding.engines.llama_parts`. For which models: :mod:`specdemo.decoding.engines.llama_check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from specdemo.decoding.engines.kv_cache import LaneCache, LaneLayer
from specdemo.decoding.engines.llama_layout import Layout, layout_for
from specdemo.decoding.engines.llama_parts import Layer, Norm, Product, Turns

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class DirectForward:
    """Feeds tokens to a model behind those in a cache, as ``eager_forward.Forward`` does."""

    name = "direct"

    def __init__(self, model: PreTrainedModel, layout: Layout | None = None) -> None:
        """``layout``: of the products; None finds out which is the faster here."""
        config, decoder = model.config, model.model
        linears = [m for m in decoder.layers.modules() if isinstance(m, nn.Linear)]
        self.layout = layout or layout_for([m.weight.detach() for m in (*linears, model.lm_head)])
        self.device = decoder.embed_tokens.weight.device
        self._embeddings = decoder.embed_tokens.weight.detach()
        self._layers = [Layer.of(layer, self.layout.columns) for layer in decoder.layers]
        self._norm = Norm.of(decoder.norm)
        self._head = Product.of(model.lm_head, self.layout.columns)
        self._turns = Turns(decoder.rotary_emb, model.dtype, self.device)
        attention = decoder.layers[0].self_attn
        self._size = attention.head_dim
        self._scale = attention.scaling
        self._heads, self._groups = config.num_attention_heads, config.num_key_value_heads

    @torch.inference_mode()
    def __call__(self, tokens: torch.Tensor, cache: LaneCache, keep: int) -> torch.Tensor:
        """Append ``tokens`` (1, n) to the cache; returns the float32 logits (1, keep, vocabulary) of the last."""
        # A padded target can emit an id that a narrower draft has no embedding for: see Forward.
        ids = tokens[0].clamp(max=self._embeddings.shape[0] - 1)
        count, begin = len(ids), cache.get_seq_length()
        twice = count == 1 and self.layout.twice
        x = functional.embedding(ids.repeat(2) if twice else ids, self._embeddings)
        step = _Step(self, count, begin, x)
        for index, layer in enumerate(self._layers):
            attended = step.attend(layer, layer.before_attention(x), cache.layer(index))
            layer.attended.onto(x, attended.repeat(2, 1) if twice else attended)
            y = layer.before_mlp(x)
            gate = functional.silu(layer.gate(y), inplace=True)
            layer.down.onto(x, gate.mul_(layer.up(y)))
        if keep == 0:
            return x.new_empty(1, 0, self._head.weight.shape[0], dtype=torch.float32)
        last = x if twice else x[count - keep :]
        return self._head(self._norm(last))[:keep].float().unsqueeze(0)


class _Step:
    """What all layers of one forward share: angles, mask and room for queries and keys.

    Args:
        model: whose forward it is.
        count: tokens, of which the first rows of x are; any others only fill up a product.
        begin: tokens before them.
        x: the embeddings.
    """

    def __init__(self, model: DirectForward, count: int, begin: int, x: torch.Tensor) -> None:
        self._count, self._scale, self._size = count, model._scale, model._size
        self._heads, self._groups = model._heads, model._groups
        self._per_group = model._heads // model._groups
        self._cos, self._sin = model._turns.at(begin, begin + count)
        self._mixed = x.new_empty(count, self._heads + self._groups, self._size)
        self._queries, self._keys = self._mixed.view(count, -1).split(
            [self._heads * self._size, self._groups * self._size], dim=1
        )
        self._from_nothing = begin == 0
        self._mask = None if count == 1 or self._from_nothing else self._causal(begin, x)

    def _causal(self, begin: int, x: torch.Tensor) -> torch.Tensor:
        """(queries, slots) to be added to the scores: −∞ where a token stands behind the one that looks."""
        mask = x.new_zeros(self._count, begin + self._count)
        mask[:, begin:] = x.new_full((self._count, self._count), -torch.inf).triu_(1)
        return mask.repeat_interleave(self._per_group, dim=0)

    def attend(self, layer: Layer, y: torch.Tensor, cache: LaneLayer) -> torch.Tensor:
        """What the tokens y (n, width) gather from all before them, before the output product."""
        self._queries.copy_(layer.query(y)[: self._count])
        self._keys.copy_(layer.key(y)[: self._count])
        values = layer.value(y)[: self._count].unflatten(1, (self._groups, self._size))
        turned = self._turn(layer)
        queries, keys = turned[:, : self._heads], turned[:, self._heads :]
        keys, values = cache.update(keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0))
        if self._from_nothing and self._count > 1:
            return self._first(queries, keys, values)
        # The queries that share a group's keys stand beside each other as if they were more tokens, so that the
        # keys of the whole context need not be repeated for each of them.
        packed = queries.reshape(self._count, self._groups, self._per_group, self._size).transpose(0, 1)
        out = functional.scaled_dot_product_attention(
            packed.reshape(1, self._groups, -1, self._size), keys, values, self._mask, scale=self._scale
        )
        out = out.view(self._groups, self._count, self._per_group, self._size).transpose(0, 1)
        return out.reshape(self._count, -1)

    def _first(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The same for tokens with nothing before them, where no mask need be made."""
        out = functional.scaled_dot_product_attention(
            queries.transpose(0, 1).unsqueeze(0),
            keys,
            values,
            is_causal=True,
            scale=self._scale,
            enable_gqa=self._per_group > 1,
        )
        return out[0].transpose(0, 1).reshape(self._count, -1)

    def _turn(self, layer: Layer) -> torch.Tensor:
        """Queries and keys (n, heads + groups, size), turned by their positions."""
        mixed = self._mixed
        if layer.query_norm is not None and layer.key_norm is not None:
            split = mixed.split([self._heads, self._groups], dim=1)
            norms = (layer.query_norm, layer.key_norm)
            mixed = torch.cat([norm(part) for norm, part in zip(norms, split, strict=True)], dim=1)
        swapped = mixed.roll(self._size // 2, dims=-1)
        return torch.mul(mixed, self._cos).addcmul_(swapped, self._sin)
