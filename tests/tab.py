"""A visitor of the running app without a browser: the same requests as a page, and as a page would never send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self
from uuid import uuid4

import httpx
from gradio_client.utils import apply_diff

JSON = {"content-type": "application/json"}
ENDS = ("process_completed", "close_stream", "unexpected_error")


class Tab:
    """One visitor's session. Entered, it is open as a page is; its end is a closed tab.

    Attributes:
        url: of the app, without a slash at the end.
        http: sends requests of any kind.
        named: the components' numbers by name (``elem_id``).
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.api = f"{self.url}/gradio_api"
        # No connection is kept: the server closes one on which it failed.
        self.http = httpx.Client(timeout=120, limits=httpx.Limits(max_keepalive_connections=0))
        self.session = uuid4().hex[:12]
        config = self.http.get(f"{self.url}/config").raise_for_status().json()
        self._events = [d for d in config["dependencies"] if d["backend_fn"]]
        self._values = {c["id"]: c["props"].get("value") for c in config["components"]}
        self.named = {c["props"].get("elem_id"): c["id"] for c in config["components"]}
        self._open = ExitStack()
        self._open.callback(self.http.close)

    def __enter__(self) -> Self:
        # A page keeps this request open for as long as it is shown; its end tells the server that the tab closed.
        beat = self._open.enter_context(self.http.stream("GET", f"{self.api}/heartbeat/{self.session}"))
        self._heartbeat = beat.iter_lines()
        next(self._heartbeat)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The tab is closed, in the middle of whatever it does."""
        self._open.close()

    def events(self, name: str, trigger: str = "click") -> list[dict[str, Any]]:
        """What follows a trigger of a component: its own events, then those that follow them."""
        chain = [d for d in self._events if [self.named[name], trigger] in d["targets"]]
        for event in chain:
            chain += [d for d in self._events if d["trigger_after"] == event["id"] and d not in chain]
        return chain

    def event(self, name: str, trigger: str = "click") -> dict[str, Any]:
        """Of those that wait in the queue, the one that reads most of the page: it computes."""
        return max(
            (d for d in self.events(name, trigger) if d["queue"] is not False), key=lambda d: len(d["inputs"])
        )

    def values(self, event: dict[str, Any], **changed: Any) -> list[Any]:
        """What the page sends with an event: every input as it stands at first, or as ``changed`` says.

        ``changed``: by name, with ``__`` for a hyphen; components that the event does not read are left out.
        """
        values = self._values | {self.named[name.replace("__", "-")]: value for name, value in changed.items()}
        return [values.get(i) for i in event["inputs"]]

    def send(self, event: Any, data: Any, path: str = "/queue/join") -> Iterator[dict[str, Any]]:
        """Trigger an event, by its description or any number, and give its messages, the last one of its end."""
        number = event["id"] if isinstance(event, dict) else event
        body = json.dumps({"data": data, "fn_index": number, "session_hash": self.session})
        joined = self.http.post(self.api + path, content=body, headers=JSON)
        if joined.status_code != 200:
            return iter([{"msg": "refused", "status": joined.status_code, "output": joined.text}])
        return self._messages(joined.json().get("event_id"))

    def _messages(self, event: str | None) -> Iterator[dict[str, Any]]:
        with self.http.stream("GET", f"{self.api}/queue/data?session_hash={self.session}") as answer:
            for line in answer.iter_lines():
                message = json.loads(line[5:]) if line.startswith("data:") else {"msg": "", "event_id": ""}
                if message.get("event_id") in (event, None):
                    yield message
                if message["msg"] in ENDS:
                    return

    def last(self, event: Any, data: Any) -> dict[str, Any]:
        """The message of the event's end."""
        return [m for m in self.send(event, data) if m["msg"] in (*ENDS, "refused")][-1]

    def call(self, endpoint: str, data: Any) -> tuple[str, str]:
        """A public endpoint as curl calls it: the name of the last event, and its data."""
        address = f"{self.api}/call/{endpoint}"
        posted = self.http.post(address, content=json.dumps({"data": data}), headers=JSON)
        if posted.status_code != 200:
            return f"status {posted.status_code}", posted.text
        name, said = "", ""
        with self.http.stream("GET", f"{address}/{posted.json()['event_id']}") as answer:
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event" and value != "heartbeat":
                    name = value
                elif field == "data" and name != "heartbeat":
                    said = value
        return name, said

    def press(self, button: str, **changed: Any) -> None:
        """What a button does at once, such as Stop."""
        own = [self.named[button], "click"]
        for event in self.events(button):
            if event["queue"] is False and own in event["targets"]:
                self.send(event, self.values(event, **changed), "/run/predict")

    def run(self, **changed: Any) -> Iterator[dict[str, Any]]:
        """Press Run; yields the race's view after every update."""
        self.press("run", **changed)
        event = self.event("run")
        return self._views(self.send(event, self.values(event, **changed)))

    def _views(self, messages: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        shown: list[Any] = []
        for message in messages:
            if message["msg"] == "process_generating":
                # The first update is whole, the others say what changed.
                news = message["output"]["data"]
                shown = [apply_diff(*pair) for pair in zip(shown, news, strict=True)] if shown else news
                yield shown[0]
            elif message["msg"] in (*ENDS, "refused") and not message.get("success"):
                raise RuntimeError(f"the event failed: {message['output']}")

    def whole(self, view: dict[str, Any]) -> dict[str, Any]:
        """A race's view with its rounds, which the page fetches."""
        asked = {"data": [view["run"], 0], "component_id": self.named["race"], "fn_name": "fetch"}
        body = {**asked, "session_hash": self.session}
        found = self.http.post(f"{self.api}/component_server", json=body).raise_for_status()
        return {**view, "rounds": [json.dumps(round_) for round_ in found.json()]}


def under_way(view: dict[str, Any]) -> bool:
    """Whether a race's view has rounds, which the page fetches."""
    return view["count"] > 0


def tokens_of(view: dict[str, Any], lane: int) -> list[int]:
    """The output ids of one lane in the value of a race or a batch."""
    rounds = map(json.loads, view["rounds"])
    tokens = [token for round_ in rounds if round_["lane"] == lane for token in round_["tokens"]]
    return [token["id"] for token in tokens if token["kind"] != "rejected"]
