"""``python -m specdemo.bench.memory``: memory while pairs take turns in a store with room for one."""

from __future__ import annotations

import time
from typing import Any

import psutil
import torch

from specdemo.bench.harness import Args, Results, head, run_bench
from specdemo.models.request import PairRequest, request_pair
from specdemo.runs.store import PairStore


def alternate(requests: list[PairRequest], loads: int, budget: int) -> dict[str, Any]:
    """Resident memory (bytes) after every load, what the store held then, and the seconds of loading again.

    Args:
        requests: loaded in turn.
        loads: how many times in all.
        budget: of the store, in bytes.
    """
    store, process = PairStore(budget), psutil.Process()
    resident, held = [], []
    turns = [requests[number % len(requests)] for number in range(loads)]
    for request in (*turns, turns[-1]):
        start = time.perf_counter()
        with store.using(request) as load:
            load.future.result()
        seconds = time.perf_counter() - start
        resident.append(process.memory_info().rss)
        held.append([kept.request.name for kept in store.resident()])
    return {"budget": budget, "resident": resident[:loads], "held": held[:loads], "again_seconds": seconds}


def measure(args: Args) -> Results:
    """All figures as plain data."""
    found = alternate([request_pair(name) for name in args.pairs], args.loads, round(args.budget_mb * 1e6))
    return {**head(args, torch.device("cpu"), "pairs", "loads"), **found}


def table(found: dict[str, Any]) -> str:
    """The results for people."""
    resident = found["resident"]
    return (
        f"resident memory after each load, MB: {' '.join(f'{size / 1e6:.0f}' for size in resident)}\n"
        f"after load {len(resident)} / after load 2: {resident[-1] / resident[1]:.3f}\n"
        f"pairs in memory, at most: {max(map(len, found['held']))}; "
        f"the last pair again: {found['again_seconds']:.4f} s"
    )


if __name__ == "__main__":
    run_bench("memory", __doc__, measure, table, pairs=["builtin", "builtin-target"], loads=20, budget_mb=300.0)
