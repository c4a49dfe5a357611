"""The cache of one lane: slots set aside in advance, written in place, taken back by a number; and states.

transformers' ``DynamicCache`` makes new tensors of all keys and values for every token, so a token costs more the
longer the context is, by the copying alone. Here slots are set aside ahead, twice as many when all are full: each
is copied once or twice in all. A rollback only moves the end, and what lies behind it is written over next.

Recurrent and convolution layers keep a state of fixed size instead. A forward of several tokens puts new tensors
in the place of the old ones, so that to keep the old ones and put them back copies nothing.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, CacheLayerMixin

FIRST_CAPACITY = 128
"""Slots set aside at the least."""

States = dict[tuple[str, int, int], torch.Tensor]
"""("conv" or "recurrent", layer, number in the layer) → a state."""


class LaneCache(Cache):
    """Keys and values of one sequence; its layers come to be as the model's layers first write.

    Every position is kept: what a sliding window hides, the model's mask hides. So a rollback across the edge of a
    window brings back the positions that had left it.
    """

    layers: list[LaneLayer]  # type: ignore[assignment]  # transformers' list takes layers of any kind

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=LaneLayer)
        self.states: States = {}  # of the layers that have such
        # the keys by which layers of sparse attention choose what they read
        self.indexers: dict[int, LaneLayer] = {}

    def layer(self, index: int) -> LaneLayer:
        while len(self.layers) <= index:
            self.layers.append(LaneLayer())
        return self.layers[index]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each of transformers' attention layers; see :meth:`LaneLayer.update`."""
        return self.layer(layer_idx).update(key_states, value_states)

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        """Append keys (1, n, dim); returns all."""
        keys = indexer_key_states[:, None]
        return self.indexers.setdefault(layer_idx, LaneLayer()).update(keys, keys[..., :0])[0][:, 0]

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self.states.get(("conv", layer_idx, state_idx))

    def update_conv_state(
        self,
        conv_states: torch.Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """Append (1, channels, n) and keep the end, as long as the kernel; returns all, from the old end on."""
        old = self.get_conv_state(layer_idx, state_idx)
        count = conv_states.shape[-1]
        if old is None:
            size = conv_kernel_size or count
            whole = pad(conv_states, (max(0, size - count), 0))
        else:
            size, whole = old.shape[-1], torch.cat([old, conv_states], dim=-1)
        self.states["conv", layer_idx, state_idx] = whole[..., -size:].clone()  # a view would hold all of it
        return whole

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self.states.get(("recurrent", layer_idx, state_idx))

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object
    ) -> torch.Tensor:
        if recurrent_states.untyped_storage().nbytes() > recurrent_states.nbytes:  # a view, as above
            recurrent_states = recurrent_states.clone()
        self.states["recurrent", layer_idx, state_idx] = recurrent_states
        return recurrent_states

    def is_recording_past(self, layer_idx: int) -> bool:
        """No: what is taken back is put back whole."""
        return False

    def holding(self, layers: int | None = None) -> list[LaneLayer]:
        """What holds tokens in the first so many layers; those of states, or of an image, hold none."""
        stores = [*enumerate(self.layers), *self.indexers.items()]
        return [store for index, store in stores if store.length and (layers is None or index < layers)]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Of a layer; if none is named, of the first that holds any token."""
        held = self.layers[layer_idx : layer_idx + 1] if layer_idx else self.layers
        return next((layer.length for layer in held if layer.length), 0)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.get_seq_length(layer_idx) + query_length, 0


class LaneLayer(CacheLayerMixin):
    """One layer's keys and values: (1, heads, slots, dim), so that a head's are one piece of memory to read."""

    keys: torch.Tensor  # type: ignore[assignment]  # there once it is initialized
    values: torch.Tensor  # type: ignore[assignment]
    is_sliding = False
    is_croppable = True

    def __init__(self) -> None:
        super().__init__()
        self.length = 0  # slots that hold a token; those behind it hold nothing that is ever read

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take shape, type and device from the first states (1, heads, n, dim); no slots yet."""
        self.keys, self.values = (t.new_empty(*t.shape[:2], 0, t.shape[3]) for t in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write states (1, heads, n, dim) behind the last token; returns all keys and values, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin, end = self.length, self.length + key_states.shape[2]
        self.reserve(end)
        self.keys[:, :, begin:end] = key_states
        self.values[:, :, begin:end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reserve(self, slots: int) -> None:
        """Have slots for so many tokens."""
        if slots > self.keys.shape[2]:
            capacity = max(FIRST_CAPACITY, 2 * self.keys.shape[2], slots + slots // 4)
            old, shape = (self.keys, self.values), self.keys.shape[:2]
            self.keys, self.values = (t.new_empty(*shape, capacity, t.shape[3]) for t in old)
            for new, store in zip((self.keys, self.values), old, strict=True):
                new[:, :, : self.length] = store[:, :, : self.length]

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens, given as a number below 0 as in transformers; a ValueError if it holds fewer."""
        if not -self.length <= tokens_to_remove <= 0:
            raise ValueError(f"cannot take {-tokens_to_remove} of {self.length} tokens back")
        self.length += tokens_to_remove

    @torch.inference_mode()
    def gather(self, begin: int, path: torch.Tensor) -> None:
        """Keep the first ``begin`` tokens and, side by side, those in the places ``path`` (k,) behind them."""
        end = begin + len(path)
        for store in (self.keys, self.values):
            store[:, :, begin:end] = store.index_select(2, begin + path)
        self.length = end

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        return -1
