"""The rows of the table of drafters, and the way from a lane's settings to its drafter."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from specdemo.decoding.drafters import eagle3, early_exit, model, prompt_lookup
from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.masks import ignores_masks
from specdemo.decoding.lane import Lane
from specdemo.decoding.trials import check_trees, once
from specdemo.drafters import DRAFTERS, PARTS, offered_with, register
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

for _spec in (model.SPEC, prompt_lookup.SPEC, early_exit.SPEC, eagle3.SPEC):
    register(_spec)


def check_drafter(pair: ModelPair, settings: Settings) -> None:
    """Refuse what this pair cannot draft with. Before a model's first tree two small forwards try it.

    Raises:
        SettingsError: names the field, and what would work.
        PairError: a model that is to read trees computes no finite numbers.
    """
    spec = DRAFTERS[settings.drafter]
    if spec.needs is not None and spec.needs not in pair.parts:
        able = [other for other in offered_with(pair.parts) if other.trees or not settings.drafts_trees]
        others = " or ".join(repr(other.name) for other in able)
        raise SettingsError(
            "drafter", f"{spec.name!r} needs {PARTS[spec.needs]}, and this pair has none; choose {others}."
        )
    spec.check(pair, settings)
    if settings.drafts_trees:
        models = {"target": pair.target} | ({"draft": pair.draft} if spec.needs == "draft" else {})
        for role, model in models.items():
            _check_masks(role, model)
        for role, model in models.items():
            once(pair, f"{role} in trees", partial(check_trees, role, model, settings.engine))


def _check_masks(role: str, model: PreTrainedModel) -> None:
    """Refuse a model that cannot read a tree."""
    attention = ignores_masks(model.config)
    if attention is not None:
        raise SettingsError(
            "tree_nodes",
            f"the {role}'s attention is {attention!r}, which takes no mask of a tree; load it with "
            "attn_implementation='sdpa', or set tree nodes to 0.",
        )


def open_drafter(pair: ModelPair, target: Runner, lane: Lane) -> Drafter:
    """A fresh drafter for one lane, after :func:`check_drafter`."""
    return DRAFTERS[lane.settings.drafter].open(pair, target, lane)
