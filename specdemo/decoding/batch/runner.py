"""One model over a batch of rows that have lengths of their own, and its KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache

from specdemo.decoding.engines.base import additive, model_masks
from specdemo.decoding.engines.eager import Forward
from specdemo.models.types import PreTrainedModel

GROWTH = 1.25
"""Slots allocated per slot needed, so that growing copies each slot a few times in all."""


class RaggedRunner:
    """Feeds each row its own tokens and takes back from each row its own number.

    A row's logits do not depend on the other rows: its tokens sit at their own positions, and its own mask, made
    from its length, hides all else. Rows that are fed fewer tokens than others are filled up behind theirs; what
    that leaves in the cache is over their live tokens and overwritten next.
    """

    def __init__(self, model: PreTrainedModel, rows: int) -> None:
        self.model = model
        self._forward = Forward(model)
        self.device = self._forward.device
        self.cache = RaggedCache(rows, self.device)
        self._last_position = (
            getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**31
        ) - 1
        self._additive = model.config._attn_implementation == "eager"

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row in the cache."""
        return list(self.cache.lengths)

    def forward(self, feeds: Sequence[Sequence[int]] | torch.Tensor, last: bool = False) -> torch.Tensor:
        """Append to every row its tokens, at least one.

        Args:
            feeds: token ids of each row; or a tensor (B, n) that feeds all rows alike.
            last: return only the logits behind each row's last token.

        Returns:
            float32 logits (B, n, vocabulary), n being the longest feed, where those of a row beyond its own tokens
            mean nothing; or (B, vocabulary) of the last ones.
        """
        counts = [len(feed) for feed in feeds]
        count, cache = max(counts), self.cache
        if isinstance(feeds, torch.Tensor):
            tokens = feeds
        else:
            tokens = torch.tensor([[*feed, *[0] * (count - len(feed))] for feed in feeds])
        cache.open(count)
        places = sorted({c - 1 for c in counts}) if last else range(count)
        logits, _ = self._forward(
            tokens,
            cache,
            count if len(places) == count else torch.tensor(places, device=self.device),
            # A filled up row may reach beyond the last position that was learned.
            position_ids=cache.positions.clamp(max=self._last_position),
            attention_mask=model_masks(self.model, self._mask),
        )
        cache.lengths = [length + c for length, c in zip(cache.lengths, counts, strict=True)]
        if not last:
            return logits
        found = torch.tensor([places.index(c - 1) for c in counts], device=logits.device)
        return logits[torch.arange(len(counts), device=logits.device), found]

    def rollback_to(self, lengths: Sequence[int]) -> None:
        """Forget in each row everything after its first so many tokens; a ValueError where one holds fewer."""
        for held, length in zip(self.cache.lengths, lengths, strict=True):
            if not 0 <= length <= held:
                raise ValueError(f"cannot roll back from {held} tokens to {length}")
        self.cache.lengths = list(lengths)

    def keep(self, rows: Sequence[int]) -> None:
        """Let go of all rows but these, in this order."""
        self.cache.keep(rows)

    def _mask(self, window: int | None) -> torch.Tensor:
        """What each new token may look at: (B, 1, n, slots)."""
        queries = self.cache.positions[:, None, :, None]
        slots = torch.arange(self.cache.kv_length, device=self.device)
        mask = slots <= queries
        if window is not None:
            mask = mask & (slots > queries - window)
        return additive(mask, self.model.dtype) if self._additive else mask


class RaggedCache(Cache):
    """Keys and values of B rows: slot i of a row holds its token i, whatever the others hold.

    Each row writes behind its own live tokens, over whatever was rolled back there. So there are no holes to mask,
    no rows to shift, a rollback is a smaller number, and memory follows the longest row alive.
    """

    # (B, n): the slots that the next forward writes, which are the tokens' places in their rows
    positions: torch.Tensor
    rows: torch.Tensor  # (B, 1) their numbers
    kv_length: int  # slots of a row that it reads

    def __init__(self, rows: int, device: torch.device) -> None:
        super().__init__(layers=[])
        self.lengths, self._device = [0] * rows, device  # lengths: live tokens of each row
        # ("keys", "values" or "indexer", layer) → (B, slots, heads, dim), so that a token's are one piece of
        # memory
        self.stores: dict[tuple[str, int], torch.Tensor] = {}

    def open(self, count: int) -> None:
        """Make the next forward write ``count`` tokens a row behind the live ones."""
        begin = torch.tensor(self.lengths, dtype=torch.long, device=self._device)
        self.positions = begin[:, None] + torch.arange(count, device=self._device)
        self.rows = torch.arange(len(begin), device=self._device)[:, None]
        self.kv_length = max(self.lengths) + count

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer with its new keys and values (B, heads, count, dim)."""
        return self._write(("keys", layer_idx), key_states), self._write(("values", layer_idx), value_states)

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        """Keys (B, count, dim) by which sparse attention chooses what it reads; returns all."""
        return self._write(("indexer", layer_idx), indexer_key_states[:, None])[:, 0]

    def _write(self, place: tuple[str, int], states: torch.Tensor) -> torch.Tensor:
        """Put states (B, heads, count, dim) into the slots; returns all that is read, (B, heads, end, dim)."""
        tokens, end = states.transpose(1, 2), self.kv_length
        rows, count, *shape = tokens.shape
        store = self.stores.get(place)
        if store is None or store.shape[1] < end:
            # Zeros in the new slots: they are masked, but what is masked is still multiplied, and NaN · 0 is NaN.
            grown = tokens.new_zeros(rows, int(GROWTH * end) + 1, *shape)
            if store is not None:
                grown[:, : store.shape[1]] = store
            self.stores[place] = store = grown
        if len(set(self.lengths)) == 1:
            store[:, end - count : end] = tokens
        else:
            slots = (self.rows * store.shape[1] + self.positions).flatten()
            flat = store.view(-1, *shape)
            flat.index_copy_(0, slots.to(flat.device), tokens.reshape(-1, *shape))
        return store[:, :end].transpose(1, 2)

    def keep(self, rows: Sequence[int]) -> None:
        """Let go of all rows but these, by a copy of what stays: the memory of the rest is free at once."""
        self.lengths = [self.lengths[row] for row in rows]
        index, longest = torch.tensor(rows, dtype=torch.long), max(self.lengths, default=0)
        for place, store in self.stores.items():
            self.stores[place] = store[:, :longest][index.to(store.device)]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Of the longest row; only models that are given no positions ask for it."""
        return max(self.lengths)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0
