"""One model, its KV cache and its rollback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.decoding.engines.select import Engine, open_forward

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Runner:
    """Feeds token ids to a model and can take the last ones back.

    Between rounds the cache holds all committed tokens but the last (whose logits nobody has yet).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        cache: LaneCache | None = None,
        layers: int | None = None,
        engine: Engine = "auto",
    ) -> None:
        """``cache`` and ``layers``: another runner's cache, of which this model fills only the first layers."""
        self.model = model
        self.length = 0
        """Tokens in the cache."""
        self._wish: Engine = engine
        self._forward = open_forward(model, engine)
        self.device = self._forward.device
        self._cache = LaneCache() if cache is None else cache
        self._layers = layers

    @property
    def engine(self) -> str:
        """Which code runs the model's layers, ``direct`` or ``eager``."""
        return self._forward.name

    @property
    def held(self) -> int:
        """Bytes of keys and values allocated."""
        return self._cache.held

    def forward(
        self, ids: Sequence[int] | torch.Tensor, keep: int = 1, drafted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Append ``ids`` (n,), then ``drafted`` (γ,), to the cache.

        Returns the float32 logits (keep, vocabulary) of the last ``keep``. With ``keep`` 0 none are computed where
        the model allows it, and (0, vocabulary) comes back.
        """
        tokens = torch.as_tensor(ids, dtype=torch.long, device=self.device).unsqueeze(0)
        if drafted is not None:
            tokens = torch.cat([tokens, drafted.unsqueeze(0).to(self.device)], dim=1)
        logits = self._forward(tokens, self._cache, keep)
        self.length += tokens.shape[1]
        return logits[0]

    def sharing(self, model: PreTrainedModel, layers: int) -> Runner:
        """A runner of ``model`` that reads and extends the first ``layers`` layers of this runner's cache."""
        return Runner(model, self._cache, layers, self._wish)

    def rollback_to(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens.

        Raises:
            ValueError: the cache holds fewer.
        """
        surplus = self.length - length
        if surplus < 0 or length < 0:
            raise ValueError(f"cannot roll back from {self.length} tokens to {length}")
        if surplus:
            for layer in self._cache.layers[: self._layers]:
                layer.crop(-surplus)
            self.length = length
