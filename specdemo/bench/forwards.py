"""Single forwards of a model: runners for benches, the time that forwards take, the bytes that they read.

The only module here that knows the engines from inside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import torch
from transformers import PreTrainedModel

from specdemo.decoding.clock import synchronize
from specdemo.decoding.engines.eager import EagerRunner

TOKEN = 17
READ_BYTES = 256_000_000
"""Read for a measurement; well beyond any cache that a core has to itself."""
READ_BYTES_GPU = 4_000_000_000
"""The same on a GPU: many times what any of them caches, and long against a launch."""


def filled_runner(model: PreTrainedModel, context: int) -> EagerRunner:
    """A runner of one model that has read ``context`` tokens."""
    runner = EagerRunner(model)
    runner.forward([TOKEN] * context)
    return runner


def seconds_of(runner: EagerRunner, count: int) -> float:
    """The time of a forward of ``count`` tokens, with the logits of all; the runner is as before."""
    length = runner.length
    began = time.perf_counter()
    runner.forward([TOKEN] * count, keep=count)
    took = time.perf_counter() - began
    runner.rollback_to(length)
    return took


def now(device: torch.device) -> float:
    """Seconds of a clock, read when the device has done all that was launched."""
    synchronize(device)
    return time.perf_counter()


def step_bytes(model: PreTrainedModel, context: int) -> int:
    """Bytes of weights and cache that one forward behind ``context`` tokens cannot do without reading."""
    embeddings = model.get_input_embeddings().weight
    weights = {id(weight): weight for weight in model.parameters()}
    if model.get_output_embeddings().weight is not embeddings:
        weights.pop(id(embeddings), None)  # of which only the fed tokens' rows are read
    return sum(w.numel() * w.element_size() for w in weights.values()) + context * token_bytes(model)


def token_bytes(model: PreTrainedModel) -> int:
    """Bytes of one token's keys and values in all layers."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize


def read_bandwidth(device: torch.device, repeats: int = 7) -> float:
    """Bytes a second, median: of summing a large tensor, with the threads in use; on a GPU of copying, if more."""
    size = READ_BYTES_GPU if device.type == "cuda" else READ_BYTES
    numbers = torch.ones(size // 4, device=device)
    rates = [size / _seconds(numbers.sum, device, repeats)]
    if device.type == "cuda":
        copy = torch.empty_like(numbers)
        rates.append(2 * size / _seconds(lambda: copy.copy_(numbers), device, repeats))
    return max(rates)


def _seconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median; the first call warms up and does not count."""
    times = [now(device)]
    for _ in range(repeats + 1):
        work()
        times.append(now(device))
    return median(after - before for before, after in list(pairwise(times))[1:])
