"""How many CPU threads decode a pair fastest: found by trying, since more threads make small models slower.

After every matrix product of a forward all threads wait for the last one. A model of a few million parameters has
hundreds of products of about ten microseconds, and waits longer than a second core saves; a model of billions is
limited by reading its weights, which several cores do faster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch

from specdemo.decoding.engines.eager import EagerRunner
from specdemo.models.pair import ModelPair, checked_threads, device_of

PROMPT = 32
DRAFTED = 4
REPEATS = 7
LEAST_REPEATS = 3
TRIAL_SECONDS = 1.0
"""After this no further repeat begins: somebody is waiting for the pair."""
LARGE_BYTES = 300_000_000
"""Models with more bytes of weights gain from every core, and would take too long to try."""
GAIN = 0.8
"""More threads must take at most this share of the time: they make times vary more, and take cores from others."""
ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def decoding_threads(pair: ModelPair) -> Iterator[None]:
    """Torch with the pair's number of threads, in this thread only; afterwards it has what it had.

    Entered for every round: lanes of a race may be of different pairs, and torch counts its threads for each
    thread of the program.
    """
    before = torch.get_num_threads()
    if pair.threads is not None:
        torch.set_num_threads(checked_threads(pair.threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def quickest_threads(pair: ModelPair) -> int:
    """The number of CPU threads with which rounds of ``pair`` take the least time.

    It tries 1, 2, 4, … up to the number that torch uses now, and leaves torch as it was. It returns that number
    without a trial for large models, for models that are not on the CPU, and where the environment sets it
    (``OMP_NUM_THREADS``).
    """
    most = torch.get_num_threads()
    on_cpu = all(device_of(m).type == "cpu" for m in pair.models)
    large = sum(f.nbytes for f in pair.footprints().values()) > LARGE_BYTES
    if most == 1 or large or not on_cpu or any(os.environ.get(name) for name in ENVIRONMENT):
        return most
    counts = [*(2**i for i in range(most.bit_length()) if 2**i < most), most]
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    began = time.perf_counter()
    try:
        for repeat in range(REPEATS):
            if repeat >= LEAST_REPEATS and time.perf_counter() - began > TRIAL_SECONDS:
                break
            # In turns, so that a machine that slows down slows each; upwards, then downwards, so that no number
            # always follows the same other.
            for count in counts if repeat % 2 else reversed(counts):
                torch.set_num_threads(count)
                seconds[count].append(_round_seconds(pair))
    finally:
        torch.set_num_threads(most)
    best = 1
    for count in counts:
        if median(seconds[count]) < GAIN * median(seconds[best]):
            best = count
    return best


def _round_seconds(pair: ModelPair) -> float:
    """Of one autoregressive step and one round of a few drafted tokens after a short prompt; the better of two."""
    runners = [EagerRunner(model) for model in pair.models]
    for runner in runners:
        runner.forward([0] * PROMPT, keep=0)
    target, *draft = runners
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        for runner in (target, *draft * DRAFTED):
            runner.forward([0])
        target.forward([0] * (DRAFTED + 1), keep=DRAFTED + 1)
        seconds.append(time.perf_counter() - began)
    return min(seconds)
