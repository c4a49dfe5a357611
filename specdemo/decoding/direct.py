"""A Llama-shaped model's forward without transformers' modules, for one sequence on a CPU.

A small model's step is mostly calls: a third of the time of a builtin target's step passes around its arithmetic.
Here the same arithmetic runs straight from the caller's own parameters, never copied or changed:
RMSNorm, rotary positions, grouped attention, SwiGLU (Touvron et al., arXiv 2302.13971; with the biases of Qwen2 or
the head norms of Qwen3 where a model has them). For which models: :mod:`specdemo.decoding.direct_check`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from specdemo.decoding.direct_layout import FEW, Layout, layout_for
from specdemo.decoding.lane_cache import LaneCache, LaneLayer


class _Product(NamedTuple):
    """x ↦ x·weightᵀ + bias, of a linear layer's own parameters; for few tokens perhaps as columns, weight·xᵀ."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    columns: bool

    @classmethod
    def of(cls, linear: nn.Linear, columns: bool) -> _Product:
        return cls(linear.weight, linear.bias, columns)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(n, in) gives (n, out)."""
        if self.columns and len(x) <= FEW:
            product = torch.mm(self.weight, x.t()).t().contiguous()
            return product if self.bias is None else product.add_(self.bias)
        if self.bias is None:
            return torch.mm(x, self.weight.t())
        return torch.addmm(self.bias, x, self.weight.t())

    def onto(self, total: torch.Tensor, x: torch.Tensor) -> None:
        """Add the product to ``total`` (n, out)."""
        if self.columns and len(x) <= FEW:
            total.add_(torch.mm(self.weight, x.t()).t())
        else:
            total.addmm_(x, self.weight.t())
        if self.bias is not None:
            total.add_(self.bias)


class _Norm(NamedTuple):
    """Root-mean-square normalisation of the last dimension."""

    weight: torch.Tensor
    shape: tuple[int, ...]
    epsilon: float

    @classmethod
    def of(cls, norm: nn.Module) -> _Norm:
        return cls(norm.weight, tuple(norm.weight.shape), norm.variance_epsilon)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, self.shape, self.weight, self.epsilon)


class _Layer(NamedTuple):
    before_attention: _Norm
    query: _Product
    key: _Product
    value: _Product
    query_norm: _Norm | None
    key_norm: _Norm | None
    attended: _Product
    before_mlp: _Norm
    gate: _Product
    up: _Product
    down: _Product

    @classmethod
    def of(cls, layer: nn.Module, columns: bool) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        return cls(
            _Norm.of(layer.input_layernorm),
            *(_Product.of(p, columns) for p in (attention.q_proj, attention.k_proj, attention.v_proj)),
            *(None if norm is None else _Norm.of(norm) for norm in norms),
            _Product.of(attention.o_proj, columns),
            _Norm.of(layer.post_attention_layernorm),
            *(_Product.of(p, columns) for p in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)),
        )


class DirectForward:
    """Feeds tokens to a model behind those in a cache, as :class:`specdemo.decoding.forward.Forward` does."""

    name = "direct"

    def __init__(self, model: PreTrainedModel, layout: Layout | None = None) -> None:
        """``layout``: of the products; None finds out which is the faster here."""
        config, decoder = model.config, model.model
        linears = [m for m in decoder.layers.modules() if isinstance(m, nn.Linear)]
        self.layout = layout or layout_for([m.weight.detach() for m in (*linears, model.lm_head)])
        self.device = decoder.embed_tokens.weight.device
        self._embeddings = decoder.embed_tokens.weight
        self._layers = [_Layer.of(layer, self.layout.columns) for layer in decoder.layers]
        self._norm = _Norm.of(decoder.norm)
        self._head = _Product.of(model.lm_head, self.layout.columns)
        self._turns = _Turns(decoder.rotary_emb, model.dtype)
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

    def attend(self, layer: _Layer, y: torch.Tensor, cache: LaneLayer) -> torch.Tensor:
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

    def _turn(self, layer: _Layer) -> torch.Tensor:
        """Queries and keys (n, heads + groups, size), turned by their positions."""
        mixed = self._mixed
        if layer.query_norm is not None and layer.key_norm is not None:
            split = mixed.split([self._heads, self._groups], dim=1)
            norms = (layer.query_norm, layer.key_norm)
            mixed = torch.cat([norm(part) for norm, part in zip(norms, split, strict=True)], dim=1)
        swapped = mixed.roll(self._size // 2, dims=-1)
        return torch.mul(mixed, self._cos).addcmul_(swapped, self._sin)


class _Turns:
    """Cosines and sines of the rotary positions, from the model's own module, computed once each."""

    def __init__(self, rotary: nn.Module, dtype: torch.dtype) -> None:
        self._rotary, self._dtype = rotary, dtype
        self._cos = self._sin = torch.empty(0)

    def at(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, 1, size) each, for positions from ``begin`` to ``end``; a sine's first half is negative."""
        if end > len(self._cos):
            positions = torch.arange(max(128, 2 * end)).unsqueeze(0)
            cos, sin = self._rotary(torch.empty(0, dtype=self._dtype), positions)
            half = sin.shape[-1] // 2
            # (a, b) turns into (a·cos − b·sin, b·cos + a·sin): with this sign, halves need only be swapped.
            sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
            self._cos, self._sin = cos[0].unsqueeze(1), sin[0].unsqueeze(1)
        return self._cos[begin:end], self._sin[begin:end]
