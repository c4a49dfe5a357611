"""Single forwards of a model: runners for benches, the time that forwards take, the bytes that they read.

The only module here that knows the engines from inside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import torch
from transformers import PreTrainedModel

from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.models.pair import ModelPair

TOKEN = 17
READ_BYTES = 256_000_000
"""Read for a measurement; well beyond any cache that a core has to itself."""
READ_BYTES_GPU = 4_000_000_000
"""The same on a GPU: many times what any of them caches, and long against a launch."""


def open_runner(model: PreTrainedModel, engine: str, cache: LaneCache | None = None) -> EagerRunner:
    """A runner of one model, ``auto`` or ``eager``; ``cache``: one that is filled already."""
    runner = EagerRunner(model, engine=engine, cache=cache)
    if cache is not None:
        runner.length = cache.get_seq_length()
    return runner


def filled_runner(model: PreTrainedModel, engine: str, context: int) -> EagerRunner:
    """A runner of one model that has read ``context`` tokens."""
    runner = open_runner(model, engine)
    logits_of(runner, [TOKEN] * context)
    return runner


def seconds_of(runner: EagerRunner, count: int) -> float:
    """The time of a forward of ``count`` tokens, with the logits of all; the runner is as before."""
    length = runner.length
    began = time.perf_counter()
    logits_of(runner, [TOKEN] * count, keep=count)
    took = time.perf_counter() - began
    runner.rollback_to(length)
    return took


def logits_of(runner: EagerRunner, ids: Sequence[int], keep: int = 1) -> torch.Tensor:
    """Append ``ids``; float32 logits (keep, V) of the last ``keep``."""
    return runner.forward(ids, keep=keep).logits


@contextmanager
def alive_runners(kind: type = EagerRunner) -> Iterator[WeakSet[Any]]:
    """The runners that are opened while this is entered, for as long as they live."""
    alive: WeakSet[Any] = WeakSet()
    init = kind.__init__

    def opened(runner: Any, *arguments: Any, **options: Any) -> None:
        init(runner, *arguments, **options)
        alive.add(runner)

    with patch.object(kind, "__init__", opened):
        yield alive


@contextmanager
def batch_cache_bytes() -> Iterator[Callable[[], int]]:
    """A function that gives the bytes allocated for the KV caches of the batches begun while this is entered."""
    with alive_runners(RaggedRunner) as alive:
        yield lambda: sum(runner.nbytes for runner in alive)


@contextmanager
def forward_seconds(pair: ModelPair) -> Iterator[list[float]]:
    """The time of every forward of target and draft while this is entered, device work included."""
    seconds: list[float] = []

    def begin(*_: Any) -> None:
        seconds.append(-now(pair.device))

    def end(*_: Any) -> None:
        seconds[-1] += now(pair.device)

    with ExitStack() as hooks:
        for model in filter(None, (pair.target, pair.draft)):
            hooks.enter_context(model.register_forward_pre_hook(begin))
            hooks.enter_context(model.register_forward_hook(end))
        yield seconds


def now(device: torch.device) -> float:
    """Seconds of a clock, read when the device has done all that was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
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
    """Bytes a second that summing a large float32 tensor reads, with the threads in use; median."""
    numbers = torch.ones(READ_BYTES // 4, device=device)
    seconds = []
    for _ in range(repeats):
        began = now(device)
        numbers.sum()
        seconds.append(now(device) - began)
    return READ_BYTES / median(seconds)


def gpu_bandwidth(device: torch.device, repeats: int = 9) -> dict[str, float]:
    """Bytes a second by the GPU's own clock: of summing a large tensor, and of copying (read and written)."""
    source = torch.ones(READ_BYTES_GPU // 4, device=device)
    copy = torch.empty_like(source)
    rates = {
        "read": READ_BYTES_GPU / _gpu_seconds(source.sum, repeats),
        "copy": 2 * READ_BYTES_GPU / _gpu_seconds(lambda: copy.copy_(source), repeats),
    }
    return {**rates, "best": max(rates.values())}


def _gpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """The median; the first call warms up and does not count."""
    seconds = []
    for _ in range(repeats + 1):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        work()
        ended.record()
        ended.synchronize()
        seconds.append(begun.elapsed_time(ended) / 1000)
    return median(seconds[1:])
