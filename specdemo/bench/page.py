"""``python -m specdemo.bench.page``: start-up, first token, and what the page costs a lane.

The visitor is a process of its own, but no browser, which would take the cores that are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from specdemo.bench.visitor import Visitor
from specdemo.models.request import request_pair
from specdemo.runs.race import race
from specdemo.runs.single import run
from specdemo.runs.store import PairStore
from specdemo.settings import Settings
from specdemo.ui.page import build, launch_options

APP = Path(__file__).resolve().parents[2] / "app.py"
START_SECONDS = 120


def start_up(port: int, panel: list[Any]) -> tuple[float, float]:
    """Seconds from ``python app.py`` to a page, and from Run to the first token once the pair is loaded."""
    environment = {**os.environ, "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
    start = time.perf_counter()
    app = subprocess.Popen(
        [sys.executable, str(APP)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_page(url, start)
        seconds = time.perf_counter() - start
        visitor = Visitor(url)
        visitor.race(panel)
        return seconds, median(visitor.race(panel)[0] for _ in range(5))
    finally:
        app.terminate()
        app.wait()


def _wait_for_page(url: str, start: float) -> None:
    while time.perf_counter() - start < START_SECONDS:
        try:
            httpx.get(url, timeout=5).raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise TimeoutError(f"the app gave no page within {START_SECONDS} seconds")


def cost_of_page(
    prompt: str, lanes: list[Settings], panel: list[Any], repeats: int
) -> dict[str, list[list[float]]]:
    """Lane clocks in the page, and in a bare race, over ``specdemo.run`` alone: by lane, one ratio a repeat.

    All three run in one process and one thread by turns: two processes on one machine differ by more than the
    page costs.
    """
    store = PairStore()
    demo = build(store)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    with store.using(request_pair("builtin")) as load:
        pair = load.future.result()

    def alone(settings: Settings) -> float:
        return store.thread.submit(lambda: run(pair, prompt, settings).rounds[-1].seconds).result()

    def raced() -> list[float]:
        clocks = [0.0] * len(lanes)
        for lane, round_ in race(pair, prompt, lanes):
            clocks[lane] = round_.seconds
        return clocks

    ratios: dict[str, list[list[float]]] = {"page": [[] for _ in lanes], "race": [[] for _ in lanes]}
    with _visits(url.rstrip("/"), panel) as visit:
        visit()
        for _ in range(repeats):
            before = [alone(s) for s in lanes]
            clocks = {"race": store.thread.submit(raced).result(), "page": visit()}
            after = [alone(s) for s in lanes]
            for name, measured in clocks.items():
                for lane, seconds in enumerate(measured):
                    ratios[name][lane].append(2 * seconds / (before[lane] + after[lane]))
    demo.close()
    return ratios


@contextmanager
def _visits(url: str, panel: list[Any]) -> Iterator[Any]:
    """A function that lets the visitor's process run one race and gives its lane clocks."""
    command = [sys.executable, "-m", "specdemo.bench.visitor", url, json.dumps(panel)]
    visitor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def visit() -> list[float]:
        visitor.stdin.write("race\n")
        visitor.stdin.flush()
        return json.loads(visitor.stdout.readline())["lanes"]

    try:
        yield visit
    finally:
        visitor.kill()
        visitor.wait()


def measure(port: int, prompt: str, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """All figures as plain data."""
    lanes = [
        Settings(strategy="autoregressive", max_new_tokens=tokens),
        Settings(gamma=gamma, max_new_tokens=tokens),
    ]
    options = [gamma, False, "exact", 10, 3, 0]  # of each lane, as the panel's controls stand
    panel = ["builtin", "", "", "none", "none", "auto", "best", prompt, 0, 0, 1, 0, True, "auto", tokens]
    for method in ("plain", "draft", "none", "none"):
        panel += [method, *options]
    page_seconds, first_token_seconds = start_up(port, panel)
    ratios = cost_of_page(prompt, lanes, panel, repeats)
    return {
        "page_seconds": page_seconds,
        "first_token_seconds": first_token_seconds,
        "over_run": {name: [median(lane) for lane in by_lane] for name, by_lane in ratios.items()},
        "all": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.page", description=__doc__)
    parser.add_argument("--port", type=int, default=7899)
    parser.add_argument("--prompt", default="Book a table for two near the harbour on Friday evening.")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    args = parser.parse_args()
    results = measure(args.port, args.prompt, args.gamma, args.tokens, args.repeats)
    print(f"page usable after {results['page_seconds']:.1f} s")
    print(f"first token {results['first_token_seconds']:.2f} s after Run")
    for name, (plain, speculative) in results["over_run"].items():
        print(f"lane clock in the {name} / specdemo.run: plain {plain:.3f}, speculative {speculative:.3f}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
