"""Caches that seem to hold a long text: a model is tried far into one for the price of a few tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specdemo.decoding.batch.runner import RaggedCache, RaggedLayer
from specdemo.decoding.engines.kv_cache import LaneCache, LaneLayer
from specdemo.models.pair import context_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WINDOW_WORDS = ("window", "chunk", "block", "local", "sparse", "span", "stride")
LEAST_WINDOW, MOST_WINDOW = 32, 8192
"""Windows passed in any case, and those passed at the most: what is made up takes memory, a layer at a time."""
FED = 16
"""Tokens that a trial feeds behind what is made up, at the most."""
QUIET = 0.1
"""Of keys: attention spreads over all that it sees."""


class MadeUpPast:
    """Keys and values of tokens that nobody fed, the same for every cache that is made of it.

    They are twice as many as the largest window that the model can have, as far as it has positions, and as large
    as the first states that a layer was fed. They are random and drift with their place, so that attention over
    other places gives another result.

    A window is called ``sliding_window``, ``window_size``, ``attention_chunk_size`` and more, so every small
    number of the configuration counts whose name speaks of such a thing; one that is none only makes the trial
    longer.

    Args:
        model: to be tried.
        empty: there is no past, to try the beginning of a text.

    Attributes:
        length: tokens, at the most.
        shorter: fewer, and past all windows too.
    """

    def __init__(self, model: PreTrainedModel, empty: bool = False) -> None:
        stated = model.config.get_text_config().to_dict()
        named = [n for name, n in stated.items() if type(n) is int and any(word in name for word in WINDOW_WORDS)]
        self._windows = [LEAST_WINDOW, *(n for n in named if 0 < n <= MOST_WINDOW)]
        context = context_of(model)
        wanted = 0 if empty else 2 * max(self._windows) + FED
        self.length = wanted if context is None else max(0, min(wanted, context - FED))
        self.shorter = self.length - self.length // 4
        self._shared: dict[object, torch.Tensor] = {}
        self._scales: dict[object, torch.Tensor] = {}

    def before(
        self, keys: torch.Tensor, values: torch.Tensor, length: int, layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (1, heads, length, dim) to stand before those (B, heads, n, dim) of a layer."""
        return self._made(keys, length, layer, "keys"), self._made(values, length, layer, "values")

    def _made(self, states: torch.Tensor, length: int, layer: int, kind: str) -> torch.Tensor:
        _, heads, _, dim = states.shape
        key = (kind, heads, dim, states.device, states.dtype)
        if key not in self._shared:  # all layers share it: a long text's would take too much memory
            generator = torch.Generator().manual_seed(len(kind))
            made = torch.randn(heads, self.length, dim, generator=generator)
            made += torch.linspace(-2.0, 2.0, self.length)[:, None]
            made *= QUIET if kind == "keys" else self._loudness()
            self._shared[key] = made.to(states.device, states.dtype)[None]
        scale = self._scales.setdefault((layer, kind), states.float().std().to(states.dtype))
        return self._shared[key][:, :, :length] * scale

    def _loudness(self) -> torch.Tensor:
        """(length, 1) of values: at the edge of a window, one more or less in sight is to show among thousands."""
        factors = torch.ones(self.length, 1)
        for edge in (end - window for end in (self.length, self.shorter) for window in self._windows):
            factors[max(edge - FED, 0) : max(edge + FED, 0)] = max(1.0, self.length / FED)
        return factors


class TrialCache(LaneCache):
    """A lane's cache that begins with ``length`` tokens of a past; it takes one forward at a time."""

    def __init__(self, past: MadeUpPast, length: int) -> None:
        super().__init__()
        self._past, self._length = past, length
        self.layer(0)  # transformers asks it how long the text is before any layer writes

    def _new_layer(self, index: int) -> LaneLayer:
        return _TrialLayer(self._past, self._length, index)


class _TrialLayer(LaneLayer):
    """Gives the past before what it is fed, and keeps neither."""

    def __init__(self, past: MadeUpPast, length: int, index: int) -> None:
        super().__init__()
        self._past, self._index = past, index
        self._begin = self.length = length

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.length = self._begin + key_states.shape[2]
        keys, values = self._past.before(key_states, value_states, self._begin, self._index)
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)


class TrialRows(RaggedCache):
    """A batch's cache whose rows begin with so many tokens of a past each; it takes one forward."""

    def __init__(self, past: MadeUpPast, lengths: list[int], device: torch.device) -> None:
        super().__init__(len(lengths), device)
        self._past, self.lengths = past, list(lengths)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        layer, rows = RaggedLayer(), len(key_states)
        layer.lazy_initialization(key_states, value_states)
        past = self._past.before(key_states, value_states, max(self.lengths), layer_idx)
        layer.keys, layer.values = (states.transpose(1, 2).repeat(rows, 1, 1, 1) for states in past)
        return layer.update(key_states, value_states, self)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(self.lengths)
