"""A Llama-shaped model's parameters and layers, without transformers' modules: never copied, read in place.

RMSNorm, rotary positions, grouped attention, SwiGLU (Touvron et al., arXiv 2302.13971; with the biases of Qwen2 or
the head norms of Qwen3 where a model has them). For which models: :mod:`specdemo.decoding.engines.llama_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from specdemo.models.packing import PackedLinear, packed_product

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Linear:
    """x ↦ x·weightᵀ + bias, with a linear layer's own parameters: weight (out, in), bias (out,) or None."""

    def __init__(self, linear: nn.Linear) -> None:
        # Detached: the same memory, kept as long as somebody computes with it.
        self.weight = linear.weight.detach()
        self.bias = None if linear.bias is None else linear.bias.detach()
        self._packed = isinstance(linear, PackedLinear)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(n, in) gives (n, out)."""
        if self._packed:
            return packed_product(x, self.weight, self.bias)
        return torch.mm(x, self.weight.t()) if self.bias is None else torch.addmm(self.bias, x, self.weight.t())

    def write_to(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Write the product into ``out`` (n, out), which may be some columns of a wider tensor."""
        if self._packed:
            out.copy_(packed_product(x, self.weight, self.bias))
        elif self.bias is None:
            torch.mm(x, self.weight.t(), out=out)
        else:
            torch.addmm(self.bias, x, self.weight.t(), out=out)

    def add_to(self, total: torch.Tensor, x: torch.Tensor) -> None:
        """Add the product to ``total`` (n, out)."""
        if self._packed:
            total.add_(packed_product(x, self.weight, self.bias))
            return
        total.addmm_(x, self.weight.t())
        if self.bias is not None:
            total.add_(self.bias)


Norm = Callable[[torch.Tensor], torch.Tensor]


def norm_of(module: Any) -> Norm:
    """Root-mean-square normalisation of the last dimension."""
    weight = module.weight.detach()
    return partial(functional.rms_norm, normalized_shape=weight.shape, weight=weight, eps=module.variance_epsilon)


class Layer:
    """The parameters of one decoder layer."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.before_attention = norm_of(layer.input_layernorm)
        self.before_mlp = norm_of(layer.post_attention_layernorm)
        self.query, self.key, self.value, self.output, self.gate, self.up, self.down = (
            Linear(linear)
            for linear in (
                *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
                *(mlp.gate_proj, mlp.up_proj, mlp.down_proj),
            )
        )
        self.head_norms = [norm_of(getattr(attention, n)) for n in ("q_norm", "k_norm") if hasattr(attention, n)]
        """Of queries and of keys; empty where the model has none."""

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


Attend = Callable[[int, Layer, torch.Tensor], torch.Tensor]
"""The attention of the layer with this index: its normed input (n, H) gives (n, heads · head_dim)."""


class Attending:
    """The sizes of an attention and its rotary positions.

    Args:
        attention: transformers' module of one layer.
        config: of the layers.
        rotary: transformers' module of the positions.
        weight: any of the model, for its type and device.

    Attributes:
        heads, kv_heads: query heads, and heads of keys and values; ``heads_per_kv_head`` query heads share one.
        head_dim: width of a head.
        scale: factor of the attention scores.
    """

    def __init__(self, attention: Any, config: Any, rotary: nn.Module, weight: torch.Tensor) -> None:
        self.dtype, self.device = weight.dtype, weight.device
        self.rotary = RotaryTable(rotary, self.dtype, self.device)
        self.head_dim, self.scale = attention.head_dim, attention.scaling
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.heads_per_kv_head = self.heads // self.kv_heads


class LlamaModel(Attending):
    """The parameters of one model; does not hold the model itself.

    Args:
        model: one that :mod:`specdemo.decoding.engines.llama_check` finds nothing against.
    """

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
        attend: Attend,
        keep: int,
        layers: int | None = None,
        aux_layers: Sequence[int] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits (keep, vocabulary), in the model's type, of the last tokens, and the auxiliary hidden states.

        Args:
            ids: (n,) on the model's device; one that it has no embedding for is taken for the last.
            attend: the attention of each layer.
            keep: of how many tokens logits are wanted; may be 0.
            layers: run only the first so many, then norm and head.
            aux_layers: layers whose input is wanted, side by side, of all tokens: (n, layers · H).
        """
        # A padded target can emit an id that a narrower draft has no embedding for: see Forward.
        x = functional.embedding(ids.clamp(max=len(self._embeddings) - 1), self._embeddings)
        kept = {}
        for index, layer in enumerate(self.layers[:layers]):
            if index in aux_layers:
                kept[index] = x.clone()
            layer.output.add_to(x, attend(index, layer, layer.before_attention(x)))
            layer.add_mlp(x)
        hidden = torch.cat([kept[index] for index in aux_layers], dim=1) if aux_layers else None
        return self._head(self._norm(x[len(x) - keep :])), hidden
