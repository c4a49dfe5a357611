"""``python -m specdemo.bench.visitors``: what happens when many use a public page at once?

The app runs in a process of its own, in public mode, on the builtin pair. Visitors (gradio_client) race again and
again, each with prompts and an address of their own; who is refused comes back later. Counted are answers,
refusals and failures, answers that are not the visitor's own, how long the page takes to load meanwhile, and the
server's memory before and after.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import httpx
import psutil
import torch
from gradio_client import Client
from gradio_client.exceptions import AppError

from specdemo.bench.harness import Args, Results, as_json, head, run_bench
from specdemo.bench.running_app import app_process

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
        lane = {"max_new_tokens": self.tokens, "ignore_eos": True, "seed": seed}
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
        with ThreadPoolExecutor(visitors + 1) as pool:
            visits = [pool.submit(self.visit, number, until) for number in range(visitors)]
            for job in (pool.submit(self.look, until), *visits):
                job.result()


def memory(process: psutil.Process) -> float:
    """Megabytes that a process and its children have in memory, once they are at rest."""
    time.sleep(SETTLE_SECONDS)
    return sum(p.memory_info().rss for p in (process, *process.children(recursive=True))) / 1e6


def crowds(url: str, server: psutil.Process, args: Args) -> Results:
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


def measure(args: Args) -> Results:
    """All figures as plain data."""
    with app_process(args.port, SPECDEMO_PUBLIC="1", SPECDEMO_TRUSTED_PROXIES="127.0.0.1") as (url, app):
        found = crowds(f"{url}/", psutil.Process(app.pid), args)
    return {**head(args, torch.device("cpu"), "visitors", "seconds", "warm_up", "tokens"), **found}


if __name__ == "__main__":
    defaults = {"visitors": 50, "seconds": 120.0, "warm_up": 30.0, "tokens": 16, "port": 7896}
    run_bench("visitors", __doc__, measure, as_json, **defaults)
