"""A browser's tab without a browser: the same requests to the running app, and the same ways to leave it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
from gradio_client.utils import apply_diff


class Tab:
    """One visitor of the app at ``url``; a context manager that leaves as a closed tab does."""

    def __init__(self, url: str, config: dict[str, Any]) -> None:
        self.url, self._config = f"{url.rstrip('/')}/gradio_api", config
        self._session = uuid4().hex
        self._open = ExitStack()

    def __enter__(self) -> Tab:
        # A page keeps this request open for as long as it is shown; its end tells the server that the tab closed.
        self._heartbeat = self._stream(f"/heartbeat/{self._session}")
        next(self._heartbeat)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The tab is closed, in the middle of whatever it does."""
        self._open.close()

    def press(self, name: str, data: list[Any]) -> None:
        """An event that does not wait in the queue, such as Stop."""
        body = {"data": data, "fn_index": self._index(name), "session_hash": self._session}
        httpx.post(f"{self.url}/run/predict", json=body, timeout=60).raise_for_status()

    def start(self, name: str, data: list[Any]) -> Iterator[Any]:
        """An event of the queue; yields the first of its outputs as the page has it after every update."""
        body = {"data": data, "fn_index": self._index(name), "session_hash": self._session}
        httpx.post(f"{self.url}/queue/join", json=body, timeout=60).raise_for_status()
        return self._outputs()

    def _outputs(self) -> Iterator[Any]:
        shown: list[Any] = []
        for line in self._stream(f"/queue/data?session_hash={self._session}"):
            if not line.startswith("data:"):
                continue
            message = json.loads(line[5:])
            if message["msg"] == "process_generating":
                # The first update is whole, the others say what changed.
                news = message["output"]["data"]
                shown = [apply_diff(*pair) for pair in zip(shown, news, strict=True)] if shown else news
                yield shown[0]
            elif message["msg"] == "process_completed":
                if not message["success"]:
                    raise RuntimeError(f"the event failed: {message['output']}")
                return

    def _stream(self, path: str) -> Iterator[str]:
        client = self._open.enter_context(httpx.Client(timeout=120))
        answer = self._open.enter_context(client.stream("GET", self.url + path))
        return answer.iter_lines()

    def _index(self, name: str) -> int:
        """The first event whose function has this name; the race tab's stand before those of other tabs."""
        named = (d for d in self._config["dependencies"] if re.fullmatch(rf"{name}(_\d+)?", d["api_name"] or ""))
        return next(named)["id"]
