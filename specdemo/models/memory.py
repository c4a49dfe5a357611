"""Memory in bytes: of loaded models, of models before they are loaded, and of devices."""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn

from specdemo.models.types import PreTrainedModel

BITS = {"float8": 8, "int8": 8, "int4": 4}
"""The quantisations, and the bits that each leaves a weight."""
WORKING_TOKENS = 2048
"""Positions of KV cache counted as working memory, beside the weights."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a model's weights."""

    nbytes: int  # in memory, scales of quantised weights included
    unquantized: int  # what the same weights would take in the model's dtype

    @property
    def saved(self) -> float:
        """Share of the unquantised size that quantisation saves."""
        return 1 - self.nbytes / self.unquantized if self.unquantized else 0.0


def measure(model: nn.Module) -> Footprint:
    """Count the bytes that a loaded model's parameters and buffers take, each tensor once."""
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    return Footprint(sum(map(_stored_bytes, tensors)), sum(tensor.nbytes for tensor in tensors))


def estimate(model: PreTrainedModel, dtype: torch.dtype, quantization: str | None, packing: int) -> Footprint:
    """What :func:`measure` will give, from a model on the meta device; ``packing`` is what packing adds."""
    width = dtype.itemsize
    unquantized = sum(p.numel() * width for p in model.parameters()) + sum(b.nbytes for b in model.buffers())
    nbytes = unquantized = unquantized + packing
    if quantization is None:
        return Footprint(nbytes, unquantized)
    for layer in quantised_layers(model):
        count = layer.weight.numel()
        scales = count // _int4_group(layer.in_features) * 2 if quantization == "int4" else layer.out_features
        # quanto keeps two scales of one number a layer for activations, which nobody uses.
        nbytes += count * BITS[quantization] // 8 + scales * width - count * width + 8
    return Footprint(nbytes, unquantized)


def working_bytes(model: PreTrainedModel, dtype: torch.dtype) -> int:
    """Bytes of two lanes' KV caches with ``WORKING_TOKENS`` positions; a model of states alone has none."""
    config = model.config.get_text_config()
    queries = getattr(config, "num_attention_heads", None)
    if queries is None:
        return 0
    heads = getattr(config, "num_key_value_heads", None) or queries
    width = getattr(config, "head_dim", None) or config.hidden_size // queries
    return 2 * 2 * config.num_hidden_layers * heads * width * WORKING_TOKENS * dtype.itemsize


def free_memory(device: str) -> int:
    """Free bytes of a device; of all GPUs and main memory together for ``auto``."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    if device == "mps":  # a part of main memory
        return min(_free_main_memory(), torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    gpus = range(torch.cuda.device_count() if device == "auto" else 0)
    return _free_main_memory() + sum(torch.cuda.mem_get_info(gpu)[0] for gpu in gpus)


def on_cpu(device: str) -> bool:
    """Whether a pair that asks for this device runs on the CPU; ``auto`` does where there is no GPU."""
    return device == "cpu" or (device == "auto" and best_device() == "cpu")


def best_device() -> str:
    """Where models run if nobody says: a GPU, Apple's too, else the CPU."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def release_memory() -> None:
    """Give freed memory back: models are cyclic, and torch keeps a GPU's blocks, as glibc keeps its heap."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def peak_memory(device: torch.device) -> int | None:
    """The most bytes used so far, by torch on a GPU, else by this process; None where that is not counted."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # kilobytes on Linux


def _free_main_memory() -> int:
    """Free bytes of the machine, or of the container if that has less."""
    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            allowed, taken = (int((group / name).read_text()) for name in (limit, used))
        except (OSError, ValueError):  # no such control group, or "max": no limit
            continue
        free = min(free, max(allowed - taken, 0))
    return free


def quantised_layers(model: PreTrainedModel) -> list[nn.Linear]:
    """The layers that transformers lets quanto quantise: all ``nn.Linear`` but the head. GPT-2 has none."""
    head = model.get_output_embeddings()
    return [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]


def _int4_group(width: int) -> int:
    """Weights of a row that share a scale and a shift in quanto's int4: 128, or less if 128 does not fit."""
    fitting = [size for size in (128, 96, 64, 32) if width > 128 and width % size == 0]
    return fitting[0] if fitting else width


def _stored_bytes(tensor: torch.Tensor) -> int:
    """Of a tensor, or of those that a quantised one consists of."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None or type(tensor) in (torch.Tensor, nn.Parameter):
        return tensor.nbytes
    return sum(_stored_bytes(getattr(tensor, name)) for name in flatten()[0])
