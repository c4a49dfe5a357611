"""Which code runs a model's layers: the one place that chooses.

``direct`` runs them without transformers' modules, for the models that :mod:`llama_check` knows
to the last detail; ``graphs`` replays CUDA graphs of the same arithmetic; ``eager`` calls the model, whatever it
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from specdemo.decoding.engines.eager_forward import Forward
from specdemo.decoding.engines.graph_pool import no_graphs_reason
from specdemo.decoding.engines.llama import DirectForward
from specdemo.decoding.engines.llama_check import unsupported_reason
from specdemo.models.pair import device_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Engine = Literal["auto", "direct", "eager"]


def open_forward(
    model: PreTrainedModel, engine: Engine = "auto", aux_layers: Sequence[int] = ()
) -> Forward | DirectForward:
    """What feeds tokens to ``model`` call by call; ask for ``direct`` only where :func:`choose` chose it."""
    if engine == "direct" or (engine == "auto" and unsupported_reason(model) is None):
        return DirectForward(model, aux_layers)
    return Forward(model, aux_layers)


class EngineChoice(NamedTuple):
    """An engine.

    Attributes:
        reason: why it is not what was asked for, or what is the fastest on such a device; None where it is.
    """

    name: Literal["direct", "eager", "graphs"]
    reason: str | None = None


def choose(model: PreTrainedModel, wish: str) -> EngineChoice:
    """What runs ``model`` in a lane of its own if ``wish``, one of ``settings.ENGINES``, is asked for."""
    kind = device_of(model).type
    if wish == "graphs" or (wish == "auto" and kind == "cuda"):
        reason = no_graphs_reason(model)
        return EngineChoice("graphs") if reason is None else EngineChoice("eager", reason)
    direct = wish == "auto" and unsupported_reason(model) is None
    return EngineChoice("direct" if direct else "eager")
