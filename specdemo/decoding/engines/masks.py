"""What tokens may look at, in the form in which attention takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bool mask as numbers added to the scores: 0 where it is True, else the lowest."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


def model_masks(
    model: PreTrainedModel, mask: Callable[[int | None], torch.Tensor]
) -> torch.Tensor | dict[str, torch.Tensor]:
    """The masks that a model takes: one, or one a kind of layer if its ``layer_types`` name several.

    Args:
        model: to be fed.
        mask: (sliding window, None for none) → the mask of layers with it.
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    windows = {"full_attention": None, "sliding_attention": window}
    named = getattr(config, "layer_types", None)
    kinds = sorted(set(named)) if named else ["full_attention" if window is None else "sliding_attention"]
    masks = {kind: mask(windows[kind]) for kind in kinds}
    return masks if len(masks) > 1 else masks[kinds[0]]
