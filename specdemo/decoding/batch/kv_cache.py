"""A KV cache whose rows have lengths of their own: slot i of a row holds its token i, whatever the others hold.

Each row writes behind its own live tokens, over whatever was rolled back there. So there are no holes to mask, no
rows to shift, a rollback is a smaller number, and memory follows the longest row alive.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

GROWTH = 1.25
"""Slots allocated per slot needed, so that growing copies each slot a few times in all."""


class RaggedCache(Cache):
    """Keys and values of B rows.

    Attributes:
        lengths: live tokens of each row.
    """

    layers: list[RaggedLayer]  # type: ignore[assignment]  # transformers' list takes layers of any kind

    def __init__(self, rows: int, device: torch.device) -> None:
        super().__init__(layers=[])
        self.lengths = [0] * rows
        self._device = device
        self._place = _Place([0] * rows, 0, device)

    def open(self, count: int) -> None:
        """Make the next forward write ``count`` tokens a row behind the live ones."""
        self._place = _Place(self.lengths, count, self._device)

    @property
    def kv_length(self) -> int:
        """Slots of a row that the next forward reads."""
        return self._place.end

    @property
    def positions(self) -> torch.Tensor:
        """(B, count): the slots that the next forward writes, which are the tokens' places in their rows."""
        return self._place.slots

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer with its new keys and values (B, heads, count, dim)."""
        while len(self.layers) <= layer_idx:
            self.layers.append(RaggedLayer())
        return self.layers[layer_idx].update(key_states, value_states, self._place)

    def keep(self, rows: Sequence[int]) -> None:
        """Let go of all rows but these."""
        self.lengths = [self.lengths[row] for row in rows]
        for layer in self.layers:
            layer.keep(rows, max(self.lengths, default=0))


class _Place:
    """Where one forward writes, for all layers."""

    def __init__(self, starts: Sequence[int], count: int, device: torch.device) -> None:
        self.count = count
        self.end = max(starts, default=0) + count
        self.even = len(set(starts)) <= 1
        begin = torch.tensor(starts, dtype=torch.long, device=device)
        self.slots = begin[:, None] + torch.arange(count, device=device)
        self._rows = torch.arange(len(starts), device=device)[:, None]

    def flat(self, capacity: int) -> torch.Tensor:
        """The same slots counted through all rows of ``capacity`` slots: (B · count,)."""
        return (self._rows * capacity + self.slots).flatten()


class RaggedLayer(CacheLayerMixin):
    """One layer's keys and values, stored (B, slots, heads, dim) so that a token's are one piece of memory."""

    keys: torch.Tensor  # type: ignore[assignment]  # there once it is initialized
    values: torch.Tensor  # type: ignore[assignment]
    is_sliding = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = (
            t.new_zeros(t.shape[0], 0, t.shape[1], t.shape[3]) for t in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, place: _Place
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.keys.shape[1] < place.end:
            capacity = int(GROWTH * place.end) + 1
            self.keys, self.values = _resized(self.keys, capacity), _resized(self.values, capacity)
        return _write(self.keys, key_states, place), _write(self.values, value_states, place)

    def keep(self, rows: Sequence[int], width: int) -> None:
        """Copies what stays, so that the memory of the rest is free at once."""
        index = torch.tensor(rows, dtype=torch.long, device=self.keys.device)
        self.keys, self.values = self.keys[:, :width][index], self.values[:, :width][index]

    def get_seq_length(self) -> int:
        """Not one number here; only models that are given no positions ask for it."""
        return 0 if self.keys is None else self.keys.shape[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


def _resized(store: torch.Tensor, capacity: int) -> torch.Tensor:
    """Zeros in the new slots: they are masked, but what is masked is still multiplied, and NaN · 0 is NaN."""
    grown = store.new_zeros(store.shape[0], capacity, *store.shape[2:])
    grown[:, : store.shape[1]] = store
    return grown


def _write(store: torch.Tensor, states: torch.Tensor, place: _Place) -> torch.Tensor:
    """Put states (B, heads, count, dim) into the slots; returns all that is read, (B, heads, end, dim)."""
    tokens = states.transpose(1, 2)
    if place.even:
        store[:, place.end - place.count : place.end] = tokens
    else:
        flat = store.view(-1, *store.shape[2:])
        flat.index_copy_(0, place.flat(store.shape[1]).to(flat.device), tokens.reshape(-1, *tokens.shape[2:]))
    return store[:, : place.end].transpose(1, 2)
