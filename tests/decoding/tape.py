"""What a CUDA graph does, on a CPU: operations are written down once and done again on the same memory.

Whatever Python decided in the body is decided for good, and what would wait for the device is refused, as in a
capture. Replays write their results where the first run put them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from specdemo.decoding.engines.graph_capture import Body, Replay

WAITS = ("_local_scalar_dense", "nonzero", "multinomial", "unique", "masked_select", "equal")


OTHERS = [
    {"strategy": "autoregressive"},
    {"drafter": "prompt_lookup", "lookup_ngram": 1},
    {"drafter": "early_exit", "exit_layer": 1},
    {"adaptive_gamma": True},
    {"repetition_penalty": 1.3},
    {"acceptance": "top_k", "accept_top_k": 3},
    {"repetition_penalty": 1.3, "drafter": "early_exit", "exit_layer": 1},
]
"""Greedy ways to decode beside a draft model's chain."""
SAMPLED = [
    {"acceptance": "sampling"},
    {"acceptance": "block", "top_k": 20},
    {"acceptance": "token_match", "top_p": 0.9},
    {"acceptance": "sampling", "temperature": 0.7, "top_k": 30, "top_p": 0.95},
    {"acceptance": "sampling", "drafter": "early_exit", "exit_layer": 1},
]


class Tape(TorchDispatchMode):
    """Stands in for a capture."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[tuple[Any, tuple, dict, Any]] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if operation.overloadpacket.__name__.split(".")[-1] in WAITS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {operation}")
        made = operation(*args, **(kwargs or {}))
        self._steps.append((operation, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        """Do it all again; only what the operations read from memory may differ."""
        for operation, args, kwargs, before in self._steps:
            again = operation(*args, **kwargs)
            for old, new in zip(tree_flatten(before)[0], tree_flatten(again)[0], strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Taped:
    """A ``Capture``; counts what it captured and what was replayed.

    Args:
        fails: of the captures, from 0, the ones that fail.
    """

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        self.captured = self.replayed = 0
        self._fails = fails

    def __call__(self, body: Body) -> Replay:
        body()  # a warm-up
        self.captured += 1
        if self.captured - 1 in self._fails:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture\nmore lines")
        tape = Tape()
        with tape:
            body()

        def replay() -> None:
            self.replayed += 1
            tape.replay()

        return replay
