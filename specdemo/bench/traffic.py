"""Bytes that a step must read, against what this machine's memory can deliver."""

from __future__ import annotations

import time
from statistics import median

import torch
from transformers import PreTrainedModel

READ_BYTES = 256_000_000
"""Read for a measurement; well beyond any cache that a core has to itself."""


def read_bandwidth(device: torch.device, repeats: int = 7) -> float:
    """Bytes a second that summing a large float32 tensor reads, with the threads in use; median."""
    numbers = torch.ones(READ_BYTES // 4, device=device)
    rates = []
    for _ in range(repeats):
        _wait(device)
        began = time.perf_counter()
        numbers.sum()
        _wait(device)
        rates.append(READ_BYTES / (time.perf_counter() - began))
    return median(rates)


def step_bytes(model: PreTrainedModel, context: int) -> int:
    """Bytes of weights and cache that one forward behind ``context`` tokens cannot do without reading."""
    embeddings = model.get_input_embeddings().weight
    weights = {weight.data_ptr(): weight for weight in model.parameters()}
    if model.get_output_embeddings().weight is not embeddings:
        weights.pop(embeddings.data_ptr(), None)  # of which only the fed tokens' rows are read
    return sum(w.numel() * w.element_size() for w in weights.values()) + context * token_bytes(model)


def token_bytes(model: PreTrainedModel) -> int:
    """Bytes of one token's keys and values in all layers."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
