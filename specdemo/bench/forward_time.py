"""Seconds spent in a pair's model forwards, counted by hooks on the models."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import torch

from specdemo.models.pair import ModelPair


class ForwardTime:
    """While entered, adds up the time of every forward of target and draft, device work included."""

    def __init__(self, pair: ModelPair) -> None:
        self.seconds = 0.0
        self._models = [m for m in (pair.target, pair.draft) if m is not None]
        self._began = 0.0
        self._hooks: list[Any] = []

    def __enter__(self) -> ForwardTime:
        for model in self._models:
            self._hooks.append(model.register_forward_pre_hook(self._begin))
            self._hooks.append(model.register_forward_hook(self._end))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begin(self, *_: Any) -> None:
        self._began = _now()

    def _end(self, *_: Any) -> None:
        self.seconds += _now() - self._began


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
