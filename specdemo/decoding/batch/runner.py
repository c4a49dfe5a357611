"""One model over a batch of rows that have lengths of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.batch.kv_cache import RaggedCache
from specdemo.decoding.engines.eager_forward import Forward
from specdemo.decoding.engines.masks import additive, attention_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
        self._config = model.config.get_text_config()
        self._last_position = (getattr(self._config, "max_position_embeddings", None) or 2**31) - 1
        self._additive = model.config._attn_implementation == "eager"

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row in the cache."""
        return list(self.cache.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values allocated."""
        return self.cache.nbytes

    def forward(self, feeds: Sequence[Sequence[int]] | torch.Tensor, last: bool = False) -> torch.Tensor:
        """Append to every row its tokens, at least one.

        Args:
            feeds: token ids of each row; or a tensor (B, n) that feeds all rows alike.
            last: return only the logits behind each row's last token.

        Returns:
            float32 logits (B, n, vocabulary), n being the longest feed, where those of a row beyond its own tokens
            mean nothing; or (B, vocabulary) of the last ones.
        """
        tokens, counts = _filled(feeds)
        count = tokens.shape[1]
        cache = self.cache
        cache.open(count)
        places = sorted({c - 1 for c in counts}) if last else range(count)
        every = len(places) == count
        logits = self._forward(
            tokens,
            cache,
            count if every else torch.tensor(places, device=self.device),
            # A filled up row may reach beyond the last position that was learned.
            position_ids=cache.positions.clamp(max=self._last_position),
            attention_mask=self._masks(),
        )
        cache.lengths = [length + c for length, c in zip(cache.lengths, counts, strict=True)]
        if not last:
            return logits
        found = torch.tensor([places.index(c - 1) for c in counts], device=logits.device)
        return logits[torch.arange(len(counts), device=logits.device), found]

    def rollback_to(self, lengths: Sequence[int]) -> None:
        """Forget in each row everything after its first so many tokens.

        Raises:
            ValueError: a row holds fewer.
        """
        for held, length in zip(self.cache.lengths, lengths, strict=True):
            if not 0 <= length <= held:
                raise ValueError(f"cannot roll back from {held} tokens to {length}")
        self.cache.lengths = list(lengths)

    def keep(self, rows: Sequence[int]) -> None:
        """Let go of all rows but these, in this order."""
        self.cache.keep(rows)

    def _masks(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """What each new token may look at: (B, 1, n, slots), one a kind of layer if the model has several."""
        queries = self.cache.positions[:, None, :, None]
        slots = torch.arange(self.cache.kv_length, device=self.device)
        causal = slots <= queries
        masks = {"full_attention": causal}
        if (window := getattr(self._config, "sliding_window", None)) is not None:
            masks["sliding_attention"] = causal & (slots > queries - window)
        kinds = attention_kinds(self._config)
        if self._additive:
            masks = {kind: additive(mask, self.model.dtype) for kind, mask in masks.items()}
        return {kind: masks[kind] for kind in kinds} if len(kinds) > 1 else masks[kinds[0]]


def _filled(feeds: Sequence[Sequence[int]] | torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """The feeds as one tensor, and how many tokens of each row are its own."""
    if isinstance(feeds, torch.Tensor):
        return feeds, [feeds.shape[1]] * len(feeds)
    counts = [len(feed) for feed in feeds]
    longest = max(counts)
    return torch.tensor([[*feed, *[0] * (longest - len(feed))] for feed in feeds]), counts
