"""One forward of one model: what it needs besides tokens and a cache, found out once."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import Cache

from specdemo.decoding.engines.masks import additive, model_masks
from specdemo.decoding.engines.model_views import HiddenStateReader
from specdemo.decoding.tree import TreeMask
from specdemo.models.pair import device_of, embeddings_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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


class Forward:
    """Feeds tokens to a model behind those in a cache.

    Args:
        model: any causal language model.
        aux_layers: layers whose input :meth:`hidden` gives.
    """

    name = "eager"

    def __init__(self, model: PreTrainedModel, aux_layers: Sequence[int] = ()) -> None:
        self._reader = HiddenStateReader(model, aux_layers) if aux_layers else None
        self.model = model = model if self._reader is None else self._reader.view
        self.device = device_of(model)
        self._modules = tuple(model.modules())  # walking the tree anew would cost each forward some percent
        self._known_ids = embeddings_of(model)
        # Inference mode saves a tenth of a small model's step, but quantised weights fail in it.
        quantised = getattr(model, "hf_quantizer", None) is not None
        self._without_gradients = torch.no_grad if quantised else torch.inference_mode
        # Prefill needs only its last logits; architectures without this argument compute them all.
        takes = inspect.signature(model.forward).parameters
        self._slices_logits = "logits_to_keep" in takes
        self._takes_positions = "position_ids" in takes

    def __call__(
        self,
        tokens: torch.Tensor,
        cache: Cache,
        keep: int | torch.Tensor,
        tree_mask: TreeMask | None = None,
        **inputs: Any,
    ) -> torch.Tensor:
        """Append ``tokens`` (B, n) to the cache.

        Args:
            tokens: ids, on any device.
            cache: takes the keys and values.
            keep: the last so many positions, none for 0; or a tensor of positions from 0 to n − 1.
            tree_mask: what they attend to where they are a tree's.
            inputs: what else the model is to be given.

        Returns:
            float32 logits (B, kept, vocabulary).
        """
        # A padded target can emit an id that a narrower draft has no embedding for. What the draft
        # sees there only changes how well it guesses, so it sees its last id.
        tokens = tokens.to(self.device).clamp(max=self._known_ids - 1)
        if tree_mask is not None:
            inputs |= self._of_tree(tree_mask)
        if isinstance(keep, int) and keep == 0:  # which transformers would read as all
            keep = torch.empty(0, dtype=torch.long, device=self.device)
        if self._slices_logits:
            inputs["logits_to_keep"] = keep
        if self._takes_positions and "position_ids" not in inputs:
            # As generate does: left alone, some models count otherwise, from a filler token on or from 0 again.
            begin = cache.get_seq_length()
            inputs["position_ids"] = torch.arange(begin, begin + tokens.shape[1], device=self.device)[None]
        with self._without_gradients(), evaluating(self._modules):
            logits = self.model(input_ids=tokens, past_key_values=cache, use_cache=True, **inputs).logits
        if not self._slices_logits:
            logits = logits[:, -keep:] if isinstance(keep, int) else logits[:, keep]
        return logits.float()

    def _of_tree(self, tree_mask: TreeMask) -> dict[str, Any]:
        """Positions and masks, which are numbers: eager attention would add bools to its scores, and be wrong."""

        def mask(window: int | None) -> torch.Tensor:
            return additive(tree_mask.mask(window), self.model.dtype)[None, None].to(self.device)

        positions = tree_mask.positions.unsqueeze(0).to(self.device)
        return {"position_ids": positions, "attention_mask": model_masks(self.model, mask)}

    def hidden(self) -> torch.Tensor | None:
        """(B, n, layers · width) of the last forward, to be taken once; None without such layers."""
        return None if self._reader is None else self._reader.take()
