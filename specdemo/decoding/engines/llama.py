"""A Llama-shaped model's forward without transformers' modules, on the caller's own parameters.

A small model's step is mostly calls: a third of the time of a builtin target's step passes around its arithmetic.
Here the same arithmetic runs straight from the parameters, which are never copied: RMSNorm, rotary positions,
grouped attention, SwiGLU (Touvron et al., arXiv 2302.13971), with the biases of Qwen2 or the head norms of Qwen3.
For which models: :mod:`specdemo.decoding.engines.llama_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from specdemo.decoding.engines.base import additive
from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.decoding.proposal import TreeMask
from specdemo.models.packing import PackedLinear, packed_product
from specdemo.models.types import PreTrainedModel


class Linear:
    """x ↦ x·weightᵀ + bias, with a linear layer's own parameters: weight (out, in), bias (out,) or None."""

    def __init__(self, linear: nn.Linear) -> None:
        # Detached: the same memory, kept as long as somebody computes with it.
        self.weight = linear.weight.detach()
        self.bias = None if linear.bias is None else linear.bias.detach()
        self._packed = isinstance(linear, PackedLinear)

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """(n, in) gives (n, out), written into ``out`` if given, which may be some columns of a wider tensor."""
        if self._packed:
            product = packed_product(x, self.weight, self.bias)
            return product if out is None else out.copy_(product)
        if self.bias is None:
            return torch.mm(x, self.weight.t(), out=out)
        return torch.addmm(self.bias, x, self.weight.t(), out=out)

    def add_to(self, total: torch.Tensor, x: torch.Tensor) -> None:
        """Add the product to ``total`` (n, out)."""
        if self._packed:
            total.add_(packed_product(x, self.weight, self.bias))
            return
        total.addmm_(x, self.weight.t())
        if self.bias is not None:
            total.add_(self.bias)


def norm_of(module: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Root-mean-square normalisation of the last dimension."""
    weight = module.weight.detach()
    return partial(functional.rms_norm, normalized_shape=weight.shape, weight=weight, eps=module.variance_epsilon)


class Layer:
    """The parameters of one decoder layer; ``head_norms`` of queries and keys where the model has them."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.before_attention = norm_of(layer.input_layernorm)
        self.before_mlp = norm_of(layer.post_attention_layernorm)
        self.query, self.key, self.value = map(Linear, (attention.q_proj, attention.k_proj, attention.v_proj))
        self.output = Linear(attention.o_proj)
        self.gate, self.up, self.down = map(Linear, (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        self.head_norms = [norm_of(getattr(attention, n)) for n in ("q_norm", "k_norm") if hasattr(attention, n)]

    def add_mlp(self, x: torch.Tensor) -> None:
        """Add to x (n, H) what the second half of the layer makes of it."""
        y = self.before_mlp(x)
        gate = functional.silu(self.gate(y), inplace=True)
        self.down.add_to(x, gate.mul_(self.up(y)))


class RotaryTable:
    """Cosines and sines of the rotary positions, from the model's own module, computed once each."""

    def __init__(self, rotary: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
        self._rotary, self._dtype, self._device = rotary, dtype, device
        self._cos = self._sin = torch.empty(0)

    def at(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, 1, head_dim) each, for positions from ``begin`` to ``end``; the first half of a sine is negative."""
        if end > len(self._cos):
            positions = torch.arange(max(128, 2 * end), device=self._device).unsqueeze(0)
            cos, sin = self._rotary(torch.empty(0, dtype=self._dtype, device=self._device), positions)
            half = sin.shape[-1] // 2
            # (a, b) is rotated to (a·cos − b·sin, b·cos + a·sin): with this sign the halves need only be swapped.
            sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
            self._cos, self._sin = cos[0].unsqueeze(1), sin[0].unsqueeze(1)
        return self._cos[begin:end], self._sin[begin:end]


class Attending:
    """The sizes of an attention and its rotary positions.

    Args:
        attention: transformers' module of one layer.
        config: of the layers.
        rotary: transformers' module of the positions.
        weight: any of the model, for its type and device.
    """

    def __init__(self, attention: Any, config: Any, rotary: nn.Module, weight: torch.Tensor) -> None:
        self.dtype, self.device = weight.dtype, weight.device
        self.rotary = RotaryTable(rotary, self.dtype, self.device)
        # head_dim: width of a head
        # scale: factor of the attention scores
        self.head_dim, self.scale = attention.head_dim, attention.scaling
        # heads, kv_heads: query heads, and heads of keys and values; ``heads_per_kv_head`` query heads share one
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.heads_per_kv_head = self.heads // self.kv_heads


Store = Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Writes the new keys, then values, of the layer with this index, (2 · KV heads, n, head_dim), into a KV cache.

Returns all keys and all values of the layer that the tokens look at, (1, KV heads, kv, head_dim) each.
"""


class Attention:
    """Grouped attention with rotary positions for the tokens of one forward, layer after layer.

    Args:
        model: whose layers they pass.
        angles: cosines and sines (n, 1, head_dim) of the tokens' positions.
        store: the KV cache.
        mask: (n · heads per KV head, kv), added to the scores; None where every token attends to all that the
            store returns.
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
        for linear, out in zip((layer.query, layer.key, layer.value), self._projected, strict=True):
            linear(y, out)
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
        # The queries that share a KV head stand beside each other as if they were more tokens, so that the keys of
        # the whole context need not be repeated for each of them.
        model, count = self._model, self._count
        shape = count, model.kv_heads, model.heads_per_kv_head, model.head_dim
        queries = self._states[:, : model.heads].reshape(shape).transpose(0, 1)
        out = functional.scaled_dot_product_attention(
            queries.reshape(1, model.kv_heads, -1, model.head_dim), keys, values, self._mask, scale=model.scale
        )
        return out.view(model.kv_heads, count, *shape[2:]).transpose(0, 1).reshape(count, -1)

    def _among_themselves(self) -> torch.Tensor:
        model = self._model
        queries, *shared = self._states.transpose(0, 1).split([model.heads, model.kv_heads, model.kv_heads])
        # Repeated for each query of a KV head: not every way of computing this on a GPU knows of them, and the one
        # that knows none of the fast ways holds all scores at once.
        keys, values = (states.repeat_interleave(model.heads_per_kv_head, dim=0) for states in shared)
        out = functional.scaled_dot_product_attention(
            queries.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), is_causal=True, scale=model.scale
        )
        return out[0].transpose(0, 1).reshape(self._count, -1)


def attention_behind(
    model: Attending, cache: LaneCache, count: int, tree_mask: TreeMask | None = None
) -> Attention:
    """The attention of ``count`` tokens behind those in a cache, which takes their keys and values.

    Tokens of a tree attend to their ancestors, and their positions are their depths.
    """
    begin = cache.get_seq_length()

    def store(index: int, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return cache.layer(index).update(*states.unsqueeze(0).split(model.kv_heads, dim=1))

    def shared(mask: torch.Tensor) -> torch.Tensor:
        return mask.repeat_interleave(model.heads_per_kv_head, dim=0)

    if tree_mask is not None:
        positions = tree_mask.positions.to(model.device)
        cos, sin = (table[positions] for table in model.rotary.at(0, begin + count))
        return Attention(
            model, (cos, sin), store, shared(additive(tree_mask.mask(), model.dtype).to(model.device))
        )
    mask = None
    if begin and count > 1:  # −∞ where a token stands behind the one that looks
        causal = torch.zeros(count, begin + count, dtype=model.dtype, device=model.device)
        causal[:, begin:] = causal.new_full((count, count), -torch.inf).triu_(1)
        mask = shared(causal)
    return Attention(model, model.rotary.at(begin, begin + count), store, mask, causal=not begin)


class LlamaModel(Attending):
    """The parameters of one model that :mod:`llama_check` finds nothing against, and not the model itself."""

    def __init__(self, model: PreTrainedModel) -> None:
        decoder = model.model
        self._embeddings = decoder.embed_tokens.weight.detach()
        super().__init__(decoder.layers[0].self_attn, model.config, decoder.rotary_emb, self._embeddings)
        self.layers = [Layer(layer) for layer in decoder.layers]
        self._norm = norm_of(decoder.norm)
        self._head = Linear(model.lm_head)
        self.vocabulary, self.hidden_size = len(self._head.weight), self._embeddings.shape[1]

    def run(
        self,
        ids: torch.Tensor,
        attention: Attention,
        keep: int,
        layers: int | None = None,
        aux_layers: Sequence[int] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits (keep, vocabulary), in the model's type, of the last tokens, and the auxiliary hidden states.

        Args:
            ids: (n,) on the model's device; one that it has no embedding for is taken for the last.
            attention: of these tokens.
            keep: of how many tokens logits are wanted; may be 0.
            layers: run only the first so many, then norm and head.
            aux_layers: layers whose input is wanted, side by side, of all tokens: (n, layers · H); one behind the
                last reads what the final norm does.
        """
        # A padded target can emit an id that a narrower draft has no embedding for: see Forward.
        x = functional.embedding(ids.clamp(max=len(self._embeddings) - 1), self._embeddings)
        kept = {}
        for index, layer in enumerate(self.layers[:layers]):
            if index in aux_layers:
                kept[index] = x.clone()
            layer.output.add_to(x, attention(index, layer, layer.before_attention(x)))
            layer.add_mlp(x)
        kept[len(self.layers)] = x
        hidden = torch.cat([kept[index] for index in aux_layers], dim=1) if aux_layers else None
        return self._head(self._norm(x[len(x) - keep :])), hidden


class DirectForward(LlamaModel):
    """Feeds tokens to a model behind those in a cache, as ``eager.Forward`` does."""

    name = "direct"

    def __init__(self, model: PreTrainedModel, aux_layers: Sequence[int] = ()) -> None:
        super().__init__(model)
        self._aux_layers = tuple(aux_layers)

    @torch.inference_mode()
    def __call__(
        self, tokens: torch.Tensor, cache: LaneCache, keep: int, tree_mask: TreeMask | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append ``tokens`` (1, n) to the cache; returns what ``eager.Forward`` does."""
        attention = attention_behind(self, cache, tokens.shape[1], tree_mask)
        logits, hidden = self.run(tokens[0], attention, keep, aux_layers=self._aux_layers)
        return logits.float().unsqueeze(0), None if hidden is None else hidden.unsqueeze(0)
