"""Opens the runners of a lane, on the engine that its settings ask for, and says which engine that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdemo.decoding.drafters.base import ModelDrafter
from specdemo.decoding.drafters.early_exit import EarlyExitDrafter, first_layers
from specdemo.decoding.engines.eager import Runner
from specdemo.decoding.engines.graph_pool import graphs_of
from specdemo.decoding.engines.graph_runner import StaticRunner, WholeDraft
from specdemo.decoding.engines.select import Choice, choose
from specdemo.decoding.lane import Lane
from specdemo.decoding.sampling import recipe_of
from specdemo.models.pair import ModelPair
from specdemo.settings import MAX_GAMMA, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTIVE_COUNTS = (1, 2, 3, 5, 9, MAX_GAMMA + 1)
"""Of how many tokens verifies are captured where γ changes: what lies between is filled up."""
STEP_COUNTS = (1, 2)
"""What a draft model is fed step by step: the last token, or two where all of a draft was kept."""
DRAFT_LEAD = 2
EXIT_LEAD = 1
"""The target's own first layers have always seen all but the last token."""
BATCH = "batches have no graphs"


def open_target(model: PreTrainedModel, lane: Lane) -> Runner | StaticRunner:
    """What runs the target in this lane."""
    runner = _open(model, lane, _verify_counts(lane.settings))
    return _captured(runner, lane) or _eager(model, lane)


def open_model_drafter(model: PreTrainedModel, lane: Lane) -> ModelDrafter:
    """A drafter of the pair's draft model."""
    runner = _open(model, lane, STEP_COUNTS)
    whole = _whole(runner, lane, DRAFT_LEAD)
    if whole is None:
        runner = _captured(runner, lane) or _eager(model, lane)
    return ModelDrafter(runner, lane.sampler, whole)


def open_early_exit(target: Runner | StaticRunner, layers: int, lane: Lane) -> EarlyExitDrafter:
    """A drafter of the target's first layers, in the target's own cache."""
    first = target.sharing(first_layers(target.model, layers), layers)
    whole = _whole(first, lane, EXIT_LEAD)
    if whole is None and isinstance(first, StaticRunner):
        first.prepare(len(lane.prompt_ids), _most(lane))
    return EarlyExitDrafter(target, first, lane.sampler, whole)


def open_alone(model: PreTrainedModel, lane: Lane) -> Runner:
    """What runs a draft that counts tokens of its own, and so knows no longest text."""
    return _eager(model, lane)


def _open(model: PreTrainedModel, lane: Lane, counts: Sequence[int]) -> Runner | StaticRunner:
    chosen = choose(model, lane.settings.engine).name
    if chosen != "graphs":
        return Runner(model, None, None, chosen)
    graphs = graphs_of(model)
    try:
        return StaticRunner(model, graphs.take(model, _most(lane) + _widest(lane.settings)), counts)
    except RuntimeError as error:  # memory for the longest text this lane may become; eager takes it bit by bit
        graphs.fail(f"no room for {_most(lane):,} tokens: {type(error).__name__}")
        return _eager(model, lane)


def _eager(model: PreTrainedModel, lane: Lane) -> Runner:
    return Runner(model, None, None, "auto" if lane.settings.engine == "auto" else "eager")


def _captured(runner: Runner | StaticRunner, lane: Lane) -> Runner | StaticRunner | None:
    """The runner with all its forwards captured; None where one could not be."""
    if isinstance(runner, StaticRunner):
        runner.prepare(len(lane.prompt_ids), _most(lane))
        if runner.lease.seat.failure is not None:
            runner.lease.graphs.fail(runner.lease.seat.failure)
            return None
    return runner


def _whole(runner: Runner | StaticRunner, lane: Lane, lead: int) -> WholeDraft | None:
    """All steps of a draft at once, where that can be captured.

    Not where γ changes, where scores depend on the tokens before, or where tokens are drawn on another device.
    """
    settings, sampler = lane.settings, lane.sampler
    if settings.adaptive_gamma or sampler.remembers:
        return None
    if not isinstance(runner, StaticRunner) or runner.device != sampler.device:
        return None
    whole = WholeDraft(runner, sampler, settings.gamma, lead)
    return whole if whole.prepare(len(lane.prompt_ids), _most(lane)) is None else None


def _most(lane: Lane) -> int:
    """Tokens that the lane may come to hold."""
    return len(lane.prompt_ids) + lane.budget


def _widest(settings: Settings) -> int:
    """Tokens of the widest forward."""
    if settings.strategy == "autoregressive":
        return 1
    return (MAX_GAMMA if settings.adaptive_gamma else settings.gamma) + 1


def _verify_counts(settings: Settings) -> Sequence[int]:
    """Of how many tokens the target's forwards are captured."""
    if settings.strategy == "autoregressive":
        return (1,)
    if settings.adaptive_gamma:
        return ADAPTIVE_COUNTS
    # A draft model always drafts γ but at the end; others may have nothing to offer.
    always = settings.drafter in ("model", "early_exit")
    return (_widest(settings),) if always else (1, _widest(settings))


def engine_of(pair: ModelPair, settings: Settings) -> str:
    """Which engine runs a lane of these settings, such as ``direct``, or ``eager: graphs need a CUDA device``.

    Once a capture has failed this is the model's engine for all lanes, those under way included.
    """
    wish = settings.engine
    if wish == "server":
        return wish
    if settings.strategy == "assisted":
        return str(Choice("eager", "transformers decodes this lane itself" if wish == "graphs" else None))
    target = str(choose(pair.target, wish))
    if settings.strategy == "autoregressive" or settings.drafter == "prompt_lookup":
        return target
    if settings.drafter == "early_exit":
        return target + _stepwise(pair.target, target, settings, pair)
    draft = str(_choose_draft(pair, wish))
    draft += _stepwise(pair.draft, draft, settings, pair)
    return target if draft == target else f"target {target}, draft {draft}"


def batch_engine(settings: Settings) -> str:
    """The same of a batch, whose rows all run by transformers' modules."""
    return str(Choice("eager", BATCH if settings.engine == "graphs" else None))


def _choose_draft(pair: ModelPair, wish: str) -> Choice:
    chosen = choose(pair.draft, wish)
    if pair.draft_tokenizer is not None and chosen.name == "graphs":
        return Choice("eager", "its tokenizer is another")
    return chosen


def _stepwise(model: PreTrainedModel, engine: str, settings: Settings, pair: ModelPair) -> str:
    """What to add where drafts could not be captured whole."""
    if engine != "graphs":
        return ""
    reason = graphs_of(model).stepwise.get(recipe_of(settings, pair.vocabulary))
    return "" if reason is None else f": drafting step by step ({reason})"
