"""A model called forward by forward, by transformers' modules or directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.engines.base import Output
from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.decoding.engines.select import Engine, open_forward
from specdemo.decoding.tree import TreeMask
from specdemo.models.packing import engine_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class EagerRunner:
    """A :class:`~specdemo.decoding.engines.base.Runner` with a cache that grows.

    Args:
        model: whose forward it is.
        engine: what is to run its layers.
        reason: why it is not the engine that was asked for.
        cache, layers: another runner's cache, of which this model fills only the first layers.
        aux_layers: layers whose input every output has.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        engine: Engine = "auto",
        *,
        reason: str | None = None,
        cache: LaneCache | None = None,
        layers: int | None = None,
        aux_layers: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.length = 0
        self._wish: Engine = engine
        self._reason = reason
        self._forward = open_forward(model, engine, aux_layers)
        self.device = self._forward.device
        self._cache = LaneCache() if cache is None else cache
        self._layers = layers

    @property
    def engine(self) -> str:
        name = engine_name(self._forward.name, self.model)
        return name if self._reason is None else f"{name}: {self._reason}"

    @property
    def nbytes(self) -> int:
        return self._cache.nbytes

    def forward(
        self,
        ids: Sequence[int] | torch.Tensor,
        keep: int = 1,
        drafted: torch.Tensor | None = None,
        tree_mask: TreeMask | None = None,
    ) -> Output:
        """Append ``ids`` (n,), then ``drafted`` (γ,), to the cache.

        With ``keep`` 0 no logits are computed where the model allows it, and (0, V) comes back.
        """
        tokens = torch.as_tensor(ids, dtype=torch.long, device=self.device).unsqueeze(0)
        if drafted is not None:
            tokens = torch.cat([tokens, drafted.unsqueeze(0).to(self.device)], dim=1)
        logits = self._forward(tokens, self._cache, keep, tree_mask)
        self.length += tokens.shape[1]
        hidden = self._forward.hidden()
        return Output(logits[0], None if hidden is None else hidden[0])

    def sharing(self, model: PreTrainedModel, layers: int) -> EagerRunner:
        return EagerRunner(model, self._wish, reason=self._reason, cache=self._cache, layers=layers)

    def rollback_to(self, length: int, path: Sequence[int] = ()) -> None:
        leading = next((i for i, place in enumerate(path) if place != i), len(path))
        end = length + len(path)  # the leading places of a path need not move
        if not 0 <= length <= end <= self.length or (path and length + path[-1] >= self.length):
            raise ValueError(f"cannot roll back from {self.length} tokens to {end}")
        # Layers that read an image hold nothing of a text.
        layers = [layer for layer in self._cache.layers[: self._layers] if layer.length]
        if leading < len(path):
            for layer in layers:
                moved = torch.tensor(path[leading:], device=layer.keys.device) - leading
                layer.gather(length + leading, moved)
        elif end < self.length:
            for layer in layers:
                layer.crop(end - self.length)
        self.length = end
