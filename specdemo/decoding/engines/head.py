"""What runs an EAGLE-3 or MTP head: its one layer behind the rows in its own cache, directly or by its modules."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from specdemo.decoding.engines import graph_capture
from specdemo.decoding.engines.base import additive
from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.decoding.engines.llama import Attending, Layer, Linear, attention_behind, norm_of
from specdemo.decoding.engines.llama_check import head_unsupported_reason
from specdemo.decoding.proposal import TreeMask
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.mtp_head import Head
from specdemo.models.packing import engine_name


class HeadRunner:
    """A head, its own cache and its rollback; ``table`` (V, H) has the embeddings it reads."""

    def __init__(self, head: Head, table: torch.Tensor, wish: str) -> None:
        self._head, self._table = head, table
        name, reason = _choose(head, wish)
        named = engine_name(name, head)
        self.engine = named if reason is None else f"{named}: {reason}"  # what runs the head, for the record
        self._run = DirectHead(head) if isinstance(head, Eagle3Head) and name == "direct" else ModuleHead(head)
        self._cache = LaneCache()
        self.length = 0  # rows in the cache

    @torch.inference_mode()
    def project(self, features: torch.Tensor) -> torch.Tensor:
        """The target's features (n, layers · Ht) as the head's own states (n, H)."""
        return self._head.project(features.to(self._head.device, self._head.dtype))

    @torch.inference_mode()
    def forward(
        self, hidden: torch.Tensor, tokens: Sequence[int] | torch.Tensor, tree_mask: TreeMask | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append rows to the cache: states (n, H), each with the token that follows, (n,), perhaps a tree's.

        Returns float32 logits (1, Vd) behind the last row, of a tree (n, Vd), and what the next step reads.
        """
        ids = torch.as_tensor(tokens, dtype=torch.long).to(self._table.device)
        # A padded target can emit an id that there is no embedding for: see Forward.
        embeddings = functional.embedding(ids.clamp(max=len(self._table) - 1), self._table)
        embeddings = embeddings.to(self._head.device, self._head.dtype)
        logits, fed_back = self._run(hidden, embeddings, self._cache, tree_mask)
        self.length += len(hidden)
        return logits.float(), fed_back

    def rollback_to(self, length: int) -> None:
        """Forget all rows but the first ``length``; a ValueError where there are fewer."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} rows to {length}")
        if self.length:
            self._cache.layer(0).crop(length - self.length)
        self.length = length


class DirectHead(Attending):
    """The arithmetic of :class:`Eagle3Head` on its own parameters, without the calls of its modules."""

    def __init__(self, head: Eagle3Head) -> None:
        super().__init__(head.midlayer.self_attn, head.config.layer, head.rotary_emb, head.lm_head.weight)
        self._config = head.config
        self._out, self._layer = Linear(head.lm_head), Layer(head.midlayer)
        self._hidden_norm = norm_of(head.midlayer.hidden_norm)
        self._norm = None if head.norm is None else norm_of(head.norm)

    def __call__(
        self, hidden: torch.Tensor, embeddings: torch.Tensor, cache: LaneCache, tree_mask: TreeMask | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits, and what the next step reads: of all rows of a tree, else of the last.

        The others are only looked at then: their keys and values are all that is needed.
        """
        config, first = self._config, len(hidden) - 1 if tree_mask is None else 0
        normed = self._hidden_norm(hidden)
        attention = attention_behind(self, cache, len(hidden), tree_mask)
        attended = attention(0, self._layer, torch.cat([self._layer.before_attention(embeddings), normed], dim=1))
        h = (normed if config.norm_before_residual else hidden)[first:].clone()
        self._layer.output.add_to(h, attended[first:])
        self._layer.add_mlp(h)
        normed = h if self._norm is None else self._norm(h)
        logits = self._out(normed if config.norm_before_head else h)
        return logits, normed if config.feeds_norm else h


class ModuleHead:
    """The same by the head's modules, whatever hooks and weights they have."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def __call__(
        self, hidden: torch.Tensor, embeddings: torch.Tensor, cache: LaneCache, tree_mask: TreeMask | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count, begin = len(hidden), cache.layer(0).length
        looks = tree_mask or TreeMask(begin, range(count), torch.ones(count, count, dtype=torch.bool).tril())
        positions, mask = looks.positions.unsqueeze(0).to(hidden.device), None
        if count > 1 or tree_mask is not None:
            mask = additive(looks.mask(), hidden.dtype)[None, None].to(hidden.device)
        h = self._head(hidden.unsqueeze(0), embeddings.unsqueeze(0), positions, mask, cache)[0]
        h = h[-1:] if tree_mask is None else h
        return self._head.logits(h), self._head.feed_back(h)


def _choose(head: Head, wish: str) -> tuple[str, str | None]:
    """The engine, and why it is not what was asked for."""
    capturable = graph_capture.can_capture(head.device)
    if wish == "graphs" and not capturable:
        return "eager", "graphs need a CUDA device"
    direct = wish != "eager" and isinstance(head, Eagle3Head) and head_unsupported_reason(head) is None
    stepwise = wish == "graphs" or (wish == "auto" and capturable)
    return "direct" if direct else "eager", "the drafts of a head are not captured" if stepwise else None
