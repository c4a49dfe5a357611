"""A visitor of the running app without a browser: talks to the page's own events as a browser does.

``python -m specdemo.bench.visitor URL PANEL`` runs a race for every line it reads and answers with its figures.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx

from specdemo.bench.tab import events, reading

SESSION = "specdemobench"


class Visitor:
    """One browser session on the app at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.config = httpx.get(f"{url}/config", timeout=5).raise_for_status().json()

    def race(self, panel: list[Any]) -> tuple[float, list[dict[str, Any]]]:
        """One run through the page's own events: (seconds to the first token, all rounds)."""
        start = time.perf_counter()
        first: float | None = None
        chunks: list[str] = []
        pressed = events(self.config, "run")
        for _ in self._stream(reading(pressed, queued=False), panel):
            pass
        for data in self._stream(reading(pressed, queued=True), panel):
            for chunk in _chunks(data):
                first = first or time.perf_counter() - start
                if chunk not in chunks:
                    chunks.append(chunk)
        return first or 0.0, [round_ for chunk in chunks for round_ in json.loads(chunk)]

    def answers(self, event: dict[str, Any], data: list[Any]) -> str:
        """All that the page is told by one of its events, as JSON."""
        return json.dumps(list(self._stream(event, data)), ensure_ascii=False)

    def _stream(self, event: dict[str, Any], data: list[Any]) -> Iterator[Any]:
        body = {"data": data, "fn_index": event["id"], "session_hash": SESSION}
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


def main() -> None:
    visitor, panel = Visitor(sys.argv[1]), json.loads(sys.argv[2])
    for _ in sys.stdin:
        first, rounds = visitor.race(panel)
        lanes = sorted({r["lane"] for r in rounds})
        print(json.dumps({"first": first, "lanes": [lane_seconds(rounds, n) for n in lanes]}), flush=True)


if __name__ == "__main__":
    main()
