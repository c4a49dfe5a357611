"""Linear layers whose weights are laid out for oneDNN: a verify of a few tokens reads them once, as a step does.

torch's own products of a few rows lay a large weight out anew at every call, or read it row by row: a float32
verify of six tokens then takes twice the time of a step. The layout in advance and the product that takes it are
private operators of torch (its compiler's, for frozen weights), so this is the only module that calls them, and it
tries them out before their first use.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.nn import functional

from specdemo.errors import PairError
from specdemo.machine import bfloat16_instructions, wide_vectors
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.memory import on_cpu
from specdemo.models.types import PreTrainedModel

LEAST_PARAMETERS = 50_000_000
"""Smaller models fit into the processor's caches, and gain nothing."""
ROWS = 6 if wide_vectors() else 64
"""Tokens of the forward that the layout is chosen for; all take it. With wide vectors that of a usual verify is
the quickest, with narrow ones that of many rows: it takes 0.83 of the time for one and 0.88 for six."""
LEAST_ROWS = 5 if wide_vectors() else 1
"""Fewer are filled up with zeros. With wide vectors so many rows take no longer than one and have the same sums;
with narrow ones each row costs, so none is added."""


class PackedLinear(nn.Linear):
    """A linear layer with a weight in oneDNN's layout: (out, in) still, but without storage of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, in) gives (…, out)."""
        return packed_product(x, self.weight, self.bias)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise PairError(
            "pair: these weights are packed for decoding and cannot be saved, copied, moved or trained; load "
            "the model with transformers' AutoModelForCausalLM for that."
        )

    _save_to_state_dict = _load_from_state_dict = _apply = __deepcopy__ = __reduce_ex__ = _refuse


def packed_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x·weightᵀ + bias, (…, in) gives (…, out); ``weight`` is a packed layer's."""
    missing = LEAST_ROWS - x.numel() // x.shape[-1]
    if missing <= 0:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    rows = functional.pad(x.reshape(-1, x.shape[-1]), (0, 0, 0, missing))
    product = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product[:-missing].view(*x.shape[:-1], product.shape[-1])


def unpackable_reason(model: nn.Module, device: str, dtype: torch.dtype) -> str | None:
    """Why a model is not packed whose weights are, or will be, there in this type; None if it is to be."""
    if not on_cpu(device):
        return "not on a CPU"
    if not is_large(model):
        return f"below {LEAST_PARAMETERS:,} parameters"
    if getattr(model, "hf_quantizer", None) is not None:
        return "quantised weights"
    if dtype is torch.bfloat16 and not bfloat16_instructions():
        return "no bfloat16 instructions"  # a packed step then takes three times the time of a plain one
    return no_product_reason(dtype)


def is_large(model: nn.Module) -> bool:
    """Whether a model's weights are far more than a processor's caches hold."""
    return sum(p.numel() for p in model.parameters()) >= LEAST_PARAMETERS


@cache
def no_product_reason(dtype: torch.dtype) -> str | None:
    """Why this torch and this processor cannot multiply with packed weights of a type; None if they can."""
    if dtype not in (torch.float32, torch.bfloat16):
        return f"no packed products of {dtype}"
    weight, x, bias = (torch.arange(n, dtype=torch.float32).sin() for n in (96 * 64, 3 * 64, 96))
    weight, x, bias = weight.view(96, 64).to(dtype), x.view(3, 64).to(dtype), bias.to(dtype)
    try:
        product = packed_product(x, _reordered(weight), bias)
    except Exception as error:  # private operators: they may be gone, or refuse this processor, in any way
        return f"no packed products in this torch ({type(error).__name__})"
    exact = functional.linear(x.double(), weight.double(), bias.double())
    off = ((product.double() - exact).abs().max() / exact.abs().max()).item()
    return None if off < 32 * torch.finfo(dtype).eps else f"packed products are off by {off:.1g} in this torch"


def pack(model: PreTrainedModel | Eagle3Head) -> None:
    """Give every linear layer of a model that nobody else has a packed weight, and let go of the plain one.

    The head of tied embeddings gets a weight of its own; the table stays for looking up.
    """
    head = model.get_output_embeddings()
    # The head first: where it is tied its plain weight stays, so that here memory is the shortest.
    for linear in sorted(filter(_packable, model.modules()), key=lambda layer: layer is not head):
        linear.weight = nn.Parameter(_reordered(linear.weight), requires_grad=False)
        linear.__class__ = PackedLinear
    model.packing = "packed weights"  # type: ignore[assignment]  # which torch has for tensors


def extra_bytes(model: PreTrainedModel, dtype: torch.dtype) -> int:
    """Bytes that :func:`pack` adds to a model: the head's, where it is tied."""
    head = model.get_output_embeddings()
    tied = _packable(head) and head.weight is model.get_input_embeddings().weight
    return head.weight.numel() * dtype.itemsize if tied else 0


def engine_name(name: str, model: nn.Module) -> str:
    """An engine and what was done to the weights it runs, for the record, such as ``direct, packed weights``."""
    return ", ".join(filter(None, (name, getattr(model, "packing", None))))


def _packable(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Whether this is a linear layer, and nothing that only resembles one."""
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter


def _reordered(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
