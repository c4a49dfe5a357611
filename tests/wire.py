"""A visitor without a browser: sends what the page's scripts would send, or anything else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
from tab import Page


class Wire(Page):
    """One visitor's session at a running app, over HTTP as the page speaks it."""

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        super().__init__(url)
        # No connection is kept: the server closes one on which it failed.
        self.http = httpx.Client(timeout=timeout, limits=httpx.Limits(max_keepalive_connections=0))
        self.session = uuid.uuid4().hex[:12]

    def job(self, name: str) -> dict[str, Any]:
        """The event behind a button that computes."""
        return self.event(name)

    def values(self, event: dict[str, Any], **changed: Any) -> list[Any]:
        """What the page sends with an event, all of whose changed values it must read."""
        unknown = {self.named[name.replace("__", "-")] for name in changed} - set(event["inputs"])
        assert not unknown, f"no inputs of this event: {unknown}"
        return super().values(event, **changed)

    def send(self, event: Any, data: Any) -> Iterator[dict[str, Any]]:
        """Trigger an event and give its messages, the last one of its end."""
        number = event["id"] if isinstance(event, dict) else event
        body = {"data": data, "fn_index": number, "session_hash": self.session}
        joined = self.http.post(f"{self.url}/gradio_api/queue/join", content=_json(body), headers=JSON)
        if joined.status_code != 200:
            yield {"msg": "refused", "status": joined.status_code, "output": joined.text}
            return
        mine = joined.json()["event_id"]
        stream = f"{self.url}/gradio_api/queue/data?session_hash={self.session}"
        with self.http.stream("GET", stream) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line[5:])
                if message.get("event_id") in (mine, None):
                    yield message
                if message["msg"] in ("process_completed", "close_stream", "unexpected_error"):
                    return

    def last(self, event: Any, data: Any) -> dict[str, Any]:
        """The message of the event's end."""
        ends = ("process_completed", "refused", "unexpected_error")
        return [m for m in self.send(event, data) if m["msg"] in ends][-1]

    def call(self, endpoint: str, data: Any) -> tuple[str, str]:
        """A public endpoint as curl calls it: the name of the last event, and its data."""
        posted = self.http.post(
            f"{self.url}/gradio_api/call/{endpoint}", content=_json({"data": data}), headers=JSON
        )
        if posted.status_code != 200:
            return f"status {posted.status_code}", posted.text
        name, said = "", ""
        with self.http.stream(
            "GET", f"{self.url}/gradio_api/call/{endpoint}/{posted.json()['event_id']}"
        ) as answer:
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event" and value != "heartbeat":
                    name = value
                elif field == "data" and name != "heartbeat":
                    said = value
        return name, said

    def close(self) -> None:
        """Leave."""
        self.http.close()


JSON = {"content-type": "application/json"}


def _json(body: Any) -> str:
    """JSON as a hostile program may write it: with NaN, and with halves of characters."""
    return json.dumps(body)
