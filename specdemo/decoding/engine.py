"""Which code runs a model's layers: the one place that chooses.

``direct`` runs them without transformers' modules, for the models that :mod:`specdemo.decoding.direct_check` knows
to the last detail; ``transformers`` calls the model, whatever it is.
"""

from __future__ import annotations

from typing import Literal

from transformers import PreTrainedModel

from specdemo.decoding.direct import DirectForward
from specdemo.decoding.direct_check import obstacle
from specdemo.decoding.forward import Forward

Engine = Literal["auto", "transformers"]


def open_forward(model: PreTrainedModel, engine: Engine = "auto") -> Forward | DirectForward:
    """What feeds tokens to ``model`` in one lane; ``transformers`` leaves out the direct way."""
    if engine == "auto" and obstacle(model) is None:
        return DirectForward(model)
    return Forward(model)
