"""``python -m specdemo.bench.floods``: how long does a visitor of a public page wait while one address floods it?

The app runs in a process of its own, in public mode, on the builtin pair, and so does the program that floods it,
each time from another address; the hub that both would ask takes connections and never answers. A visitor from one
more address opens the page and presses Run, for 16 tokens, as a browser does; it waits for the page, and then from
Run to the end. All stays on this machine, which must take any address of 127.0.0.0/8 for its own, as Linux does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import torch

from specdemo.bench.harness import Args, Results, columns, head, run_bench, verdict
from specdemo.bench.running_app import app_process
from specdemo.models.catalog import catalog

VISITOR, FLOODERS = "127.0.0.2", "127.0.1.{}"
PROMPT, TOKENS = "Write a story about a lighthouse keeper.", 16
LEAD_SECONDS, LONGEST_SECONDS = 3.0, 120.0
"""A flood goes on for so long before the visitor comes, and at most."""
MOST_SECONDS = 2.0
"""That the visitor may wait."""
PATIENCE = 60.0
UNLOADED = next(entry.id for entry in catalog().values() if not entry.id.startswith("builtin"))


class Page:
    """What the app says of its page: which event follows a press, and what is sent with it."""

    def __init__(self, http: httpx.Client, url: str) -> None:
        config = http.get(f"{url}/config").raise_for_status().json()
        self._values = {c["id"]: c["props"].get("value") for c in config["components"]}
        self._named = {c["props"].get("elem_id"): c["id"] for c in config["components"]}
        self._events = [event for event in config["dependencies"] if event["backend_fn"]]

    def body(self, name: str, trigger: str = "click", *, queued: bool = True, **changed: Any) -> dict[str, Any]:
        """Of what a trigger of a component leads to, the event that reads most of the page, with its values.

        Args:
            name: of the component.
            trigger: of what happens to it.
            queued: whether the event waits in the queue.
            changed: values by name, with ``__`` for a hyphen.
        """
        chain = [e for e in self._events if [self._named[name], trigger] in e["targets"]]
        for event in chain:
            chain += [e for e in self._events if e["trigger_after"] == event["id"] and e not in chain]
        event = max((e for e in chain if (e["queue"] is not False) == queued), key=lambda e: len(e["inputs"]))
        values = self._values | {self._named[key.replace("__", "-")]: value for key, value in changed.items()}
        return {"fn_index": event["id"], "data": [values[i] for i in event["inputs"]]}


@dataclass
class Flood:
    """What a flood has at hand.

    Attributes:
        url: of the app's API.
        address: where the flood comes from.
        page: of the app.
        http: sends requests.
        answers: how often which status was answered, or how often connections were made and cut off.
    """

    url: str
    address: str
    page: Page
    http: httpx.AsyncClient
    answers: Counter[str] = field(default_factory=Counter)

    async def post(self, path: str, body: dict[str, Any] | bytes) -> httpx.Response | None:
        """Send JSON; None where no answer came."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kinds = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return await self._answered(self.http.post(self.url + path, content=content, headers=kinds))

    async def follow(self, path: str) -> None:
        """Read a stream to its end."""
        try:
            async with self.http.stream("GET", self.url + path) as answer:
                self.answers[str(answer.status_code)] += 1
                async for _ in answer.aiter_bytes():
                    pass
        except httpx.HTTPError:
            await self._cut_off()

    async def upload(self, content: bytes) -> None:
        """Send a file."""
        await self._answered(self.http.post(f"{self.url}/upload", files={"files": (uuid4().hex, content)}))

    async def hold(self, beginning: bytes, more: bytes) -> None:
        """Connect, send the beginning of a request, and go on a little each second for as long as one is let."""
        with contextlib.suppress(OSError):
            parts = urlsplit(self.url)
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port, local_addr=(self.address, 0)
            )
            writer.write(beginning)
            self.answers["connected"] += 1
            while not reader.at_eof():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await reader.read(1)
                writer.write(more)
                await writer.drain()
        await self._cut_off()

    async def _answered(self, sending: Awaitable[httpx.Response]) -> httpx.Response | None:
        try:
            answer = await sending
        except httpx.HTTPError:
            await self._cut_off()
            return None
        self.answers[str(answer.status_code)] += 1
        return answer

    async def _cut_off(self) -> None:
        """A connection ended before its time; the next one comes a second later: the flood is what is held."""
        self.answers["cut off"] += 1
        await asyncio.sleep(1)


async def _call(flood: Flood) -> None:
    answer = await flood.post("/call/v2/run", {"prompt": PROMPT, "pair": UNLOADED})
    if answer is not None and answer.status_code == 200:
        await flood.follow(f"/call/run/{answer.json()['event_id']}")


async def _save(flood: Flood) -> None:
    await flood.post("/queue/join", {**flood.page.body("save-json"), "session_hash": flood.address})


async def _saves(flood: Flood) -> None:
    """101 saves of one recording, and its opening before them."""
    await flood.post("/queue/join", {**flood.page.body("recording-1"), "session_hash": flood.address})
    await asyncio.gather(flood.follow(f"/queue/data?session_hash={flood.address}"), *_times(101, _save, flood))


async def _look(flood: Flood) -> None:
    body = flood.page.body("pair", "change", pair=UNLOADED)
    await flood.post("/queue/join", {**body, "session_hash": uuid4().hex})


async def _heartbeat(flood: Flood) -> None:
    await flood.follow(f"/heartbeat/{uuid4().hex}")


async def _half_head(flood: Flood) -> None:
    await flood.hold(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"x")


async def _connection(flood: Flood) -> None:
    await flood.hold(b"", b"")


async def _small_file(flood: Flood) -> None:
    await flood.upload(b"x")


async def _large_file(flood: Flood) -> None:
    await flood.upload(b" " * 5_900_000)


async def _largest_body(flood: Flood) -> None:
    await flood.post("/call/race", {"data": ["x" * 980_000, [{"gamma": 99}] * 900]})


async def _million_lanes(flood: Flood) -> None:
    await flood.post("/call/race", b'{"data": ["x", [' + b"{}," * 1_000_000 + b"{}]]}")


async def _quiet_event(flood: Flood) -> None:
    body = flood.page.body("panel-look", queued=False)
    await flood.post("/run/predict", {**body, "session_hash": uuid4().hex})


async def _agent(flood: Flood) -> None:
    await flood.post("/mcp/", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


async def _config(flood: Flood) -> None:
    await flood.follow("/../config")


def _times(count: int, one: Callable[[Flood], Awaitable[None]], flood: Flood) -> list[Awaitable[None]]:
    return [one(flood) for _ in range(count)]


FLOODS: dict[str, tuple[int, Callable[[Flood], Awaitable[None]]]] = {
    "runs of a pair that is not loaded": (70, _call),
    "queued saves": (1, _saves),
    "fresh sessions that choose a pair": (116, _look),
    "connections held open": (600, _connection),
    "half-sent heads": (600, _half_head),
    "heartbeats": (600, _heartbeat),
    "small files": (8, _small_file),
    "large files": (8, _large_file),
    "the largest bodies": (8, _largest_body),
    "races of a million lanes": (8, _million_lanes),
    "events of fresh sessions": (64, _quiet_event),
    "the page's description": (16, _config),
    "agents (MCP)": (60, _agent),
}
"""By name: so many at once, each again as soon as it has ended."""


_begun: Event
_over: Event


def adopt(begun: Event, over: Event) -> None:
    """Run first in the process that floods: what it sets as a flood goes on, and what tells it to end one."""
    global _begun, _over
    _begun, _over = begun, over


def flood(url: str, name: str, address: str) -> Counter[str]:
    """Flood the app until told to end; returns how often what was answered."""

    async def play() -> Counter[str]:
        with httpx.Client(transport=httpx.HTTPTransport(local_address=address), timeout=PATIENCE) as http:
            page = Page(http, url)
        limits = httpx.Limits(max_connections=None)
        transport = httpx.AsyncHTTPTransport(local_address=address, limits=limits)
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE) as client:
            at_once, one = FLOODS[name]
            flooding = Flood(f"{url}/gradio_api", address, page, client)

            async def again() -> None:
                while not _over.is_set():
                    await one(flooding)

            tasks = [asyncio.create_task(again()) for _ in range(at_once)]
            _begun.set()
            await asyncio.to_thread(_over.wait, LONGEST_SECONDS)
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended
        return flooding.answers

    return asyncio.run(play())


def visit(url: str) -> tuple[float, float]:
    """Seconds until a visitor has the page, and from Run to its end."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=VISITOR), timeout=PATIENCE) as http:
        began = time.perf_counter()
        http.get(url).raise_for_status()
        page = Page(http, url)
        opened = time.perf_counter() - began
        api, session = f"{url}/gradio_api", {"session_hash": uuid4().hex}
        length = {"prompt": PROMPT, "max__tokens": TOKENS, "ignore__eos": True}
        with http.stream("GET", f"{api}/heartbeat/{session['session_hash']}") as beat:
            next(beat.iter_lines())
            began = time.perf_counter()
            pressed = page.body("run", queued=False, **length) | session
            http.post(f"{api}/run/predict", json=pressed).raise_for_status()
            http.post(f"{api}/queue/join", json=page.body("run", **length) | session).raise_for_status()
            with http.stream("GET", f"{api}/queue/data", params=session) as news:
                *_, last = (line for line in news.iter_lines() if "process_completed" in line)
    if '"done"' not in last:
        raise RuntimeError(f"the visitor's run did not end: {last[:500]}")
    return opened, time.perf_counter() - began


@contextmanager
def hanging_hub() -> Iterator[str]:
    """The address of a hub that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        held = []

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class Flooder:
    """A process that floods an app."""

    def __init__(self, url: str) -> None:
        context = get_context("spawn")
        self._url, self._begun, self._over, self._addresses = url, context.Event(), context.Event(), count(1)
        self._process = ProcessPoolExecutor(1, context, adopt, (self._begun, self._over))

    def __enter__(self) -> Flooder:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._process.shutdown()

    def beside(self, name: str, visits: int) -> dict[str, Any]:
        """A visitor's waits beside a flood, and what the flood was answered."""
        self._begun.clear()
        self._over.clear()
        # Each time from another address, so that none has to wait for what an earlier one asked for.
        flooding = self._process.submit(flood, self._url, name, FLOODERS.format(next(self._addresses)))
        while not self._begun.wait(0.1) and not flooding.done():
            pass
        time.sleep(LEAD_SECONDS)
        try:
            found = waits(self._url, visits)
        finally:
            self._over.set()
        print(f"floods: {name}", file=sys.stderr, flush=True)
        return {"flood": name, **found, "answers": dict(flooding.result())}


def waits(url: str, visits: int) -> dict[str, Any]:
    """A visitor's waits, for the page and for a run."""
    pages, runs = zip(*(visit(url) for _ in range(visits)), strict=True)
    return {"page": pages, "run": runs}


def measure(args: Args) -> Results:
    """All figures as plain data."""
    with TemporaryDirectory() as files, hanging_hub() as hub:
        own = {"SPECDEMO_PUBLIC": "1", "HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0", "HF_HOME": files}
        with app_process(args.port, GRADIO_TEMP_DIR=files, **own) as (url, _), Flooder(url) as flooder:
            visit(url)  # loads the pair
            rows = [{"flood": "none", **waits(url, args.visits), "answers": {}}]
            rows += [flooder.beside(name, args.visits) for name in args.floods]
    return {**head(args, torch.device("cpu"), "visits"), "floods": rows}


def table(found: Results) -> str:
    """The results for people."""
    rows = [
        {**row, **{f"{what}_{how.__name__}": how(row[what]) for what in ("page", "run") for how in (median, max)}}
        for row in found["floods"]
    ]
    formats = {
        "flood": "{flood}",
        "page": "{page_median:.2f} s",
        "worst page": "{page_max:.2f} s",
        "run": "{run_median:.2f} s",
        "worst run": "{run_max:.2f} s",
        "the flood was answered": "{answers}",
    }
    worst = max(max(*row["page"], *row["run"]) for row in rows)
    return f"{columns(formats, rows)}\n{verdict(worst < MOST_SECONDS, f'the longest wait was {worst:.2f} s')}"


if __name__ == "__main__":
    run_bench("floods", __doc__, measure, table, floods=list(FLOODS), visits=5, port=7897)
