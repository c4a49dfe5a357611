"""How this machine multiplies a few tokens with a model's weights fastest: found out by trying, once a process.

A product of n tokens with a weight (out, in) can be asked for as rows, x·Wᵀ, or as columns, W·xᵀ, and a library
takes different ways for the two. On some processors the columns' way, which reads the weights in order, takes half
the time as long as weights come from memory and tokens are few. There a single token may be faster if it comes
twice: one row is a product of matrix and vector, of which there is only the slow way. On other processors, or with
large weights, it is the other way about. The numbers that come out are the same up to rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

FEW = 8
"""Tokens up to which columns may be faster."""
LEAST_BYTES, MOST_BYTES = 4_000_000, 64_000_000
"""Of weights: with fewer a trial says nothing, and with more it says nothing more."""
REPEATS = 5
Way = Callable[[Sequence[torch.Tensor], int], None]
GAIN = 0.9
"""What a way may take of the usual one's time to be chosen instead: less is noise."""


@dataclass(frozen=True, slots=True)
class Layout:
    """
    Attributes:
        columns: up to ``FEW`` tokens are multiplied as columns.
        twice: a single token is computed twice, as two columns.
    """

    columns: bool = False
    twice: bool = False


_found: dict[tuple[object, ...], Layout] = {}


def layout_for(weights: Sequence[torch.Tensor]) -> Layout:
    """The faster layout for products with ``weights`` (out, in) one after the other, as a forward has them.

    One answer a process for weights of these shapes and this number of threads, so that a run can be repeated.
    """
    if _bytes(weights) < LEAST_BYTES:
        return Layout()
    key = (tuple(w.shape for w in weights), weights[0].dtype, torch.get_num_threads())
    if key not in _found:
        _found[key] = _try(_first(weights))
    return _found[key]


def _bytes(weights: Sequence[torch.Tensor]) -> int:
    return sum(w.numel() * w.element_size() for w in weights)


def _first(weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """As many of them as a trial needs."""
    taken: list[torch.Tensor] = []
    for weight in weights:
        taken.append(weight)
        if _bytes(taken) >= MOST_BYTES:
            break
    return taken


@torch.inference_mode()
def _try(weights: Sequence[torch.Tensor]) -> Layout:
    """All four products take turns, so that a machine that slows down slows all of them."""
    ways = ((_rows, 1), (_columns, 2), (_rows, 5), (_columns, 5))
    seconds: dict[tuple[Way, int], list[float]] = {way: [] for way in ways}
    for repeat in range(REPEATS + 1):
        for way, count in ways:
            began = time.perf_counter()
            way(weights, count)
            if repeat:  # the first warms up
                seconds[way, count].append(time.perf_counter() - began)
    took = {way: median(s) for way, s in seconds.items()}
    columns = took[_columns, 5] < GAIN * took[_rows, 5]
    return Layout(columns, columns and took[_columns, 2] < GAIN * took[_rows, 1])


def _rows(weights: Sequence[torch.Tensor], count: int) -> None:
    tokens = _tokens(weights, count)
    for weight in weights:
        torch.mm(tokens[weight.shape[1]], weight.t())


def _columns(weights: Sequence[torch.Tensor], count: int) -> None:
    tokens = _tokens(weights, count)
    for weight in weights:
        torch.mm(weight, tokens[weight.shape[1]].t())


def _tokens(weights: Sequence[torch.Tensor], count: int) -> dict[int, torch.Tensor]:
    return {width: torch.ones(count, width, dtype=weights[0].dtype) for width in {w.shape[1] for w in weights}}
