"""The machine that figures were measured on, without host names and paths."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch
import transformers


def machine_of(device: torch.device, threads: int | None = None) -> dict[str, Any]:
    return {**hardware(device, threads), **versions()}


def hardware(device: torch.device, threads: int | None = None) -> dict[str, Any]:
    """The device's name, the processor, its cores, and the threads in use; None for those of this thread."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper(),
        # Architecture and widest vector instructions, which say more of a virtual CPU than its name.
        "processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads() if threads is None else threads,
    }


def bfloat16_instructions() -> str | None:
    """The CPU's instructions for bfloat16 products, ``amx`` or ``avx512``; None if it has none or hides them."""
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return None
    flags = next((line.split() for line in known.splitlines() if line.startswith("flags")), [])
    return "amx" if "amx_bf16" in flags else "avx512" if "avx512_bf16" in flags else None


def wide_vectors() -> bool:
    """Whether torch computes with 512-bit vectors: five tokens then wait for memory, as one does."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def versions() -> dict[str, str]:
    """Versions of Python, torch and transformers."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
