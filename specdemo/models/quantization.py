"""Quantised weights with optimum-quanto: which kinds work on which device."""

from __future__ import annotations

import importlib.util
import shutil
from typing import Any

import torch

from specdemo.errors import PairError
from specdemo.models.memory import best_device, on_cpu


def check_quantization(quantization: str, device: str, dtype: torch.dtype) -> None:
    """Refuse a quantisation that would fail later, in the middle of a run.

    Raises:
        PairError: the message says what is missing, and what works instead.
    """
    if importlib.util.find_spec("optimum.quanto") is None:
        raise PairError(
            f"quantisation: {quantization} needs optimum-quanto, which is not installed; "
            "pip install -r requirements.txt, or choose no quantisation."
        )
    if quantization == "float8" and (best_device() if device == "auto" else device) == "mps":
        raise PairError("quantisation: an Apple GPU has no float8; choose int8 or int4, or the CPU.")
    # quanto builds its C++ extension at its first use.
    compiles = all(shutil.which(tool) for tool in ("c++", "ninja"))
    if quantization == "int4" and on_cpu(device) and dtype is not torch.bfloat16 and not compiles:
        raise PairError(
            "quantisation: int4 on a CPU unpacks with compiled code unless the dtype is bfloat16, and there is no "
            "C++ compiler with ninja here; choose bfloat16, or int8."
        )


def quantization_of(model: Any) -> str | None:
    """``float8``, ``int8``, … if a loaded model's weights are quantised by quanto, else None."""
    config = getattr(model.config, "quantization_config", None)
    return getattr(config, "weights", None)
