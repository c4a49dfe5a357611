"""A Llama-shaped model's forward without transformers' modules, for one sequence on a CPU.

A small model's step is mostly calls: a third of the time of a builtin target's step passes around its arithmetic.
Here the same arithmetic runs straight from the caller's own parameters. For which models:
:mod:`specdemo.decoding.engines.llama_check`.
"""

from __future__ import annotations

import torch

from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.decoding.engines.llama_attention import Attention
from specdemo.decoding.engines.llama_parts import LlamaModel


class DirectForward(LlamaModel):
    """Feeds tokens to a model behind those in a cache, as ``eager_forward.Forward`` does."""

    name = "direct"

    @torch.inference_mode()
    def __call__(self, tokens: torch.Tensor, cache: LaneCache, keep: int) -> torch.Tensor:
        """Append ``tokens`` (1, n) to the cache; returns the float32 logits (1, keep, vocabulary) of the last."""
        count, begin = tokens.shape[1], cache.get_seq_length()

        def store(index: int, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return cache.layer(index).update(*states.unsqueeze(0).split(self.groups, dim=1))

        mask = self._causal_mask(begin, count) if begin and count > 1 else None
        attention = Attention(self, self.rotary.at(begin, begin + count), store, mask, causal=not begin)
        return self.logits(tokens[0], attention, keep).float().unsqueeze(0)

    def _causal_mask(self, begin: int, count: int) -> torch.Tensor:
        """(n · per group, kv): −∞ where a token stands behind the one that looks."""
        mask = torch.zeros(count, begin + count, dtype=self.dtype, device=self.device)
        mask[:, begin:] = mask.new_full((count, count), -torch.inf).triu_(1)
        return mask.repeat_interleave(self.per_group, dim=0)
