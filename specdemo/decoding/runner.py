"""One model, its KV cache and its rollback."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import DynamicCache, PreTrainedModel


@contextmanager
def evaluating(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Dropout off for one forward; what was handed over in training mode is in training mode again after it."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


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
        self.device = model.get_input_embeddings().weight.device
        self.length = 0
        """Tokens in the cache."""
        self._cache = DynamicCache() if cache is None else cache
        self._layers = layers
        self._modules = tuple(model.modules())  # walking the tree anew would cost each forward some percent
        self._known_ids = model.get_input_embeddings().num_embeddings
        # Inference mode saves a tenth of a small model's step, but quantised weights fail in it.
        quantised = getattr(model, "hf_quantizer", None) is not None
        self._without_gradients = torch.no_grad if quantised else torch.inference_mode
        # Prefill needs only its last logits; architectures without this argument compute them all.
        self._slices_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def forward(self, ids: Sequence[int] | torch.Tensor, keep: int = 1) -> torch.Tensor:
        """Append ``ids`` (n,) to the cache; returns the float32 logits (keep, vocabulary) of the last ``keep``."""
        tokens = torch.as_tensor(ids, dtype=torch.long, device=self.device)
        # A padded target can emit an id that a narrower draft has no embedding for. What the draft
        # sees there only changes how well it guesses, so it sees its last id.
        tokens = tokens.clamp(max=self._known_ids - 1).unsqueeze(0)
        extra = {"logits_to_keep": keep} if self._slices_logits else {}
        with self._without_gradients(), evaluating(self._modules):
            out = self.model(input_ids=tokens, past_key_values=self._cache, use_cache=True, **extra)
        self.length += tokens.shape[1]
        return out.logits[0, -keep:].float()

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
