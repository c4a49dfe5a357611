"""A Llama-shaped model's forward without transformers' modules, for one sequence on a CPU.

A small model's step is mostly calls: a third of the time of a builtin target's step passes around its arithmetic.
Here the same arithmetic runs straight from the caller's own parameters. For which models:
:mod:`specdemo.decoding.engines.llama_check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.decoding.engines.llama_attention import Attention, Store
from specdemo.decoding.engines.llama_parts import Attending, LlamaModel
from specdemo.decoding.engines.masks import additive
from specdemo.decoding.tree import TreeMask

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class DirectForward(LlamaModel):
    """Feeds tokens to a model behind those in a cache, as ``eager_forward.Forward`` does."""

    name = "direct"

    def __init__(self, model: PreTrainedModel, aux_layers: Sequence[int] = ()) -> None:
        super().__init__(model)
        self._aux_layers = tuple(aux_layers)
        self._hidden: torch.Tensor | None = None

    @torch.inference_mode()
    def __call__(
        self, tokens: torch.Tensor, cache: LaneCache, keep: int, tree_mask: TreeMask | None = None
    ) -> torch.Tensor:
        """Append ``tokens`` (1, n) to the cache; returns the float32 logits (1, keep, vocabulary) of the last."""
        attention = attention_behind(self, cache, tokens.shape[1], tree_mask)
        logits, self._hidden = self.run(tokens[0], attention, keep, aux_layers=self._aux_layers)
        return logits.float().unsqueeze(0)

    def hidden(self) -> torch.Tensor | None:
        """(1, n, layers · width) of the last forward, to be taken once; None without such layers."""
        hidden, self._hidden = self._hidden, None
        return None if hidden is None else hidden.unsqueeze(0)


def attention_behind(
    model: Attending, cache: LaneCache, count: int, tree_mask: TreeMask | None = None
) -> Attention:
    """The attention of ``count`` tokens behind those in a cache, which takes their keys and values.

    Tokens of a tree attend to their ancestors, and their positions are their depths.
    """
    begin = cache.get_seq_length()
    if tree_mask is None:
        mask = causal_mask(model, begin, count) if begin and count > 1 else None
        return Attention(
            model, model.rotary.at(begin, begin + count), _store(model, cache), mask, causal=not begin
        )
    mask = additive(tree_mask.mask(), model.dtype).to(model.device)
    positions = tree_mask.positions.to(model.device)
    cos, sin = (table[positions] for table in model.rotary.at(0, begin + count))
    return Attention(
        model, (cos, sin), _store(model, cache), mask.repeat_interleave(model.heads_per_kv_head, dim=0)
    )


def _store(model: Attending, cache: LaneCache) -> Store:
    def store(index: int, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return cache.layer(index).update(*states.unsqueeze(0).split(model.kv_heads, dim=1))

    return store


def causal_mask(model: Attending, begin: int, count: int) -> torch.Tensor:
    """(n · heads per KV head, kv): −∞ where a token stands behind the one that looks."""
    mask = torch.zeros(count, begin + count, dtype=model.dtype, device=model.device)
    mask[:, begin:] = mask.new_full((count, count), -torch.inf).triu_(1)
    return mask.repeat_interleave(model.heads_per_kv_head, dim=0)
