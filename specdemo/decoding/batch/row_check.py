"""Does a model decode rows of unequal lengths as it decodes each alone? Found out by trying."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.batch.kv_cache import RaggedCache, RaggedLayer
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.trial_cache import MadeUpPast, TrialCache
from specdemo.decoding.trials import differences, once, tolerance, trying
from specdemo.errors import PairError
from specdemo.models.failures import not_finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdemo.models.pair import ModelPair

TRIAL = (((1, 2, 3), (4,)), ((5,), (6, 7)))
"""Two forwards of two rows, none as long as the one beside it."""


def check_batches(pair: ModelPair, *, drafting: bool) -> None:
    """Find out by trying, once a pair, whether its models decode rows of unequal lengths together.

    Args:
        pair: whose target is tried.
        drafting: whether the draft model takes part.

    Raises:
        PairError: a model's logits depend on the rows beside, or it takes no positions of its own.
    """
    for role, model in zip(("target", "draft"), pair.models if drafting else [pair.target], strict=False):
        once(pair, f"{role} in batches", partial(check_rows_apart, role, model))


def check_rows_apart(role: str, model: PreTrainedModel) -> None:
    """
    Raises:
        PairError: the model takes no positions or masks of its own, its rows are not independent, or it computes
            no finite numbers.
    """

    def refused(reason: str) -> PairError:
        return PairError(
            f"{role}: {type(model).__name__} cannot decode a batch of unequal rows ({reason}); "
            "choose another pair, or run the prompts one after the other."
        )

    with trying(refused):
        worst = max(_at_the_beginning(model), _past_windows(model), key=lambda off: (math.isnan(off), off))
    if math.isnan(worst):
        raise not_finite(role)
    if worst > tolerance(model.dtype):
        raise refused("its rows come out otherwise than each alone")


def _at_the_beginning(model: PreTrainedModel) -> float:
    together, alone = RaggedRunner(model, rows=2), [EagerRunner(model), EagerRunner(model)]
    rows = [
        (logits, runner.forward(feed).logits[0])
        for feeds in TRIAL
        for runner, feed, logits in zip(alone, feeds, together.forward(feeds, last=True), strict=True)
    ]
    return differences(*map(torch.stack, zip(*rows, strict=True))).max().item()


def _past_windows(model: PreTrainedModel) -> float:
    past, feeds = MadeUpPast(model), TRIAL[0]
    lengths = [past.length, past.shorter]
    together = RaggedRunner(model, rows=2)
    together.cache = _TrialCache(past, lengths, together.device)
    rows = []
    for logits, length, feed in zip(together.forward(feeds, last=True), lengths, feeds, strict=True):
        rows.append((logits, EagerRunner(model, "eager", cache=TrialCache(past, length)).forward(feed).logits[0]))
    return differences(*map(torch.stack, zip(*rows, strict=True))).max().item()


class _TrialCache(RaggedCache):
    """A batch's cache whose rows begin with so many tokens of a past each; it takes one forward."""

    def __init__(self, past: MadeUpPast, lengths: list[int], device: torch.device) -> None:
        super().__init__(len(lengths), device)
        self._past, self.lengths = past, list(lengths)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        layer, longest = RaggedLayer(), max(self.lengths)
        layer.lazy_initialization(key_states, value_states)
        layer.keys, layer.values = (
            self._past.before(states, longest, layer_idx, kind).transpose(1, 2).repeat(len(states), 1, 1, 1)
            for states, kind in ((key_states, "keys"), (value_states, "values"))
        )
        return layer.update(key_states, value_states, self._place)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(self.lengths)
