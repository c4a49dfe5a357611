"""The parts of a Llama-shaped model as its forward needs them: the caller's own parameters, never copied.

RMSNorm, rotary positions, grouped attention, SwiGLU (Touvron et al., arXiv 2302.13971; with the biases of Qwen2 or
the head norms of Qwen3 where a model has them). For which models: :mod:`specdemo.decoding.engines.llama_check`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from specdemo.decoding.engines.llama_layout import FEW


class Product(NamedTuple):
    """x ↦ x·weightᵀ + bias, of a linear layer's own parameters; for few tokens perhaps as columns, weight·xᵀ."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    columns: bool

    @classmethod
    def of(cls, linear: nn.Linear, columns: bool) -> Product:
        # Detached: the same memory, held as long as somebody computes with it.
        bias = None if linear.bias is None else linear.bias.detach()
        return cls(linear.weight.detach(), bias, columns)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(n, in) gives (n, out)."""
        if self.columns and len(x) <= FEW:
            product = torch.mm(self.weight, x.t()).t().contiguous()
            return product if self.bias is None else product.add_(self.bias)
        if self.bias is None:
            return torch.mm(x, self.weight.t())
        return torch.addmm(self.bias, x, self.weight.t())

    def into(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Write the product into ``out`` (n, out), which may be some columns of a wider tensor."""
        if self.bias is None:
            torch.mm(x, self.weight.t(), out=out)
        else:
            torch.addmm(self.bias, x, self.weight.t(), out=out)

    def onto(self, total: torch.Tensor, x: torch.Tensor) -> None:
        """Add the product to ``total`` (n, out)."""
        if self.columns and len(x) <= FEW:
            total.add_(torch.mm(self.weight, x.t()).t())
        else:
            total.addmm_(x, self.weight.t())
        if self.bias is not None:
            total.add_(self.bias)


class Norm(NamedTuple):
    """Root-mean-square normalisation of the last dimension."""

    weight: torch.Tensor
    shape: tuple[int, ...]
    epsilon: float

    @classmethod
    def of(cls, norm: nn.Module) -> Norm:
        return cls(norm.weight.detach(), tuple(norm.weight.shape), norm.variance_epsilon)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, self.shape, self.weight, self.epsilon)


class Layer(NamedTuple):
    before_attention: Norm
    query: Product
    key: Product
    value: Product
    query_norm: Norm | None
    key_norm: Norm | None
    attended: Product
    before_mlp: Norm
    gate: Product
    up: Product
    down: Product

    @classmethod
    def of(cls, layer: nn.Module, columns: bool) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        return cls(
            Norm.of(layer.input_layernorm),
            *(Product.of(p, columns) for p in (attention.q_proj, attention.k_proj, attention.v_proj)),
            *(None if norm is None else Norm.of(norm) for norm in norms),
            Product.of(attention.o_proj, columns),
            Norm.of(layer.post_attention_layernorm),
            *(Product.of(p, columns) for p in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)),
        )


class Turns:
    """Cosines and sines of the rotary positions, from the model's own module, computed once each."""

    def __init__(self, rotary: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
        self._rotary, self._dtype, self._device = rotary, dtype, device
        self._cos = self._sin = torch.empty(0)

    def at(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, 1, size) each, for positions from ``begin`` to ``end``; a sine's first half is negative."""
        if end > len(self._cos):
            positions = torch.arange(max(128, 2 * end), device=self._device).unsqueeze(0)
            cos, sin = self._rotary(torch.empty(0, dtype=self._dtype, device=self._device), positions)
            half = sin.shape[-1] // 2
            # (a, b) turns into (a·cos − b·sin, b·cos + a·sin): with this sign, halves need only be swapped.
            sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
            self._cos, self._sin = cos[0].unsqueeze(1), sin[0].unsqueeze(1)
        return self._cos[begin:end], self._sin[begin:end]
