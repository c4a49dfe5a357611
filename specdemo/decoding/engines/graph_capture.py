"""Recording a piece of work on a GPU once, so that it can be done again by a single call.

A body reads and writes tensors that stay where they are; a capture turns it into a replay of the same kernels on
the same memory (a CUDA graph). What Python does in the body, it does at the capture only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock

import torch

WARM_UPS = 2
"""Runs before a capture: libraries set themselves up in the first, which a capture does not allow."""

Body = Callable[[], None]
Replay = Callable[[], None]
Capture = Callable[[Body], Replay]
# All captures on a GPU share a stream: cuBLAS keeps memory for each it has run on, 34 MB on an H200, for ever.
_stream_of, _one_at_a_time = cache(torch.cuda.Stream), Lock()


class CudaCapture:
    """Captures bodies on one GPU; their replays share the memory for what they compute on the way.

    They may, since all that outlives a replay is in tensors that the bodies did not make, and since one stream
    runs the replays one after the other.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _stream_of(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, body: Body) -> Replay:
        """
        Raises:
            RuntimeError: the body does what cannot be captured, or memory ran out.
        """
        with _one_at_a_time, torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            self._stream.wait_stream(before)
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.stream(self._stream):
                    for _ in range(WARM_UPS):
                        body()
                # Other threads may use the GPU meanwhile: only this one's calls can spoil the capture.
                capturing = torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                )
                with _without_garbage_collection(), capturing:
                    body()
            finally:
                torch.cuda.set_stream(before)  # which a capture that fails leaves undone
            before.wait_stream(self._stream)
        return graph.replay


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection may free memory of the GPU, which would end a capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def capture_on(device: torch.device) -> Capture:
    return CudaCapture(device)


def can_capture(device: torch.device) -> bool:
    return device.type == "cuda"


class InputBuffer:
    """Integers that a replay reads on the device, copied there from pinned memory without waiting."""

    def __init__(self, size: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.numbers = torch.zeros(size, dtype=torch.long, device=device)  # (size,) int64, on the device
        self._device = device
        self._host = torch.zeros(size, dtype=torch.long, pin_memory=on_gpu)
        self._written = self._host.numpy()
        self._fetched = torch.cuda.Event() if on_gpu else None

    def send(self, numbers: Sequence[int]) -> None:
        if self._fetched is not None:
            self._fetched.synchronize()  # the device may not have come to the last ones yet
        count = len(numbers)
        self._written[:count] = numbers
        self.numbers[:count].copy_(self._host[:count], non_blocking=True)
        if self._fetched is not None:
            self._fetched.record(torch.cuda.current_stream(self._device))
