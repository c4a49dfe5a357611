"""What tokens may look at, in the form in which attention takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def attention_kinds(config: PreTrainedConfig) -> list[str]:
    """Kinds of attention layers, in the names of transformers' ``layer_types``."""
    named = getattr(config, "layer_types", None)
    if named:
        return sorted(set(named))
    return ["full_attention" if getattr(config, "sliding_window", None) is None else "sliding_attention"]


def ignores_masks(config: PreTrainedConfig) -> str | None:
    """The name of a model's attention if it is flash attention, which has a causal mask and takes no other."""
    name = config.get_text_config()._attn_implementation or ""
    return name if "flash" in name else None


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bool mask as numbers added to the scores: 0 where it is True, else the lowest."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
