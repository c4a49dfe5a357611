"""From a catalogue entry to models in memory."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdemo.errors import PairError
from specdemo.models.catalog import ASSETS, entry
from specdemo.models.pair import ModelPair

QUANTIZATIONS = ("float8", "int8", "int4")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_pair(
    name: str = "builtin",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    target_quantization: str | None = None,
    draft_quantization: str | None = None,
) -> ModelPair:
    """Load a pair of the catalogue.

    Args:
        name: id of the pair in ``assets/pairs.toml``.
        device: where both models run; None takes a GPU if there is one.
        dtype: of the weights; None means float32 on a CPU (exact), bfloat16 elsewhere.
        target_quantization, draft_quantization: ``float8``, ``int8`` or ``int4`` weights, by optimum-quanto.

    Raises:
        PairError: unknown name, device, dtype or quantisation.
    """
    chosen = entry(name)
    where = _device(device)
    number = _dtype(dtype, where)
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / chosen.target)
    target = _load(chosen.target, where, number, target_quantization)
    draft = _load(chosen.draft, where, number, draft_quantization) if chosen.draft else None
    return ModelPair(target, draft, tokenizer, name=name)


def _load(folder: str, device: torch.device, dtype: torch.dtype, quantization: str | None) -> Any:
    extra: dict[str, Any] = {}
    if quantization is not None:
        if quantization not in QUANTIZATIONS:
            raise PairError(
                f"quantisation: {quantization!r} is not known; choose one of {', '.join(QUANTIZATIONS)} or None."
            )
        from transformers import QuantoConfig

        extra["quantization_config"] = QuantoConfig(weights=quantization)
    model = AutoModelForCausalLM.from_pretrained(
        ASSETS / folder, dtype=dtype, use_safetensors=True, local_files_only=True, **extra
    )
    return model.to(device).eval()


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise PairError(f"device: {device!r} is not available here; choose cpu or leave it out.") from error
    return where


def _dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    found = dtype if isinstance(dtype, torch.dtype) else DTYPES.get(dtype)
    if found not in DTYPES.values():
        raise PairError(f"dtype: {dtype!r} is not known; choose one of {', '.join(DTYPES)} or None.")
    return found
