"""Which code runs a model's layers, and the runners of a lane on it.

``direct`` runs them without transformers' modules, for the models that :mod:`llama_check` knows to the last
detail; ``graphs`` replays CUDA graphs of the same arithmetic; ``eager`` calls the model, whatever it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.graph_pool import graphs_of, no_graphs_reason
from specdemo.decoding.engines.graph_runner import GraphRunner
from specdemo.decoding.engines.graph_workspace import Failure
from specdemo.decoding.engines.llama_check import unsupported_reason
from specdemo.decoding.lane import Lane
from specdemo.drafters import DRAFTERS
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import device_of
from specdemo.models.types import PreTrainedModel
from specdemo.settings import MAX_GAMMA, Settings

ADAPTIVE_COUNTS = (1, 2, 3, 5, 9, MAX_GAMMA + 1)
"""Of how many tokens verifies are captured where drafts differ in length: what lies between is filled up."""
STEP_COUNTS = (1, 2)
"""What a draft model is fed step by step: the last token, or two where all of a draft was kept."""


class EngineChoice(NamedTuple):
    """An engine, and why it is not what was asked for or is the fastest on such a device; None where it is."""

    name: Literal["direct", "eager", "graphs"]
    reason: str | None = None


def choose(model: PreTrainedModel, wish: str) -> EngineChoice:
    """What runs ``model`` in a lane of its own if ``wish``, one of ``settings.ENGINES``, is asked for."""
    if wish == "graphs" or (wish == "auto" and device_of(model).type == "cuda"):
        reason = no_graphs_reason(model)
        return EngineChoice("graphs") if reason is None else EngineChoice("eager", reason)
    direct = wish == "auto" and unsupported_reason(model) is None
    return EngineChoice("direct" if direct else "eager")


def open_target(model: PreTrainedModel, lane: Lane, aux_layers: Sequence[int] = ()) -> Runner:
    """What runs the target in this lane; its outputs have what enters its auxiliary layers."""
    return _prepared(_open(model, lane, _verify_counts(lane.settings), aux_layers), lane)


def open_draft(model: PreTrainedModel, lane: Lane) -> Runner:
    """What runs the draft model."""
    return _prepared(_open(model, lane, STEP_COUNTS), lane)


def open_first_layers(target: Runner, model: PreTrainedModel, layers: int, lane: Lane) -> Runner:
    """The same for ``model``, the target's first layers, in the target's own cache."""
    runner = target.sharing(model, layers)
    if isinstance(runner, GraphRunner):
        runner.prepare(lane.prompt_ids, _longest(lane))
    return runner


def open_stepwise(model: PreTrainedModel, lane: Lane, reason: str) -> Runner:
    """A runner for a model that counts tokens of its own, and so has no longest text to capture graphs for."""
    chosen = choose(model, lane.settings.engine)
    return _eager(model, EngineChoice("eager", reason) if chosen.name == "graphs" else chosen)


def _open(model: PreTrainedModel, lane: Lane, counts: Sequence[int], aux_layers: Sequence[int] = ()) -> Runner:
    chosen = choose(model, lane.settings.engine)
    if chosen.name == "graphs" and lane.settings.drafts_trees:
        chosen = EngineChoice("eager", "draft trees are not captured")
    if chosen.name != "graphs":
        return _eager(model, chosen, aux_layers)
    graphs = graphs_of(model)
    try:
        lease = graphs.take(model, _longest(lane) + max(_verify_counts(lane.settings)))
        return GraphRunner(model, lease, counts, aux_layers=aux_layers)
    except RuntimeError as error:  # memory for the longest text this lane may become; eager takes it bit by bit
        reason = f"no room for {_longest(lane):,} tokens: {type(error).__name__}"
        failure = Failure(reason, not out_of_memory(error))
        graphs.fail(failure)
        return _eager(model, EngineChoice("eager", str(failure)), aux_layers)


def _eager(model: PreTrainedModel, chosen: EngineChoice, aux_layers: Sequence[int] = ()) -> EagerRunner:
    assert chosen.name != "graphs"
    return EagerRunner(model, chosen.name, reason=chosen.reason, aux_layers=aux_layers)


def _prepared(runner: Runner, lane: Lane) -> Runner:
    """The runner with all its forwards captured and proven; called eagerly where one could not be."""
    if not isinstance(runner, GraphRunner):
        return runner
    failure = runner.prepare(lane.prompt_ids, _longest(lane))
    if failure is None:
        return runner
    return _eager(runner.model, EngineChoice("eager", str(failure)), runner.aux_layers)


def _longest(lane: Lane) -> int:
    """Tokens that the lane may come to hold."""
    return len(lane.prompt_ids) + lane.budget


def _verify_counts(settings: Settings) -> Sequence[int]:
    """Of how many tokens the target's forwards are captured."""
    if settings.strategy == "autoregressive":
        return (1,)
    if settings.adaptive_gamma:
        return ADAPTIVE_COUNTS
    verify = settings.gamma + 1
    if DRAFTERS[settings.drafter].always_drafts and not settings.p_min:
        return (verify,)
    return (*(count for count in ADAPTIVE_COUNTS if count < verify), verify)
