"""A model called forward by forward, by transformers' modules or directly."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from transformers import Cache

from specdemo.decoding.engines.base import Ids, Output, additive, model_masks
from specdemo.decoding.engines.kv_cache import LaneCache, States
from specdemo.decoding.engines.llama import DirectForward
from specdemo.decoding.engines.llama_check import unsupported_reason
from specdemo.decoding.engines.model_views import HiddenStateReader, ShortChunks
from specdemo.decoding.proposal import TreeMask
from specdemo.models.packing import engine_name
from specdemo.models.pair import cache_argument, device_of, embeddings_of
from specdemo.models.types import PreTrainedModel

Engine = Literal["auto", "direct", "eager"]


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
    """Feeds tokens to a causal language model, behind those in a cache; ``aux_layers``: whose input is wanted."""

    name = "eager"

    def __init__(self, model: PreTrainedModel, aux_layers: Sequence[int] = ()) -> None:
        self.device = device_of(model)
        # Elsewhere the time of a small chunk is not its arithmetic's.
        self._chunks = ShortChunks(model) if self.device.type == "cpu" else None
        model = model if self._chunks is None else self._chunks.view
        self._reader = HiddenStateReader(model, aux_layers) if aux_layers else None
        self.model = model = model if self._reader is None else self._reader.view
        self._modules = tuple(model.modules())  # walking the tree anew would cost each forward some percent
        self._known_ids = embeddings_of(model)
        # Inference mode saves a tenth of a small model's step, but quantised weights fail in it.
        quantised = getattr(model, "hf_quantizer", None) is not None
        self._without_gradients = torch.no_grad if quantised else torch.inference_mode
        # Prefill needs only its last logits; architectures without this argument compute them all.
        takes = inspect.signature(model.forward).parameters
        self._cache_argument = cache_argument(model) or "past_key_values"
        self._slices_logits = "logits_to_keep" in takes
        self._takes_positions = "position_ids" in takes

    def __call__(
        self,
        tokens: torch.Tensor,
        cache: Cache,
        keep: int | torch.Tensor,
        tree_mask: TreeMask | None = None,
        **inputs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append ``tokens`` (B, n) to the cache.

        Args:
            tokens: ids, on any device.
            cache: takes the keys and values, and states.
            keep: the last so many positions, none for 0; or a tensor of positions from 0 to n − 1.
            tree_mask: what they attend to where they are a tree's.
            inputs: what else the model is to be given.

        Returns:
            float32 logits (B, kept, vocabulary), and what entered the auxiliary layers, (B, n, layers · H), of all
            tokens fed; None without such layers.
        """
        # A padded target can emit an id that a narrower draft has no embedding for. What the draft
        # sees there only changes how well it guesses, so it sees its last id.
        tokens = tokens.to(self.device).clamp(max=self._known_ids - 1)
        if tree_mask is not None:
            inputs["position_ids"] = tree_mask.positions.unsqueeze(0).to(self.device)
            inputs["attention_mask"] = self._masks(tree_mask)
        if isinstance(keep, int) and keep == 0:  # which transformers would read as all
            keep = torch.empty(0, dtype=torch.long, device=self.device)
        if self._slices_logits:
            inputs["logits_to_keep"] = keep
        if self._takes_positions and "position_ids" not in inputs:
            # As generate does: left alone, some models count otherwise, from a filler token on or from 0 again.
            begin = cache.get_seq_length()
            inputs["position_ids"] = torch.arange(begin, begin + tokens.shape[1], device=self.device)[None]
        if self._chunks is not None:
            inputs |= self._chunks.arguments(tokens.shape[1])
        with self._without_gradients(), evaluating(self._modules):
            inputs[self._cache_argument] = cache
            logits = self.model(input_ids=tokens, use_cache=True, **inputs).logits
        if not self._slices_logits:
            logits = logits[:, -keep:] if isinstance(keep, int) else logits[:, keep]
        return logits.float(), None if self._reader is None else self._reader.take()

    def _masks(self, tree_mask: TreeMask) -> torch.Tensor | dict[str, torch.Tensor]:
        """Numbers: eager attention would add bools to its scores, and be wrong."""

        def mask(window: int | None) -> torch.Tensor:
            return additive(tree_mask.mask(window), self.model.dtype)[None, None].to(self.device)

        return model_masks(self.model, mask)


class EagerRunner:
    """A :class:`~specdemo.decoding.engines.base.Runner` with a cache that grows.

    Args:
        engine: what is to run its layers; *direct* only where ``open.choose`` chose it.
        reason: why it is not the engine that was asked for.
        cache, layers: another runner's cache, of which this model fills only the first layers.
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
        direct = engine == "direct" or (engine == "auto" and unsupported_reason(model) is None)
        self._forward = DirectForward(model, aux_layers) if direct else Forward(model, aux_layers)
        self.device = self._forward.device
        self._cache = LaneCache() if cache is None else cache
        self._layers = layers
        self._checkpoint: tuple[int, States] = (0, {})

    @property
    def engine(self) -> str:
        name = engine_name(self._forward.name, self.model)
        return name if self._reason is None else f"{name}: {self._reason}"

    def forward(
        self, ids: Ids, keep: int = 1, drafted: torch.Tensor | None = None, tree_mask: TreeMask | None = None
    ) -> Output:
        """With ``keep`` 0 no logits are computed where the model allows it, and (0, V) comes back."""
        tokens = torch.as_tensor(ids, dtype=torch.long, device=self.device).unsqueeze(0)
        if drafted is not None:
            tokens = torch.cat([tokens, drafted.unsqueeze(0).to(self.device)], dim=1)
        if tokens.shape[1] == 1 and self.length == self._checkpoint[0]:
            # The forward of one token writes in place, and these are the checkpoint's own.
            self._cache.states = {place: state.clone() for place, state in self._cache.states.items()}
        logits, hidden = self._forward(tokens, self._cache, keep, tree_mask)
        self.length += tokens.shape[1]
        return Output(logits[0], None if hidden is None else hidden[0])

    def sharing(self, model: PreTrainedModel, layers: int) -> EagerRunner:
        return EagerRunner(model, self._wish, reason=self._reason, cache=self._cache, layers=layers)

    def checkpoint(self) -> None:
        self._checkpoint = self.length, dict(self._cache.states)

    def rollback_to(self, length: int, path: Sequence[int] = ()) -> None:
        leading = next((i for i, place in enumerate(path) if place != i), len(path))
        end = length + len(path)  # the leading places of a path need not move
        if not 0 <= length <= end <= self.length or (path and length + path[-1] >= self.length):
            raise ValueError(f"cannot roll back from {self.length} tokens to {end}")
        layers = self._cache.holding(self._layers)
        if self._cache.states and end < self.length:
            begin, states = self._checkpoint if self._checkpoint[0] <= end else (0, {})
            self._cache.states, end, path = dict(states), begin, ()
        if leading < len(path):
            for layer in layers:
                moved = torch.tensor(path[leading:], device=layer.keys.device) - leading
                layer.gather(length + leading, moved)
        elif end < self.length:
            for layer in layers:
                layer.crop(end - self.length)
        self.length = end
