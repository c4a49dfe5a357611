"""What every engine gives, a runner that feeds tokens to one model and can take the last ones back; and masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from specdemo.decoding.proposal import TreeMask
from specdemo.models.types import PreTrainedModel

Ids = Sequence[int] | torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What a forward gives."""

    logits: torch.Tensor  # (keep, V) float32, of the last ``keep`` tokens fed
    # (n, layers · width) what entered the auxiliary layers, of all n tokens fed, in the model's type; None where
    # there are no such layers
    hidden: torch.Tensor | None = None


class Runner(Protocol):
    """One model, its KV cache and its rollback.

    Between rounds the cache holds all committed tokens but the last, whose logits nobody has yet.
    """

    model: PreTrainedModel  # whose forward it is
    device: torch.device  # where the model runs
    length: int  # tokens in the cache

    @property
    def engine(self) -> str:
        """What runs the model's layers, such as ``direct``, or ``eager: graphs need a CUDA device``."""

    def forward(
        self, ids: Ids, keep: int = 1, drafted: torch.Tensor | None = None, tree_mask: TreeMask | None = None
    ) -> Output:
        """Append ``ids`` (n,), then ``drafted`` (γ,), to the cache; the logits are those of the last ``keep``.

        ``tree_mask`` says what they look at where they are a tree; a lane's graphs know none.
        """

    def sharing(self, model: PreTrainedModel, layers: int) -> Runner:
        """A runner of ``model``, the first ``layers`` layers of this one's, in the same cache."""

    def checkpoint(self) -> None:
        """Be able to come back to here: what is fed next may be taken back. Of keys and values all can be."""

    def rollback_to(self, length: int, path: Sequence[int] = ()) -> None:
        """Forget everything after the first ``length`` tokens, but for the slots of ``path`` behind them.

        ``path`` has their places from 0, rising; they stand beside each other then. A ValueError where there are
        fewer tokens. A model that keeps states goes back further, to its checkpoint, or to the beginning if that
        is too late: ``length`` says from where the tokens are to be fed again.
        """


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bool mask as numbers added to the scores: 0 where it is True, else the lowest."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


def model_masks(
    model: PreTrainedModel, mask: Callable[[int | None], torch.Tensor]
) -> torch.Tensor | dict[str, torch.Tensor]:
    """The masks that a model takes: one, or one a kind of layer if its ``layer_types`` name several.

    ``mask`` makes that of layers with a sliding window; None for no window.
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    windows = {"full_attention": None, "indexed_attention": None, "sliding_attention": window}
    named = getattr(config, "layer_types", None)
    kinds = sorted(set(named)) if named else ["full_attention" if window is None else "sliding_attention"]
    masks = {kind: mask(windows[kind]) for kind in kinds}
    return masks if len(masks) > 1 else masks[kinds[0]]
