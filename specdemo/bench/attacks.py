"""What a hostile program sends to a public page, again and again; see ``hostile``."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing.synchronize import Event
from typing import Any
from uuid import uuid4

import httpx

from specdemo.bench.tab import Page
from specdemo.models.source import ASSETS

CONNECTIONS = 4
PATIENCE_SECONDS = 10.0
JSON = {"content-type": "application/json"}
FILE_BYTES = 5_000_000

_over: Event | None = None


def adopt(over: Event) -> None:
    """Run first in the process that attacks: what tells it to end an attack."""
    global _over
    _over = over


def attack(url: str, name: str, address: str) -> Counter[str]:
    """Send one kind of load over several connections until told to end.

    Args:
        url: of the app.
        name: of the load.
        address: where it comes from, as a proxy would say.

    Returns:
        How often which status was answered, or nothing while somebody would wait.
    """
    assert _over is not None
    page, counts, lock = Page(url), Counter[str](), threading.Lock()

    def connection() -> None:
        with httpx.Client(timeout=PATIENCE_SECONDS, headers={"x-forwarded-for": address}) as http:
            while not _over.is_set():
                statuses = []
                try:
                    for answer in ATTACKS[name](http, page):
                        statuses.append(str(answer.status_code))
                except httpx.TimeoutException:
                    statuses.append("none")
                with lock:
                    counts.update(statuses)

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for each in [pool.submit(connection) for _ in range(CONNECTIONS)]:
            each.result()
    return counts


def _call(endpoint: str, body: Callable[[], bytes]) -> Callable[[httpx.Client, Page], Iterator[httpx.Response]]:
    """The same body to one of the endpoints; in chunks, so that nothing says how long it is."""

    def send(http: httpx.Client, page: Page) -> Iterator[httpx.Response]:
        whole = body()
        chunks = (whole[at : at + 65_536] for at in range(0, len(whole), 65_536))
        yield http.post(f"{page.url}/gradio_api/call/{endpoint}", content=chunks, headers=JSON)

    return send


@cache
def _lanes() -> bytes:
    return json.dumps({"data": ["x", [{}] * 1_000_000]}).encode()


@cache
def _gammas() -> bytes:
    return json.dumps({"data": [["x"], [5] * 5_000_000]}).encode()


@cache
def _largest() -> bytes:
    """As much as is taken."""
    return json.dumps({"data": ["x" * 980_000, [{"gamma": 99}] * 900]}).encode()


@cache
def recording() -> bytes:
    """A valid recording, as long as a public page takes."""
    found = json.loads((ASSETS / "recordings" / "1-data.json").read_text(encoding="utf-8"))
    for trace in found["traces"]:
        rounds, size = trace["rounds"], len(json.dumps(trace["rounds"]))
        last = rounds[-1]["seconds"]
        trace["rounds"] = [
            {**each, "index": again * len(rounds) + each["index"], "seconds": again * last + each["seconds"]}
            for again in range(FILE_BYTES // len(found["traces"]) // size)
            for each in rounds
        ]
    return json.dumps(found, ensure_ascii=False).encode()


def _open_recordings(http: httpx.Client, page: Page) -> Iterator[httpx.Response]:
    """As a visitor who never says that they left, and fetches nothing."""
    sent = http.post(f"{page.url}/gradio_api/upload", files={"files": ("x.json", recording(), "application/json")})
    yield sent
    if sent.status_code == 200:
        file = {"path": sent.json()[0], "orig_name": "x.json", "meta": {"_type": "gradio.FileData"}}
        yield _join(http, page, page.events("open-recording", "upload")[0], [file])


def _open_sessions(http: httpx.Client, page: Page) -> Iterator[httpx.Response]:
    event = page.event("lane2-method", "change", queued=False)
    yield _join(http, page, event, page.values(event))


def _join(http: httpx.Client, page: Page, event: dict[str, Any], data: list[Any]) -> httpx.Response:
    body = {"data": data, "fn_index": event["id"], "session_hash": uuid4().hex}
    return http.post(f"{page.url}/gradio_api/queue/join", json=body)


def _small_files(http: httpx.Client, page: Page) -> Iterator[httpx.Response]:
    name = uuid4().hex
    yield http.post(f"{page.url}/gradio_api/upload", files={"files": (name, name.encode())})


ATTACKS: dict[str, Callable[[httpx.Client, Page], Iterator[httpx.Response]]] = {
    "a million lanes": _call("race", _lanes),
    "5 million gammas": _call("sweep", _gammas),
    "the largest body": _call("race", _largest),
    "recordings of fresh sessions": _open_recordings,
    "events of fresh sessions": _open_sessions,
    "small files": _small_files,
}
"""By name."""
