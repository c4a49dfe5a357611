"""A browser's tab without a browser: the same requests to the running app, and the same ways to leave it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
from gradio_client.utils import apply_diff


def events(config: dict[str, Any], name: str, trigger: str = "click") -> list[dict[str, Any]]:
    """What follows when a component is pressed: its own events, then those that follow them.

    Args:
        config: the page's, as the app serves it.
        name: of the component in the page.
        trigger: what happens to it.
    """
    number = next(c["id"] for c in config["components"] if c["props"].get("elem_id") == name)
    every = [d for d in config["dependencies"] if d["backend_fn"]]
    chain = [d for d in every if [number, trigger] in d["targets"]]
    for event in chain:
        chain += [d for d in every if d["trigger_after"] == event["id"] and d not in chain]
    return chain


def reading(found: list[dict[str, Any]], *, queued: bool) -> dict[str, Any]:
    """Of events that wait in the queue, or of those that do not, the one that reads most of the page."""
    return max((d for d in found if (d["queue"] is not False) == queued), key=lambda d: len(d["inputs"]))


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

    def press(self, button: str, data: list[Any]) -> None:
        """What a button does at once, such as Stop."""
        event = reading(events(self._config, button), queued=False)
        body = {"data": data, "fn_index": event["id"], "session_hash": self._session}
        httpx.post(f"{self.url}/run/predict", json=body, timeout=60).raise_for_status()

    def start(self, button: str, data: list[Any]) -> Iterator[Any]:
        """What it computes then; yields the first of its outputs as the page has it after every update."""
        event = reading(events(self._config, button), queued=True)
        body = {"data": data, "fn_index": event["id"], "session_hash": self._session}
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
