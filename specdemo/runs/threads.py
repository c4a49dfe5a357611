"""How many threads of the CPU a pair runs the fastest with: found by trying, since small models lose by sharing.

Every product of a forward ends with all threads waiting for the last one. A model of a few million parameters has
hundreds of products of some ten microseconds each, and waits longer than a second core saves it; a model of
billions is limited by reading its weights, which several cores do faster.
"""

from __future__ import annotations

import os
import time
from statistics import median

import torch

from specdemo.decoding.engines.eager import EagerRunner
from specdemo.models.pair import ModelPair

PROMPT = 32
DRAFTED = 4
REPEATS = 7
LEAST_REPEATS = 3
TRIAL_SECONDS = 1.0
"""After which no further repeat begins: a pair is waited for."""
LARGE_BYTES = 300_000_000
"""Weights that take more gain from every core, and are too slow to try out."""
GAIN = 0.95
"""More threads must take this share of the time or less: they make times less steady, and others want cores."""
SAID = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def quickest_threads(pair: ModelPair) -> int:
    """The number of threads with which rounds of ``pair`` take the least time in this thread of the program.

    Tried are 1, 2, 4, … up to the number that torch uses now, which stays as it is. That number itself is the
    answer, without a trial, for large models and those that are not on the CPU, and where the environment says it
    (``OMP_NUM_THREADS``).
    """
    most = torch.get_num_threads()
    on_cpu = all(m.get_input_embeddings().weight.device.type == "cpu" for m in pair.models)
    large = sum(f.held for f in pair.footprints().values()) > LARGE_BYTES
    if most == 1 or large or not on_cpu or any(os.environ.get(name) for name in SAID):
        return most
    try:
        return _least(pair, _counts(most))
    finally:
        torch.set_num_threads(most)


def _counts(most: int) -> list[int]:
    """Powers of two below ``most``, and itself."""
    return [2**i for i in range(most.bit_length()) if 2**i < most] + [most]


def _least(pair: ModelPair, counts: list[int]) -> int:
    """All take turns, so that a machine that slows down slows each of them."""
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    began = time.perf_counter()
    for repeat in range(REPEATS):
        if repeat >= LEAST_REPEATS and time.perf_counter() - began > TRIAL_SECONDS:
            break
        # To and fro, so that none always follows the same other.
        for count in counts if repeat % 2 else reversed(counts):
            torch.set_num_threads(count)
            seconds[count].append(_round_seconds(pair))
    best = counts[0]
    for count in counts[1:]:
        if median(seconds[count]) < GAIN * median(seconds[best]):
            best = count
    return best


def _round_seconds(pair: ModelPair) -> float:
    """Of one plain step and one round of a few drafted tokens, behind a short prompt; the better of two."""
    target = EagerRunner(pair.target)
    draft = None if pair.draft is None else EagerRunner(pair.draft)
    ids = [0] * PROMPT
    for runner in (target, draft):
        if runner is not None:
            runner.forward(ids, keep=0)
    return min(_round(target, draft) for _ in range(2))


def _round(target: EagerRunner, draft: EagerRunner | None) -> float:
    began = time.perf_counter()
    target.forward([0])
    if draft is not None:
        for _ in range(DRAFTED):
            draft.forward([0])
    target.forward([0] * (DRAFTED + 1), keep=DRAFTED + 1)
    return time.perf_counter() - began
