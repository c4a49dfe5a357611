"""Early exit: the target's own first layers draft, in the target's own cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.decoding.drafters.base import DrafterSpec
from specdemo.decoding.drafters.model import ModelDrafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.model_views import layer_list, layers_of, with_layers
from specdemo.decoding.engines.open import open_first_layers
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.drafters import offered_with
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair, keeps_states
from specdemo.models.types import PreTrainedModel
from specdemo.settings import Settings


def first_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """The same model, weights shared, that ends after ``count`` layers and goes straight to norm and head."""
    return with_layers(model, layers_of(model)[:count])


class EarlyExitDrafter(ModelDrafter):
    """Drafts with the first layers of the target and takes the drafted positions out of its cache again.

    The method of LayerSkip (Elhoushi et al., arXiv 2404.16710), whose models are trained for it: others, which
    never learned to read their middle layers, accept little.
    """

    def __init__(self, target: Runner, first: Runner, sampler: Sampler) -> None:
        """``first`` runs the first layers of the target in the same cache."""
        super().__init__(first, sampler)
        self._target = target

    def prefill(self, ids: Sequence[int]) -> None:
        """Nothing to do: the target's prefill fills the first layers too."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        return self._in_the_targets_cache(super().propose, committed, gamma)

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        return self._in_the_targets_cache(super().propose_tree, committed, depth, nodes)

    def _in_the_targets_cache(self, draft: Callable[..., Proposal], *how: object) -> Proposal:
        self._runner.length = self._target.length
        proposal = draft(*how)
        self._runner.rollback_to(self._target.length)
        return proposal

    def commit(self, committed: Sequence[int]) -> None:
        """Nothing to do: every proposal cleans up after itself."""


def _layers(pair: ModelPair) -> int:
    return pair.target.config.get_text_config().num_hidden_layers


def exit_layer_of(pair: ModelPair, settings: Settings) -> int:
    """How many of the target's layers draft: a third where the settings leave it open."""
    return settings.exit_layer or max(1, _layers(pair) // 3)


def _check(pair: ModelPair, settings: Settings) -> None:
    layers, kind = _layers(pair), type(pair.target).__name__
    if layers < 2 or layer_list(pair.target) is None:
        reason = f"needs several layers in one list, and {kind} has none"
        raise SettingsError("drafter", f"'early_exit' {reason}; choose 'prompt_lookup'.")
    if keeps_states(pair.target):
        reason = f"drafts in the target's own cache, and {kind} keeps states there, which have no tokens"
        others = " or ".join(repr(i.name) for i in offered_with(pair.parts) if i.name != "early_exit")
        raise SettingsError("drafter", f"'early_exit' {reason}; choose {others}.")
    if (wanted := settings.exit_layer) is not None and wanted >= layers:
        raise SettingsError("exit_layer", f"must be below the target's {layers} layers, not {wanted}.")


def _open(pair: ModelPair, target: Runner, lane: Lane) -> EarlyExitDrafter:
    layers = exit_layer_of(pair, lane.settings)
    first = open_first_layers(target, first_layers(pair.target, layers), layers, lane)
    return EarlyExitDrafter(target, first, lane.sampler)


SPEC = DrafterSpec(
    _open, _check, reference=lambda pair, settings: first_layers(pair.target, exit_layer_of(pair, settings))
)
