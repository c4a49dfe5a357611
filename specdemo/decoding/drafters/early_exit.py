"""Early exit: the target's own first layers draft, in the target's own cache."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import nn

from specdemo.decoding.drafters.base import ModelDrafter, Proposal
from specdemo.decoding.engines.eager import Runner
from specdemo.decoding.engines.graph_runner import StaticRunner
from specdemo.decoding.sampling import Sampler

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def layer_list(model: PreTrainedModel) -> str | None:
    """Dotted name of the list that holds the decoder layers; None for an architecture built otherwise."""
    count = model.config.get_text_config().num_hidden_layers
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    return min(found, key=lambda name: name.count("."), default=None)


def first_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """The same model, weights shared, that ends after ``count`` layers and goes straight to norm and head.

    ``model`` itself is not touched: the modules on the way to the layers are copied without their weights.

    Raises:
        ValueError: the layers were not found.
    """
    name = layer_list(model)
    if name is None:
        raise ValueError(f"{type(model).__name__} keeps its layers in no list of their own")
    shallow = parent = _with_own_children(model)
    *way, last = name.split(".")
    for step in way:
        child = _with_own_children(getattr(parent, step))
        parent._modules[step] = child
        parent = child
    parent._modules[last] = nn.ModuleList(list(getattr(parent, last))[:count])
    return shallow


def _with_own_children(module: nn.Module) -> nn.Module:
    """A copy that shares everything but the table of its children."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied


class EarlyExitDrafter(ModelDrafter):
    """Drafts with the first layers of the target and takes the drafted positions out of its cache again.

    The method of LayerSkip (Elhoushi et al., arXiv 2404.16710), whose models are trained for it: others, which
    never learned to read their middle layers, accept little.
    """

    def __init__(
        self,
        target: Runner | StaticRunner,
        first: Runner | StaticRunner,
        sampler: Sampler,
        whole: Callable[[Sequence[int], int], Proposal] | None = None,
    ) -> None:
        """``first`` runs the first layers of the target in the same cache: see ``Runner.sharing``."""
        super().__init__(first, sampler, whole)
        self._target = target

    def prefill(self, ids: Sequence[int]) -> None:
        """Nothing to do: the target's prefill fills the first layers too."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        self._runner.length = self._target.length
        try:
            return super().propose(committed, gamma)
        finally:
            self._runner.rollback_to(self._target.length)

    def settle(self, committed: Sequence[int]) -> None:
        """Nothing to do: every proposal cleans up after itself."""
