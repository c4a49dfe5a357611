"""``python -m specdemo.bench.hostile``: what is left of a visitor's speed, and of memory, beside hostile programs?

The app runs in a process of its own, in public mode, on the builtin pair, and so does the program that attacks it.
A visitor runs 64 tokens alone and then beside an attack, from another address. A speed is that of the whole call,
from the request to the answer; beside an attack it is relative to the one alone just before.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from statistics import median
from tempfile import TemporaryDirectory

import psutil
import torch
from gradio_client import Client

from specdemo.bench.attacks import ATTACKS, adopt, attack
from specdemo.bench.harness import Args, Results, columns, extremes, head, interleaved, run_bench, verdict
from specdemo.bench.running_app import app_process
from specdemo.bench.visitors import memory

PROMPT = "Write a story about a lighthouse keeper."
LEAD_SECONDS = 2.0
"""For which an attack goes on before the visitor comes."""
AT_REST_PERCENT, MOST_REST_SECONDS = 20.0, 120
HOME = {"x-forwarded-for": "198.51.100.1"}
"""Where the visitor comes from, as a proxy would say."""
LEAST_SPEED = 0.5
MOST_MEMORY = 1.05


def call_seconds(client: Client, tokens: int) -> float:
    """Seconds from a visitor's call to its answer."""
    began = time.perf_counter()
    client.predict(PROMPT, {"max_new_tokens": tokens, "ignore_eos": True}, api_name="/run")
    return time.perf_counter() - began


def await_rest(app: psutil.Process) -> None:
    """Wait for what an attack left to do, such as files that were sent and wait to be opened."""
    for _ in range(MOST_REST_SECONDS):
        if app.cpu_percent(1.0) < AT_REST_PERCENT:
            return
    raise TimeoutError(f"the app still computes after {MOST_REST_SECONDS} seconds")


class Attacker:
    """A process that attacks.

    Attributes:
        answers: what it was answered, by attack and status.
    """

    def __init__(self, url: str, app: psutil.Process) -> None:
        context = get_context("spawn")
        self._url, self._app, self._over, self._addresses = url, app, context.Event(), count(1)
        self._process = ProcessPoolExecutor(1, context, adopt, (self._over,))
        self.answers: dict[str, Counter[str]] = {name: Counter() for name in ATTACKS}

    def compare(self, name: str, visit: Callable[[], float]) -> tuple[float, float]:
        """Seconds of a visit alone, once the app is at rest, and of one right after it during an attack."""
        await_rest(self._app)
        return visit(), self._beside(name, visit)

    def _beside(self, name: str, visit: Callable[[], float]) -> float:
        self._over.clear()
        # Each time from another address, so that none has to wait for what an earlier one asked for.
        attacking = self._process.submit(attack, self._url, name, f"203.0.113.{next(self._addresses)}")
        time.sleep(LEAD_SECONDS)
        try:
            return visit()
        finally:
            self._over.set()
            self.answers[name] += attacking.result()

    def close(self) -> None:
        """End the process."""
        self._process.shutdown()


def visits(url: str, app: psutil.Process, args: Args) -> Results:
    """Speeds beside each attack, and the memory that the app has before all of them and after."""
    attacker, client = Attacker(url, app), Client(url, verbose=False, analytics_enabled=False, headers=HOME)
    visit = partial(call_seconds, client, args.tokens)
    contenders = {name: partial(attacker.compare, name, visit) for name in args.attacks}
    interleaved(contenders, 1)
    await_rest(app)
    before = memory(app)
    seconds = interleaved(contenders, args.repeats, warm_up=0, label="hostile")
    await_rest(app)
    after = memory(app)
    attacker.close()
    speeds = {name: [alone / beside for alone, beside in pairs] for name, pairs in seconds.items()}
    return {
        "alone_seconds": median(alone for pairs in seconds.values() for alone, _ in pairs),
        "attacks": [
            {"name": n, "speed": median(v), "ends": extremes(v), "answers": dict(attacker.answers[n])}
            for n, v in speeds.items()
        ],
        "memory_mb": {"before": before, "after": after, "ratio": after / before},
    }


def measure(args: Args) -> Results:
    """All figures as plain data."""
    own = {"SPECDEMO_PUBLIC": "1", "SPECDEMO_TRUSTED_PROXIES": "127.0.0.1"}
    with TemporaryDirectory() as files, app_process(args.port, GRADIO_TEMP_DIR=files, **own) as (url, app):
        found = visits(url, psutil.Process(app.pid), args)
    return {**head(args, torch.device("cpu"), "repeats", "tokens"), **found}


def table(found: Results) -> str:
    """The results for people."""
    rows, mb = found["attacks"], found["memory_mb"]
    formats = {"beside": "{name}", "speed": "{speed:.2f}", "least": "{ends[0]:.2f}", "answers": "{answers}"}
    slowest = min(row["speed"] for row in rows)
    return "\n".join(
        (
            columns(formats, rows),
            verdict(
                slowest >= LEAST_SPEED, f"the visitor keeps {slowest:.2f} of {LEAST_SPEED} of the speed alone"
            ),
            verdict(mb["ratio"] <= MOST_MEMORY, f"{mb['before']:.0f} MB before, {mb['after']:.0f} MB after"),
        )
    )


if __name__ == "__main__":
    run_bench("hostile", __doc__, measure, table, attacks=list(ATTACKS), repeats=5, tokens=64, port=7897)
