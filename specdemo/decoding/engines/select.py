"""Which code runs a model's layers: the one place that chooses.

``direct`` runs them without transformers' modules, for the models that :mod:`llama_check` knows
to the last detail; ``graphs`` replays CUDA graphs of the same arithmetic; ``eager`` calls the model, whatever it
is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from specdemo.decoding.engines.eager_forward import Forward
from specdemo.decoding.engines.graph_pool import graphs_obstacle
from specdemo.decoding.engines.llama import DirectForward
from specdemo.decoding.engines.llama_check import obstacle

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Engine = Literal["auto", "direct", "eager"]


def open_forward(model: PreTrainedModel, engine: Engine = "auto") -> Forward | DirectForward:
    """What feeds tokens to ``model`` call by call; ``direct`` is for who looked for obstacles and found none."""
    if engine == "direct" or (engine == "auto" and obstacle(model) is None):
        return DirectForward(model)
    return Forward(model)


@dataclass(frozen=True, slots=True)
class Choice:
    """
    Attributes:
        name: ``direct``, ``eager`` or ``graphs``.
        reason: why it is not what was asked for, or what is the fastest on such a device; None where it is.
    """

    name: str
    reason: str | None = None

    def __str__(self) -> str:
        return self.name if self.reason is None else f"{self.name}: {self.reason}"


def choose(model: PreTrainedModel, wish: str) -> Choice:
    """What runs ``model`` in a lane of its own if ``wish``, one of ``settings.ENGINES``, is asked for."""
    kind = model.get_input_embeddings().weight.device.type
    if wish == "graphs" or (wish == "auto" and kind == "cuda"):
        reason = graphs_obstacle(model)
        return Choice("graphs") if reason is None else Choice("eager", reason)
    return Choice("direct" if wish == "auto" and obstacle(model) is None else "eager")
