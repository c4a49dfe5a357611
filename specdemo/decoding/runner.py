"""One model, its KV cache and its rollback."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from specdemo.decoding.forward import Forward


class Runner:
    """Feeds token ids to a model and can take the last ones back.

    Between rounds the cache holds all committed tokens but the last (whose logits nobody has yet).
    A ``DynamicCache`` without a config keeps every position and lets the model's mask do a sliding
    window's work, so rollback is exact for sliding-window models too.
    """

    def __init__(
        self, model: PreTrainedModel, cache: DynamicCache | None = None, layers: int | None = None
    ) -> None:
        """``cache`` and ``layers``: another runner's cache, of which this model fills only the first layers."""
        self.model = model
        self.length = 0
        """Tokens in the cache."""
        self._forward = Forward(model)
        self.device = self._forward.device
        self._cache = DynamicCache() if cache is None else cache
        self._layers = layers

    def forward(self, ids: Sequence[int] | torch.Tensor, keep: int = 1) -> torch.Tensor:
        """Append ``ids`` (n,) to the cache; returns the float32 logits (keep, vocabulary) of the last ``keep``."""
        tokens = torch.as_tensor(ids, dtype=torch.long, device=self.device).unsqueeze(0)
        logits = self._forward(tokens, self._cache, keep)
        self.length += tokens.shape[1]
        return logits[0]

    def sharing(self, model: PreTrainedModel, layers: int) -> Runner:
        """A runner of ``model`` that reads and extends the first ``layers`` layers of this runner's cache."""
        return Runner(model, self._cache, layers)

    def rollback_to(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens.

        Raises:
            ValueError: the cache holds fewer (transformers would silently empty it).
        """
        surplus = self.length - length
        if surplus < 0 or length < 0:
            raise ValueError(f"cannot roll back from {self.length} tokens to {length}")
        if surplus:
            for layer in self._cache.layers[: self._layers]:
                layer.crop(-surplus)
            self.length = length
