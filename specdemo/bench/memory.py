"""``python -m specdemo.bench.memory``: memory while pairs take turns in a store with room for one."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from specdemo.machine import machine_of
from specdemo.models.request import PairRequest, request_pair
from specdemo.runs.store import PairStore


def alternate(requests: list[PairRequest], loads: int, budget: int) -> dict[str, Any]:
    """Resident memory (bytes) after every load, what the store held then, and the seconds of loading again.

    Args:
        requests: loaded in turn.
        loads: how many times in all.
        budget: of the store, in bytes.
    """
    store = PairStore(budget)
    process = psutil.Process()
    resident, held = [], []
    for number in range(loads):
        with store.using(requests[number % len(requests)]) as load:
            load.future.result()
        resident.append(process.memory_info().rss)
        held.append([kept.request.name for kept in store.resident()])
    start = time.perf_counter()
    with store.using(requests[(loads - 1) % len(requests)]) as load:
        load.future.result()
    return {"budget": budget, "resident": resident, "held": held, "again_seconds": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.memory", description=__doc__)
    parser.add_argument("--pairs", nargs="+", default=["builtin", "builtin-target"])
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--budget-mb", type=float, default=300, help="of the store; both default pairs need more")
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    args = parser.parse_args()
    found = alternate([request_pair(name) for name in args.pairs], args.loads, round(args.budget_mb * 1e6))
    resident = [f"{size / 1e6:.0f}" for size in found["resident"]]
    print(f"resident memory after each load, MB: {' '.join(resident)}")
    print(f"after load {args.loads} / after load 2: {found['resident'][-1] / found['resident'][1]:.3f}")
    most = max(map(len, found["held"]))
    print(f"pairs in memory, at most: {most}; the last pair again: {found['again_seconds']:.4f} s")
    if args.json:
        results = {"machine": machine_of(torch.device("cpu")), **found}
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
