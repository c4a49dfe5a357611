"""``python -m specdemo.bench.visitors``: what happens when many use a public page at once?

The app runs in a process of its own, in public mode, on the builtin pair. Visitors (gradio_client) race again and
again, each with prompts and an address of their own; who is refused comes back later. Counted are
answers, refusals and failures, answers that are not the visitor's own, how long the page takes to load
meanwhile, and the server's memory before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
from gradio_client import Client
from gradio_client.exceptions import AppError

from specdemo.machine import machine_of

APP = Path(__file__).parents[2] / "app.py"
REFUSED = ("Too many runs are waiting", "jobs here already", "jobs from your network")
COME_BACK_SECONDS = (2.0, 6.0)
SETTLE_SECONDS = 10.0


class Visitors:
    """What all visitors met, counted."""

    def __init__(self, url: str, tokens: int) -> None:
        self.url, self.tokens = url, tokens
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.loads: list[float] = []
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def visit(self, number: int, until: float) -> None:
        """One visitor, until a time."""
        draw = random.Random(number)
        headers = {"x-forwarded-for": f"198.51.100.{number % 256}"}
        client = Client(self.url, verbose=False, analytics_enabled=False, headers=headers, download_files=False)
        visits = 0
        while time.monotonic() < until:
            visits += 1
            asked = time.monotonic()
            outcome = self._ask(client, number, visits)
            with self._lock:
                self.counts[outcome] += 1
                if outcome == "answered":
                    self.seconds.append(time.monotonic() - asked)
            if outcome == "refused":
                time.sleep(draw.uniform(*COME_BACK_SECONDS))
        client.close()

    def _ask(self, client: Client, number: int, visit: int) -> str:
        prompt, seed = f"Visitor {number} came {visit} times and said:", 1000 * number + visit
        lane = {"max_new_tokens": self.tokens, "seed": seed}
        lanes = [lane | {"strategy": "autoregressive"}, lane]
        try:
            answer = client.predict(prompt, lanes, "builtin", True, api_name="/race")
        except AppError as error:
            if any(text in str(error) for text in REFUSED):
                return "refused"
            return self._failed(f"{error}")
        except Exception as error:  # whatever it is, it is counted and shown
            return self._failed(f"{type(error).__name__}: {error}")
        own = answer["recording"]["prompt"] == prompt
        own &= all(each["settings"]["seed"] == seed for each in answer["lanes"])
        return "answered" if own else "another's"

    def _failed(self, text: str) -> str:
        with self._lock:
            self.failures.append(text[:300])
        return "failed"

    def look(self, until: float) -> None:
        """Load the page now and then."""
        while time.monotonic() < until:
            began = time.monotonic()
            answer = httpx.get(self.url, timeout=60)
            with self._lock:
                self.counts["page loads" if answer.status_code == 200 else "page failures"] += 1
                self.loads.append(time.monotonic() - began)
            time.sleep(2)

    def crowd(self, visitors: int, seconds: float) -> None:
        """All at once, for a time; ends when the last has its answer."""
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=self.visit, args=(n, until)) for n in range(visitors)]
        threads.append(threading.Thread(target=self.look, args=(until,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def memory(process: psutil.Process) -> float:
    """Megabytes that a process and its children have in memory, once they are at rest."""
    time.sleep(SETTLE_SECONDS)
    return sum(p.memory_info().rss for p in (process, *process.children(recursive=True))) / 1e6


def measure(url: str, server: psutil.Process, args: argparse.Namespace) -> dict[str, Any]:
    """A first crowd for what is only paid once, then the one that counts."""
    Visitors(url, args.tokens).crowd(args.visitors, args.warm_up)
    before = memory(server)
    visitors = Visitors(url, args.tokens)
    visitors.crowd(args.visitors, args.seconds)
    after = memory(server)
    return {
        "counts": dict(visitors.counts),
        "failures": visitors.failures[:20],
        "answer_seconds": {"median": median(visitors.seconds), "longest": max(visitors.seconds)},
        "page_load_seconds": {"median": median(visitors.loads), "longest": max(visitors.loads)},
        "memory_mb": {"before": before, "after": after, "ratio": after / before},
        "threads_after": server.num_threads(),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.visitors", description=__doc__)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0, help="in which visitors ask")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds of a first crowd that is not counted")
    parser.add_argument("--tokens", type=int, default=16, help="of each lane")
    parser.add_argument("--port", type=int, default=7896)
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    return parser.parse_args()


def main() -> None:
    import torch

    args = arguments()
    url = f"http://127.0.0.1:{args.port}/"
    environment = {**os.environ, "SPECDEMO_PUBLIC": "1", "GRADIO_SERVER_PORT": str(args.port)}
    app = subprocess.Popen([sys.executable, str(APP)], cwd=APP.parent, env=environment, stdout=subprocess.DEVNULL)
    try:
        _await(url)
        results = {
            "machine": machine_of(torch.device("cpu")),
            "settings": {n: getattr(args, n) for n in ("visitors", "seconds", "warm_up", "tokens")},
            **measure(url, psutil.Process(app.pid), args),
        }
    finally:
        app.terminate()
        app.wait(30)
    text = json.dumps(results, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n", encoding="utf-8")


def _await(url: str) -> None:
    for _ in range(240):
        try:
            httpx.get(url)
            return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise SystemExit(f"The app did not start at {url}.")


if __name__ == "__main__":
    main()
