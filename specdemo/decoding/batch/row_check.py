"""Does a model decode rows of unequal lengths as it decodes each alone? Found out by trying."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.errors import PairError
from specdemo.models.failures import not_finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdemo.models.pair import ModelPair

TRIAL = (((1, 2, 3), (4,)), ((5,), (6, 7)))
"""Two forwards of two rows, none as long as the one beside it."""
TOLERANCE = {torch.float32: 0.01}
ROUGH_TOLERANCE = 0.2
"""Largest difference, in standard deviations of the logits; a row that saw its neighbour is off by about one."""


def check_batches(pair: ModelPair, *, drafting: bool) -> None:
    """Find out by trying, once a pair, whether its models decode rows of unequal lengths together.

    Args:
        pair: whose target is tried.
        drafting: whether the draft model takes part.

    Raises:
        PairError: a model's logits depend on the rows beside, or it takes no positions of its own.
    """
    for role, model in zip(("target", "draft"), pair.models if drafting else [pair.target], strict=False):
        if f"{role} in batches" not in pair.prepared:
            check_rows_apart(role, model)
            pair.prepared.add(f"{role} in batches")


def check_rows_apart(role: str, model: PreTrainedModel) -> None:
    """
    Raises:
        PairError: the model takes no positions or masks of its own, its rows are not independent, or it computes
            no finite numbers.
    """
    try:
        worst = _worst_difference(model)
    except torch.OutOfMemoryError:
        raise  # says nothing of the model
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, RuntimeError) as error:
        raise PairError(_message(role, model, "it takes no positions or masks of the rows' own")) from error
    if math.isnan(worst):
        raise not_finite(role)
    if worst > TOLERANCE.get(model.dtype, ROUGH_TOLERANCE):
        raise PairError(_message(role, model, "its rows come out otherwise than each alone"))


def _worst_difference(model: PreTrainedModel) -> float:
    together, alone = RaggedRunner(model, rows=2), [EagerRunner(model), EagerRunner(model)]
    differences = []
    for feeds in TRIAL:
        for runner, feed, logits in zip(alone, feeds, together.forward(feeds, last=True), strict=True):
            expected = runner.forward(feed).logits[0]
            differences.append((logits - expected).abs().max() / expected.std())
    return torch.stack(differences).max().item()  # NaN where any is


def _message(role: str, model: PreTrainedModel, reason: str) -> str:
    return (
        f"{role}: {type(model).__name__} cannot decode a batch of unequal rows ({reason}); "
        "choose another pair, or run the prompts one after the other."
    )
