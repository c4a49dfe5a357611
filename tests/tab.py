"""A visitor of the running app without a browser: the same requests as a tab's, and the same ways to leave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
from gradio_client.utils import apply_diff


class Page:
    """The page as the app serves it.

    Attributes:
        url: of the app, without a slash at the end.
        config: Gradio's description of the components and the events.
        components: the components by number.
        named: the components' numbers by name (``elem_id``).
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.config = httpx.get(f"{self.url}/config", timeout=60).raise_for_status().json()
        self.components = {c["id"]: c for c in self.config["components"]}
        self.named = {c["props"].get("elem_id"): c["id"] for c in self.config["components"]}

    def events(self, name: str, trigger: str = "click") -> list[dict[str, Any]]:
        """What follows a trigger of a component: its own events, then those that follow them."""
        every = [d for d in self.config["dependencies"] if d["backend_fn"]]
        chain = [d for d in every if [self.named[name], trigger] in d["targets"]]
        for event in chain:
            chain += [d for d in every if d["trigger_after"] == event["id"] and d not in chain]
        return chain

    def event(self, name: str, trigger: str = "click", *, queued: bool = True) -> dict[str, Any]:
        """Of those that wait in the queue, or of those that do not, the one that reads most of the page."""
        found = [d for d in self.events(name, trigger) if (d["queue"] is not False) == queued]
        return max(found, key=lambda d: len(d["inputs"]))

    def values(self, event: dict[str, Any], **changed: Any) -> list[Any]:
        """What the page sends with an event: every input as it stands at first, or as ``changed`` says.

        ``changed``: by name, with ``__`` for a hyphen; components that the event does not read are left out.
        """
        ids = {self.named[name.replace("__", "-")]: value for name, value in changed.items()}
        return [ids.get(i, self.components[i]["props"].get("value")) for i in event["inputs"]]


class Tab:
    """One visitor of the app; a context manager that leaves as a closed tab does."""

    def __init__(self, page: Page) -> None:
        self._page, self._url = page, f"{page.url}/gradio_api"
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

    def press(self, button: str, **changed: Any) -> None:
        """What a button does at once, such as Stop."""
        own = [self._page.named[button], "click"]
        for event in self._page.events(button):
            if event["queue"] is False and own in event["targets"]:
                self._send("/run/predict", event, changed)

    def start(self, button: str, **changed: Any) -> Iterator[Any]:
        """What it computes then; yields the first of its outputs as the page has it after every update."""
        self._send("/queue/join", self._page.event(button), changed)
        return self._outputs()

    def run(self, **changed: Any) -> Iterator[dict[str, Any]]:
        """Press Run; yields the race's view after every update."""
        self.press("run", **changed)
        return self.start("run", **changed)

    def whole(self, view: dict[str, Any]) -> dict[str, Any]:
        """A race's view with its rounds, which the page fetches."""
        asked = {"data": [view["run"], 0], "component_id": self._page.named["race"], "fn_name": "fetch"}
        body = {**asked, "session_hash": self._session}
        found = httpx.post(f"{self._url}/component_server", json=body, timeout=60).raise_for_status()
        return {**view, "rounds": [json.dumps(round_) for round_ in found.json()]}

    def _send(self, path: str, event: dict[str, Any], changed: dict[str, Any]) -> None:
        data = self._page.values(event, **changed)
        body = {"data": data, "fn_index": event["id"], "session_hash": self._session}
        httpx.post(self._url + path, json=body, timeout=60).raise_for_status()

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
        answer = self._open.enter_context(client.stream("GET", self._url + path))
        return answer.iter_lines()


def under_way(view: dict[str, Any]) -> bool:
    """Whether a race's view has rounds, which the page fetches."""
    return view["count"] > 0


def tokens_of(view: dict[str, Any], lane: int) -> list[int]:
    """The output ids of one lane in the value of a race or a batch."""
    rounds = map(json.loads, view["rounds"])
    tokens = [token for round_ in rounds if round_["lane"] == lane for token in round_["tokens"]]
    return [token["id"] for token in tokens if token["kind"] != "rejected"]
