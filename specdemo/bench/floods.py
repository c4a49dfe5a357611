"""``python -m specdemo.bench.floods``: how long does a visitor of a public page wait while one address floods it?

The app runs in a process of its own, in public mode, on the builtin pair, and so does the program that floods it,
each time from another address; the hub that both would ask takes connections and never answers. A visitor from one
more address opens the page and has 16 tokens decoded, again and again; it waits for the page, and then for the end
of its run. All stays on this machine, which must take any address of 127.0.0.0/8 for its own, as Linux does.
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
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx

from specdemo.bench.harness import Args, Results, app_process, columns, run_bench, verdict
from specdemo.models.request import catalog

VISITOR, FLOODERS = "127.0.0.2", "127.0.1.{}"
RUN = {"prompt": "Write a story about a lighthouse keeper."}
SHORT = {"settings": {"max_new_tokens": 16, "ignore_eos": True}}
LEAD_SECONDS = 3.0
"""A flood goes on for so long before the visitor comes."""
MOST_SECONDS = 2.0
"""That the visitor may wait."""
PATIENCE = 60.0
UNLOADED = next(entry.id for entry in catalog().values() if not entry.id.startswith("builtin"))
API = "/gradio_api"
LARGE_CALL = json.dumps({"data": ["x" * 980_000, [{"gamma": 99}] * 900]}).encode()
MANY_LANES = b'{"data": ["x", [' + b"{}," * 1_000_000 + b"{}]]}"
AGENT = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@dataclass
class Client:
    """One of many that flood at once; what it does, it does again as soon as that has ended.

    Attributes:
        address: where it comes from.
        config: Gradio's description of the page.
        answers: how often which status was answered, or how often connections were made and cut off.
    """

    url: str
    address: str
    config: dict[str, Any]
    http: httpx.AsyncClient
    answers: Counter[str] = field(default_factory=Counter)

    async def event(self, name: str, trigger: str, queued: bool, session: str = "", **changed: Any) -> None:
        """Send what a page, or a fresh one, does when this happens to a component; ``changed``: values by name."""
        named = {c["props"].get("elem_id"): c["id"] for c in self.config["components"]}
        events = [e for e in self.config["dependencies"] if e["backend_fn"]]
        chain = [e for e in events if [named[name], trigger] in e["targets"]]
        for event in chain:
            chain += [e for e in events if e["trigger_after"] == event["id"] and e not in chain]
        event = max((e for e in chain if (e["queue"] is not False) == queued), key=lambda e: len(e["inputs"]))
        values = {c["id"]: c["props"].get("value") for c in self.config["components"]}
        values |= {named[key]: value for key, value in changed.items()}
        data, session = [values[i] for i in event["inputs"]], session or uuid4().hex
        body = json.dumps({"fn_index": event["id"], "data": data, "session_hash": session}).encode()
        await self.send(f"{API}/queue/join" if queued else f"{API}/run/predict", body)

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        """Counts a connection that is cut off; the next comes a second later: the flood is what is held."""
        try:
            yield
        except (httpx.HTTPError, OSError):
            self.answers["cut off"] += 1
            await asyncio.sleep(1)

    async def send(self, path: str, body: bytes | None = None, **options: Any) -> bytes:
        """Get an address, or post JSON to it, and read the answer to its end."""
        if body is not None:
            kinds = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            options |= {"content": body, "headers": kinds}
        async with self._counted():
            method = "POST" if options else "GET"
            async with self.http.stream(method, self.url + path, **options) as answer:
                self.answers[str(answer.status_code)] += 1
                return await answer.aread()
        return b""

    async def upload(self, size: int) -> None:
        await self.send(f"{API}/upload", files={"files": (uuid4().hex, b" " * size)})

    async def call(self) -> None:
        answer = await self.send(f"{API}/call/v2/run", json.dumps(RUN | {"pair": UNLOADED}).encode())
        if b"event_id" in answer:
            await self.send(f"{API}/call/run/{json.loads(answer)['event_id']}")

    async def save(self) -> None:
        await self.event("recording-1", "click", True, self.address)
        saves = (self.event("save-json", "click", True, self.address) for _ in range(101))
        await asyncio.gather(self.send(f"{API}/queue/data?session_hash={self.address}"), *saves)

    async def hold(self, beginning: bytes, more: bytes) -> None:
        """Connect, send the beginning of a request, and go on a little each second for as long as one is let."""
        parts, local = urlsplit(self.url), (self.address, 0)
        async with self._counted():
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, local_addr=local)
            self.answers["connected"] += 1
            writer.write(beginning)
            while not reader.at_eof():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await reader.read(1)
                writer.write(more)
                await writer.drain()
            raise ConnectionError


FLOODS: dict[str, tuple[int, Callable[[Client], Any]]] = {
    "none": (0, Client.call),
    "runs of a pair that is not loaded": (70, Client.call),
    "queued saves": (1, Client.save),
    "fresh sessions that choose a pair": (116, lambda client: client.event("pair", "change", True, pair=UNLOADED)),
    "connections held open": (600, lambda client: client.hold(b"", b"")),
    "half-sent heads": (600, lambda client: client.hold(HALF_HEAD, b"x")),
    "heartbeats": (600, lambda client: client.send(f"{API}/heartbeat/{uuid4().hex}")),
    "small files": (8, lambda client: client.upload(1)),
    "large files": (8, lambda client: client.upload(5_900_000)),
    "the largest bodies": (8, lambda client: client.send(f"{API}/call/race", LARGE_CALL)),
    "races of a million lanes": (8, lambda client: client.send(f"{API}/call/race", MANY_LANES)),
    "events of fresh sessions": (64, lambda client: client.event("panel-look", "click", False)),
    "the page's description": (16, lambda client: client.send("/config")),
    "agents (MCP)": (60, lambda client: client.send(f"{API}/mcp/", AGENT)),
}
"""By name: so many clients at once, and what each does."""


def flood(url: str, name: str, address: str, seconds: float) -> Counter[str]:
    """Flood the app for a time; returns how often what was answered."""
    at_once, act = FLOODS[name]

    async def play() -> Counter[str]:
        transport = httpx.AsyncHTTPTransport(local_address=address, limits=httpx.Limits(max_connections=None))
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE) as http:
            client = Client(url, address, (await http.get(f"{url}/config")).raise_for_status().json(), http)

            async def again() -> None:
                while True:
                    await act(client)

            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds), asyncio.TaskGroup() as clients:
                    for _ in range(at_once):
                        clients.create_task(again())
                    await asyncio.sleep(seconds)
        return client.answers

    return asyncio.run(play())


def visit(url: str) -> tuple[float, float]:
    """Seconds until a visitor has the page, and from its call for a run to the end of that."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=VISITOR), timeout=PATIENCE) as http:
        began = time.perf_counter()
        http.get(url).raise_for_status()
        http.get(f"{url}/config").raise_for_status()
        opened = time.perf_counter()
        call = http.post(f"{url}{API}/call/v2/run", json=RUN | SHORT).raise_for_status()
        ended = http.get(f"{url}{API}/call/run/{call.json()['event_id']}").raise_for_status().text
    if "event: complete" not in ended:
        raise RuntimeError(f"the visitor's run did not end: {ended[:500]}")
    return opened - began, time.perf_counter() - opened


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


def measure(args: Args) -> Results:
    rows = []
    with TemporaryDirectory() as files, hanging_hub() as hub:
        own = {"SPECDEMO_PUBLIC": "1", "HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0", "HF_HOME": files}
        fresh = ProcessPoolExecutor(1, get_context("spawn"))
        with app_process(args.port, GRADIO_TEMP_DIR=files, **own) as url, fresh as flooder:
            visit(url)  # loads the pair
            flooder.submit(flood, url, "none", VISITOR, 0.0).result()  # starts the process
            for number, name in enumerate(args.floods, 1):
                # Each time from another address, so that none has to wait for what an earlier one asked for.
                address, seconds = FLOODERS.format(number), LEAD_SECONDS + args.seconds
                flooding, began = flooder.submit(flood, url, name, address, seconds), time.monotonic()
                time.sleep(LEAD_SECONDS)
                visits = [visit(url)]
                while time.monotonic() - began < seconds - MOST_SECONDS:
                    visits.append(visit(url))
                pages, runs = zip(*visits, strict=True)
                rows.append({"flood": name, "page": pages, "run": runs, "answers": dict(flooding.result())})
                print(f"floods: {name}", file=sys.stderr, flush=True)
    return {"floods": rows}


def table(found: Results) -> str:
    rows = [
        {**row, **{what: f"{median(row[what]):.2f} s, worst {max(row[what]):.2f}" for what in ("page", "run")}}
        for row in found["floods"]
    ]
    formats = {"flood": "{flood}", "page": "{page}", "run": "{run}", "the flood was answered": "{answers}"}
    worst = max(max(*row["page"], *row["run"]) for row in found["floods"])
    return f"{columns(formats, rows)}\n{verdict(worst < MOST_SECONDS, f'the longest wait was {worst:.2f} s')}"


if __name__ == "__main__":
    run_bench("floods", __doc__, measure, table, floods=list(FLOODS), seconds=12.0, port=7897)
