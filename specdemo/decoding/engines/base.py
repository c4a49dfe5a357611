"""What every engine gives: a runner that feeds tokens to one model and can take the last ones back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from specdemo.decoding.tree import TreeMask

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Ids = Sequence[int] | torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What a forward gives.

    Attributes:
        logits: (keep, V) float32, of the last ``keep`` tokens fed.
        hidden: (n, layers · width) what entered the auxiliary layers, of all n tokens fed, in the model's type;
            None where there are no such layers.
    """

    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class Runner(Protocol):
    """One model, its KV cache and its rollback.

    Between rounds the cache holds all committed tokens but the last, whose logits nobody has yet.

    Attributes:
        model: whose forward it is.
        device: where the model runs.
        length: tokens in the cache.
    """

    model: PreTrainedModel
    device: torch.device
    length: int

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

    def rollback_to(self, length: int, path: Sequence[int] = ()) -> None:
        """Forget everything after the first ``length`` tokens, but for the slots of ``path`` behind them.

        Args:
            length: tokens to keep.
            path: places behind them, from 0 and rising, that are kept too and then stand beside each other.

        Raises:
            ValueError: there are fewer.
        """
