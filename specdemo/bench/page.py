"""``python -m specdemo.bench.page``: start-up, first token, and what the page costs a lane.

Talks to the running app as a browser does, without one: a browser would take the cores that are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from specdemo.lanes import run
from specdemo.models.loading import load_pair
from specdemo.settings import Settings

APP = Path(__file__).resolve().parents[2] / "app.py"
START_SECONDS = 120
SESSION = "specdemobench"


class App:
    """The app in a process of its own, and the seconds until its page could be fetched."""

    def __init__(self, port: int) -> None:
        environment = {**os.environ, "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
        self.url = f"http://127.0.0.1:{port}"
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, str(APP)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.config = self._wait_for_page(start)
        self.start_seconds = time.perf_counter() - start

    def _wait_for_page(self, start: float) -> dict[str, Any]:
        while time.perf_counter() - start < START_SECONDS:
            try:
                httpx.get(self.url, timeout=5).raise_for_status()
                return httpx.get(f"{self.url}/config", timeout=5).json()
            except httpx.HTTPError:
                time.sleep(0.05)
        raise TimeoutError(f"the app gave no page within {START_SECONDS} seconds")

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()

    def race(self, panel: list[Any]) -> tuple[float, list[dict[str, Any]]]:
        """One run through the page's own events: (seconds to the first token, all rounds)."""
        start = time.perf_counter()
        first: float | None = None
        chunks: list[str] = []
        self._call("prepare", panel)
        for data in self._stream("execute", panel):
            for chunk in _chunks(data):
                first = first or time.perf_counter() - start
                if chunk not in chunks:
                    chunks.append(chunk)
        return first or 0.0, [round_ for chunk in chunks for round_ in json.loads(chunk)]

    def _call(self, name: str, data: list[Any]) -> None:
        for _ in self._stream(name, data):
            pass

    def _stream(self, name: str, data: list[Any]) -> Iterator[Any]:
        body = {"data": data, "fn_index": self._index(name), "session_hash": SESSION}
        httpx.post(f"{self.url}/gradio_api/queue/join", json=body, timeout=30).raise_for_status()
        params = {"session_hash": SESSION}
        with httpx.stream("GET", f"{self.url}/gradio_api/queue/data", params=params, timeout=300) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line[5:])
                if message["msg"] in ("process_generating", "process_completed"):
                    yield message["output"]["data"]
                if message["msg"] == "process_completed":
                    return

    def _index(self, name: str) -> int:
        found = [
            d["id"] for d in self.config["dependencies"] if re.fullmatch(rf"{name}(_\d+)?", d["api_name"] or "")
        ]
        return found[0]


def _chunks(data: Any) -> Iterator[str]:
    """All JSON strings of rounds inside an update, which holds either the whole value or what is new in it."""
    if isinstance(data, str):
        if data.startswith('[{"lane":'):
            yield data
    elif isinstance(data, dict | list):
        for part in data.values() if isinstance(data, dict) else data:
            yield from _chunks(part)


def lane_seconds(rounds: list[dict[str, Any]], lane: int) -> float:
    """The lane clock at the end."""
    return max(r["seconds"] for r in rounds if r["lane"] == lane)


def measure(port: int, prompt: str, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Start the app, then run lanes in it and in this process by turns."""
    lanes = [
        Settings(strategy="autoregressive", max_new_tokens=tokens),
        Settings(gamma=gamma, max_new_tokens=tokens),
    ]
    options = [gamma, False, "exact", 10, 3, 0]  # of each lane, as the panel's controls stand
    panel = ["builtin", prompt, 0, 0, 1, 0, True, tokens]
    for method in ("plain", "draft", "none", "none"):
        panel += [method, *options]
    app = App(port)
    try:
        pair = load_pair()
        pair.warm_up()
        app.race(panel)  # the pair is loaded and warm there too after this
        firsts, ratios = [], [[], []]
        for _ in range(repeats):
            first, rounds = app.race(panel)
            firsts.append(first)
            for lane, settings in enumerate(lanes):
                alone = run(pair, prompt, settings).rounds[-1].seconds
                ratios[lane].append(lane_seconds(rounds, lane) / alone)
    finally:
        app.close()
    return {
        "page_seconds": app.start_seconds,
        "first_token_seconds": median(firsts),
        "page_over_run": {"autoregressive": median(ratios[0]), "speculative": median(ratios[1])},
        "all": {"first_token_seconds": firsts, "autoregressive": ratios[0], "speculative": ratios[1]},
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
    over = results["page_over_run"]
    print(f"page usable after {results['page_seconds']:.1f} s")
    print(f"first token {results['first_token_seconds']:.2f} s after Run")
    print(
        f"lane clock in the page / specdemo.run: plain {over['autoregressive']:.3f}, "
        f"speculative {over['speculative']:.3f}"
    )
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
