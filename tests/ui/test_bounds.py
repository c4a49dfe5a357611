"""What one request may send, what is kept of visitors, and whose address a request has; without an app."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
import uvicorn
from gradio.route_utils import FileUploadProgress
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from specdemo.errors import SpecDemoError
from specdemo.models.request import ASSETS, request_pair
from specdemo.recording import Recording
from specdemo.settings import Settings
from specdemo.ui.api import addresses, gate
from specdemo.ui.api import visitors as keeping
from specdemo.ui.api.addresses import Addresses, BoundedConnection, own_hosts, trust_proxies
from specdemo.ui.api.gate import EVENTS, FORM, OPEN, Gate
from specdemo.ui.api.visitors import Visitors
from specdemo.ui.jobs.job import LaneRequest
from specdemo.ui.jobs.limits import PUBLIC
from specdemo.ui.jobs.race import race_job
from specdemo.ui.jobs.session_recordings import HISTORY, SessionRecordings
from specdemo.ui.jobs.worker import StopSignals

BODY, FILE = 30_000, 50_000
LIMITS = replace(PUBLIC, body=BODY, upload=FILE - FORM)


class Events:
    """Of Gradio's queue, what is counted: the events that wait, by group, and those that run."""

    def __init__(self) -> None:
        self.event_queue_per_concurrency_id: dict[str, Any] = {}
        self.active_jobs: list[Any] = [None]
        self.pending_messages_per_session: dict[str, Any] = {"open": None}
        self.pending_event_ids_session = {"open": {"answered"}}
        self.event_ids_to_events = {"running": None}
        self.default_concurrency_limit = 1

    def add(self, address: str, group: str) -> None:
        """One more that waits."""
        request = SimpleNamespace(scope={"client": (address, 1)})
        queue = self.event_queue_per_concurrency_id.setdefault(group, SimpleNamespace(queue=[]))
        queue.queue.append(SimpleNamespace(concurrency_id=group, request=request))


def app_of(endpoint: Callable[[Request], Any], *middleware: Middleware) -> Starlette:
    """An app with all addresses, and of a Gradio page what the gate looks at."""
    app = Starlette(routes=[Route("/{path:path}", endpoint, methods=["GET", "POST"])], middleware=middleware)
    events = {
        1: SimpleNamespace(api_name="run", concurrency_id="run", concurrency_limit=None, queue=True),
        2: SimpleNamespace(api_name=None, concurrency_id="looks", concurrency_limit=16, queue=True),
        3: SimpleNamespace(api_name=None, concurrency_id="saves", concurrency_limit=1, queue=True),
        4: SimpleNamespace(api_name=None, concurrency_id="quiet", concurrency_limit="default", queue=False),
    }
    app.blocks = SimpleNamespace(fns=events, _queue=Events(), upload_file_set=set())  # type: ignore[attr-defined]
    return app


async def tell(request: Request) -> JSONResponse:
    """What came through."""
    body = await request.body()
    peer = request.client and request.client.host
    return JSONResponse({"bytes": len(body), "peer": peer, "headers": sorted(request.headers)})


def of(app: Any, peer: str = "192.0.2.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(peer, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://app/gradio_api", timeout=10)


def bound(*, shared: bool = False, **options: Any) -> Middleware:
    return Middleware(Gate, limits=replace(LIMITS, **options), shared=shared)


def ask(
    path: str, *middleware: Middleware, method: str = "GET", peer: str = "192.0.2.1", **sent: Any
) -> httpx.Response:
    """What an app with this middleware, the gate if none is given, answers to one request."""

    async def asked() -> httpx.Response:
        async with of(app_of(tell, *(middleware or [bound()])), peer) as http:
            return await http.request(method, path, **sent)

    return asyncio.run(asked())


def send(path: str, content: Any, **headers: str) -> httpx.Response:
    return ask(path, method="POST", content=content, headers=headers)


def chunked(body: bytes) -> Any:
    async def chunks() -> Any:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    return chunks()


@pytest.mark.parametrize("path", ["call/race", "queue/join", "run/upload", "mcp/"])
def test_no_body_is_larger_than_the_bound_on_any_way(path: str) -> None:
    """With its length said and in chunks; a file's own bound is for the address of files alone."""
    text = json.dumps({"data": "x" * (BODY - 50), "session_hash": "s"}).encode()
    assert send(path, text).json()["bytes"] == len(text)
    for content in (text + b" " * 100, chunked(text + b" " * 100), chunked(b"x" * 3 * BODY)):
        answer = send(path, content)
        assert answer.status_code == 413
        assert answer.json() == {"detail": "This request is too large: at most 30,000 bytes are taken here."}


@pytest.mark.parametrize(
    ("value", "status", "said"),
    [
        ({"data": ["x", [{}] * 1990]}, 200, ""),
        ({"data": ["x", [{}] * 2000]}, 413, "2,000 values"),
        ({"data": json.loads("[" * 60 + "]" * 60)}, 413, "40 deep"),
        (b"[" * 9000 + b"]" * 9000, 400, "JSON"),
        (b'{"data": [1' + b"0" * 9000 + b"]}", 400, "JSON"),
        ({"data": [], "session_hash": "s" * 101}, 414, "name of its session"),
        ({"fn_index": -1, "data": []}, 422, "not one that the page sends"),
        ({"component_id": 10**400}, 422, "not one that the page sends"),
        ({"data": [["x"]], "batched": True}, 422, "not one that the page sends"),
        ({"jsonrpc": "2.0", "id": "i" * 101}, 414, "too long"),
    ],
)
def test_what_costs_much_within_the_bound_is_refused_too(value: Any, status: int, said: str) -> None:
    """Many values, deep ones, numbers without end: before anything is built of them."""
    answer = send("call/race", value if isinstance(value, bytes) else json.dumps(value).encode())
    assert answer.status_code == status
    assert said in answer.text
    assert len(answer.text) < 200


def test_a_call_past_the_queue_names_its_session() -> None:
    """Without one Gradio builds a whole one for it, which takes twenty times as long as the call."""
    for session in (None, "", 5):
        assert send("run/predict", json.dumps({"data": [], "session_hash": session}).encode()).status_code == 422


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/gradio_api/upload_progress?upload_id=" + "x" * 3000, 414),
        ("/?prompt=" + "x" * 6000, 200),
        ("/?prompt=" + "x" * 65_000, 414),
        ("/static/" + "é" * 128, 414),
    ],
)
def test_addresses_of_requests_are_short_but_those_of_links_need_not_be(path: str, status: int) -> None:
    """What Gradio keeps by a name in the address cannot be long; a link to the page can."""
    assert ask(f"http://app{path}").status_code == status


def test_a_file_has_its_own_bound_and_comes_alone() -> None:
    """A request with many small files is refused before one is written."""

    def post(files: Any) -> int:
        return ask("upload", method="POST", files=files).status_code

    assert post({"files": ("x", b"x" * (FILE - 1000))}) == 200
    assert post({"files": ("x", b"x" * FILE)}) == 413
    assert post([("files", (f"{n}", b"x")) for n in range(10)]) == 413
    parts = 9 * b'--b\r\nContent-Disposition: form-data; name="files"; filename="f"\r\n\r\nx\r\n'
    for said in ("boundary=b; charset=utf-8", 'boundary="b"; x=y', "BOUNDARY=b"):
        kind = {"content-type": f"multipart/form-data; {said}"}
        assert send("upload", b"\r\n" + parts + b"--b--\r\n", **kind).status_code == 413, said


def test_bodies_under_way_are_bounded_by_address_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-sent bodies fill no memory, and not for long; those of one address, or files, are in nobody's way."""
    monkeypatch.setattr(gate, "SECONDS", 0.3)
    monkeypatch.setattr(gate, "AT_ONCE", 0.125)
    small = b"1" * 300

    async def stuck() -> Any:
        yield b"1" * 900
        await asyncio.sleep(5)

    async def statuses(first: str) -> list[int]:
        app = app_of(tell, bound())
        async with of(app) as one, of(app, "192.0.2.2") as other:
            going = asyncio.create_task(one.post(first, content=stuck()))
            await asyncio.sleep(0.1)
            now = [(await http.post("call/run", content=small)).status_code for http in (one, other)]
            return [*now, (await going).status_code, (await one.post("call/run", content=small)).status_code]

    assert asyncio.run(statuses("call/run")) == [503, 200, 408, 200]
    assert asyncio.run(statuses("upload")) == [200, 200, 408, 200]


def test_who_floods_waits_is_refused_and_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that waits is in memory, so none waits long; pages and schemas are built for each who asks."""
    now, waited = [0.0], []
    monkeypatch.setattr(gate, "monotonic", lambda: now[0])

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(gate.asyncio, "sleep", wait)

    async def play() -> None:
        app = app_of(tell, bound(body=10**7, upload=10**8, shared=True))

        async def asked(peer: str, path: str, content: bytes | None = None) -> tuple[int, bool]:
            """The status of an answer, and whether it was waited for."""
            waited.clear()
            async with of(app, peer) as http:
                answer = await http.request("GET" if content is None else "POST", path, content=content)
            return answer.status_code, any(seconds > 0 for seconds in waited)

        large = b"1" + b" " * 4_000_000
        flood = [await asked("192.0.2.1", "call/run", large) for _ in range(3)]
        assert [status for status, _ in flood] == [200, 429, 429]
        for path in ("/", "/config", "/gradio_api/mcp/schema"):
            assert await asked("192.0.2.1", f"http://app{path}") == (200, True)
        assert await asked("192.0.2.1", "http://app/assets/x.js") == (200, False), "no asset waits"
        assert await asked("192.0.2.2", "call/run", b"1") == (200, False)
        now[0] += 1000
        assert await asked("192.0.2.1", "call/run", b"1") == (200, False), "the debt is paid"

    asyncio.run(play())


@pytest.mark.parametrize(
    ("path", "fields", "group", "places"),
    [
        ("call/run", {}, "run", EVENTS),
        ("queue/join", {"fn_index": 2}, "looks", 4),
        ("run/predict", {"fn_index": 4, "session_hash": "s"}, "other", EVENTS),
        ("mcp/", {"method": "tools/list"}, "mcp", 4),
    ],
)
def test_an_address_has_its_share_of_events_and_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, path: str, fields: dict[str, Any], group: str, places: int
) -> None:
    """Before anything is loaded, looked up or queued; others, also of its neighbours, have their own."""
    monkeypatch.setattr(gate, "PATIENCE", 0.2)
    monkeypatch.setattr(gate, "LOOK_SECONDS", 0.02)
    peers = ("2001:db8::1", "2001:db8::9", "2001:db8:0:1::1")
    body = json.dumps({"data": [], **fields})

    async def play() -> None:
        app = app_of(tell, bound(shared=True))
        queue = app.blocks._queue
        for _ in range(places):
            queue.add("2001:db8::5", group)
        found = []
        for peer in peers:
            async with of(app, peer) as http:
                found.append((await http.post(path, content=body)).status_code)
        assert found == [429, 429, 200]
        async with of(app, peers[0]) as http:
            assert (await http.post("cancel", content="{}")).status_code == 200, "Stop needs no place"
            waiting = asyncio.create_task(http.post(path, content=body))
            await asyncio.sleep(0.05)
            queue.event_queue_per_concurrency_id[group].queue.pop()
            assert (await waiting).status_code == 200

    asyncio.run(play())


def test_events_that_come_at_once_have_no_more_places() -> None:
    """Guards the count against those that are on their way to the queue."""
    under_way, most = [], []

    async def slow(request: Request) -> JSONResponse:
        under_way.append(request)
        most.append(len(under_way))
        await asyncio.sleep(0.01)
        under_way.remove(request)
        return JSONResponse({})

    async def play() -> list[int]:
        async with of(app_of(slow, bound(shared=True))) as http:
            body = json.dumps({"data": [], "fn_index": 2})
            return [
                a.status_code
                for a in await asyncio.gather(*(http.post("queue/join", content=body) for _ in "123456"))
            ]

    assert asyncio.run(play()) == [200] * 6
    assert max(most) == 4


def test_who_listens_for_what_there_is_not_is_told_so() -> None:
    """Gradio would begin an answer, cut it off, and write eighty lines into the log."""
    there = ("queue/data?session_hash=open", "call/run/running", "call/v2/run/answered")
    assert [ask(path).status_code for path in there] == [200] * 3
    for path in ("queue/data?session_hash=zz1", "queue/data", "call/run/zz1"):
        answer = ask(path)
        assert answer.status_code == 404
        assert "no event of this name" in answer.json()["detail"]


def test_requests_that_stay_open_are_bounded_by_address() -> None:
    """Heartbeats and streams; whoever has too many is told so, and others are not."""

    async def play() -> list[int]:
        over, beating = asyncio.Event(), []

        async def stay(request: Request) -> JSONResponse:
            if "heartbeat" in request.url.path:
                beating.append(request)
                await over.wait()
            return JSONResponse({})

        app = app_of(stay, bound(shared=True))
        async with of(app) as one, of(app, "192.0.2.2") as other:
            beats = [asyncio.create_task(one.get(f"heartbeat/{n}")) for n in range(OPEN)]
            while len(beating) < OPEN:
                await asyncio.sleep(0.01)
            found = [(await http.get("queue/data?session_hash=open")).status_code for http in (one, other)]
            over.set()
            await asyncio.gather(*beats)
            return [*found, (await one.get("queue/data?session_hash=open")).status_code]

    assert asyncio.run(play()) == [429, 200, 200]


def test_heads_that_do_not_end_and_connections_without_number_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a head, the first or a later one, would wait for ever; an answer may take its time."""
    monkeypatch.setattr(addresses, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(addresses, "CONNECTIONS", 6)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "")

    async def slow(request: Request) -> JSONResponse:
        await asyncio.sleep(1.0 if request.url.path == "/slow" else 0)
        return JSONResponse({})

    async def play() -> None:
        config = uvicorn.Config(app_of(slow), port=0, log_level="warning")
        config.load()
        config.http_protocol_class = BoundedConnection
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]

        async def opened(text: str, local: str = "127.0.0.1") -> tuple[asyncio.StreamReader, Any]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(local, 0))
            writer.write(text.encode())
            return reader, writer

        get = "GET {} HTTP/1.1\r\nHost: localhost\r\n"
        silent, half = await opened(""), await opened(get.format("/"))
        again, whole = await opened(get.format("/") + "\r\n"), await opened(get.format("/slow") + "\r\n")
        assert b"200 OK" in await again[0].readuntil(b"{}")
        again[1].write(b"GET /half")
        assert b"200 OK" in await whole[0].readuntil(b"{}"), "an answer may take its time"
        for reader, _ in (silent, half, again):
            await ended(reader)
        whole[1].close()
        many = [await opened(get.format("/slow") + "\r\n") for _ in range(6)]
        await ended((await opened(get.format("/") + "\r\n"))[0])
        other = await opened(get.format("/") + "\r\n", "127.0.0.2")
        assert b"200 OK" in await other[0].readuntil(b"{}")
        for _, writer in (*many, other):
            writer.close()
        server.should_exit = True
        await running

    asyncio.run(asyncio.wait_for(play(), 30))


async def ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(1), 5) == b""


@pytest.mark.parametrize(
    ("limits", "peers", "statuses"),
    [
        ({"files": 3}, ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"], [200, 200, 200, 507]),
        ({"uploads": 1000}, ["192.0.2.1", "192.0.2.2", "192.0.2.3"], [200, 200, 507]),
        ({"files": 100}, [*["192.0.2.1"] * 11, "192.0.2.2"], [*[200] * 10, 507, 200]),
    ],
    ids=["number", "bytes", "share"],
)
def test_files_within_an_hour_are_bounded(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], peers: list[str], statuses: list[int]
) -> None:
    """In number, in bytes, and of one address: its small files would keep everybody else's out."""
    now = [0.0]
    monkeypatch.setattr(gate, "monotonic", lambda: now[0])

    async def sent() -> list[int]:
        app, found = app_of(tell, bound(**limits)), []
        for peer in [*peers, *peers]:
            now[0] += gate.KEPT_SECONDS + 1 if len(found) == len(peers) else 0
            async with of(app, peer) as http:
                found.append((await http.post("upload", content=b"x" * 400)).status_code)
        return found

    assert asyncio.run(sent()) == [*statuses, *statuses]


# --- what is kept of visitors -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.load(ASSETS / "recordings" / "1-data.json")


def test_recordings_of_all_visitors_are_bounded_and_come_back_as_they_were(recording: Recording) -> None:
    """The oldest go; what is kept is exact."""
    probe = SessionRecordings(10**9)
    probe.keep("a", recording)
    kept = SessionRecordings(int(2.5 * probe.size))
    for session in "abcb":
        kept.keep(session, recording)
    assert [kept.get(session) for session in "abc"] == [None, recording, recording]


def test_the_history_of_a_visit_is_bounded_and_its_own(recording: Recording) -> None:
    """Runs stay to be looked at again, what was only opened does not, and nobody sees another's."""
    kept = SessionRecordings(10**9)
    for number in range(HISTORY + 2):
        kept.leave_current("a")
        kept.keep("a", recording, {"prompt": str(number)})
    kept.keep("a", recording)
    runs = kept.history("a")
    assert [run["prompt"] for run in runs] == [str(n) for n in range(HISTORY + 1, 1, -1)]
    assert not any(run["current"] for run in runs)
    assert kept.look_back("b", runs[0]["number"]) is None
    assert kept.look_back("a", runs[-1]["number"]) == recording
    assert [run["current"] for run in kept.history("a")] == [False] * (len(runs) - 1) + [True]
    kept.leave_current("a")
    assert (kept.get("a"), len(kept.history("a"))) == (None, len(runs))
    kept.forget("a")
    assert (kept.size, kept.sessions()) == (0, set())


def test_only_the_visitors_own_outputs_of_the_pair_for_other_prompts_are_copied_from(recording: Recording) -> None:
    """Guards the earlier outputs of suffix decoding: a secret of somebody else would show in how fast it comes."""
    kept = SessionRecordings(10**9)
    lane = LaneRequest(Settings(drafter="suffix"), request_pair("builtin"))
    kept.keep("a", recording, {})
    outputs = {tuple(trace.token_ids) for trace in recording.traces}
    assert {*race_job("another prompt", [lane]).after(kept.runs("a")).earlier} == outputs
    assert not race_job("another prompt", [lane]).after(kept.runs("b")).earlier
    assert not race_job(recording.prompt or "", [lane]).after(kept.runs("a")).earlier
    elsewhere = replace(recording, traces=tuple(replace(t, pair="another") for t in recording.traces))
    kept.keep("c", elsewhere, {})
    assert not race_job("another prompt", [lane]).after(kept.runs("c")).earlier


class Queue:
    """Of Gradio, what the visitors' belongings hang on."""

    def __init__(self) -> None:
        self.pending_event_ids_session: dict[str, set[str]] = {}
        self.cleaned: list[str] = []

    async def clean_events(self, *, session_hash: str) -> None:
        self.cleaned.append(session_hash)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(keeping, "file_upload_statuses", FileUploadProgress())
    with gr.Blocks() as page:
        gr.Textbox()
    page._queue = Queue()  # type: ignore[assignment]
    page.state_session_capacity = 4
    return page


def test_nothing_of_a_visitor_outlives_what_gradio_keeps_of_them(
    page: Any, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where a session was never heard of again, nor where it had to make room; whatever the clock says."""
    now = [0.0]
    monkeypatch.setattr(keeping, "monotonic", lambda: now[0])
    stops, recordings = StopSignals(), SessionRecordings(10**9)
    kept = Visitors(page, [stops, recordings], PUBLIC)
    for session in "dabcef":
        now[0] += (PUBLIC.idle + 1) * (session == "a")
        assert page.state_holder[session] is not None
        stops.arm(session, "race")
        recordings.keep(session, recording)
    page.state_session_capacity = 5
    page.state_holder.time_last_used["f"] -= timedelta(seconds=2 * PUBLIC.idle)  # summer time begins
    asyncio.run(kept.tidy())
    assert recordings.sessions() == stops.sessions() == {*page.state_holder.session_data} == {*"bcef"}


def test_answers_that_nobody_fetches_go_by_size_and_by_age(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest unasked for first, and never one that somebody waits for."""
    now = [0.0]
    monkeypatch.setattr(keeping, "monotonic", lambda: now[0])
    large = SimpleNamespace(output={"data": ["x" * (PUBLIC.unread * 2 // 5)]})

    async def play() -> None:
        kept = Visitors(page, [], PUBLIC)
        boxes = page._queue.pending_messages_per_session
        for session in ("old", "unread", "read", "listening"):
            boxes[session] = asyncio.Queue()
            page._queue.pending_event_ids_session[session] = {"id"}
            now[0] += keeping.LISTENING_SECONDS + 1
        for session in ("unread", "read"):
            boxes[session].put_nowait(large)
        assert await boxes["read"].get() is large
        await kept.tidy()
        assert [*boxes] == ["old", "unread", "read", "listening"]
        boxes["old"].put_nowait(large)
        boxes["read"].put_nowait(large)
        await kept.tidy()
        assert [*boxes] == ["unread", "read", "listening"] == [*page._queue.pending_event_ids_session]
        now[0] += keeping.UNREAD_SECONDS + 1
        listener = asyncio.create_task(boxes["listening"].get())
        await asyncio.sleep(0)
        await kept.tidy()
        assert [*boxes] == ["listening"]
        boxes["old"].put_nowait(large)  # what still comes for them is dropped
        assert [*boxes] == ["listening"]
        listener.cancel()

    asyncio.run(play())


# --- addresses --------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is said of names and proxies, and nothing else."""
    said = ("PUBLIC", "HOSTS", "TRUSTED_PROXIES")
    for name in ("SPACE_ID", "GRADIO_SERVER_NAME", *(f"SPECDEMO_{each}" for each in said)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("environment", "peer", "forwarded", "expected"),
    [
        ({}, "203.0.113.9", "198.51.100.7", "203.0.113.9"),
        ({}, "127.0.0.1", "198.51.100.7", "127.0.0.1"),
        ({"SPACE_ID": "a/b"}, "10.16.3.80", "10.9.9.9, 6.6.6.6, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ({"SPACE_ID": "a/b"}, "203.0.113.9", "198.51.100.7", "203.0.113.9"),
        ({"SPACE_ID": "a/b", "SPECDEMO_TRUSTED_PROXIES": ""}, "10.16.3.80", "198.51.100.7", "10.16.3.80"),
        ({"SPECDEMO_TRUSTED_PROXIES": "192.0.2.1, 127.0.0.0/8"}, "127.0.0.1", "6.6.6.6, 7.7.7.7", "7.7.7.7"),
    ],
    indirect=["environment"],
)
@pytest.mark.usefixtures("environment")
def test_an_address_is_the_peers_or_what_a_trusted_proxy_says(peer: str, forwarded: str, expected: str) -> None:
    """What a client writes into the headers itself counts nowhere."""
    trust_proxies()
    proxies = Middleware(ProxyHeadersMiddleware, trusted_hosts=os.environ["FORWARDED_ALLOW_IPS"])
    forged = {"x-forwarded-for": forwarded, "x-specdemo-agent": "0 6.6.6.6"}
    assert ask("run", proxies, Middleware(Addresses), peer=peer, headers=forged).json()["peer"] == expected


def test_a_call_that_gradio_makes_for_an_agent_has_the_agents_address() -> None:
    """Its own calls come from this machine, with the headers of the agent's."""
    seen: list[str] = []

    async def answer(request: Request) -> JSONResponse:
        seen.append(request.client.host if request.client else "")
        if "/mcp/" in request.url.path:
            async with of(app, "127.0.0.1") as http:
                await http.post("queue/join", headers=dict(request.headers))
        return JSONResponse({})

    async def call() -> None:
        async with of(app, "198.51.100.7") as http:
            for path in ("mcp/", "mcp/messages/"):
                await http.post(path)

    app = app_of(answer, Middleware(Addresses))
    asyncio.run(call())
    assert seen == ["198.51.100.7"] * 4


@pytest.mark.parametrize(
    ("name", "value", "stays"),
    [
        ("x-forwarded-host", "page.example:443", True),
        ("x-forwarded-proto", "https,http", True),
        ("x-forwarded-host", "[::1", False),
        ("x-forwarded-host", "x" * 300, False),
        ("x-forwarded-proto", "javascript", False),
    ],
)
def test_a_place_of_the_page_stays_where_it_can_be_one(name: str, value: str, stays: bool) -> None:
    """Any proxy may say that it serves the page by https; Gradio stumbles over what is no host, and repeats it."""
    assert (name in ask("run", Middleware(Addresses), headers={name: value}).json()["headers"]) == stays


HERE = {"host": "127.0.0.1:7860"}


@pytest.mark.parametrize(
    ("environment", "headers", "status"),
    [
        # A name of another could be made to lead here; his page in the visitor's browser would read and press all.
        *(({}, {"host": host}, 200) for host in ("localhost:7860", "LOCALHOST", "page.localhost:7860")),
        *(({}, {"host": host}, 200) for host in ("127.0.0.1:7860", "[::1]:7860", "192.168.1.7:7860")),
        ({}, {"host": "rebound.example:7860"}, 421),
        ({}, {"host": "localhost.rebound.example"}, 421),
        ({}, {"host": "127.0.0.1@rebound.example"}, 421),
        ({"SPECDEMO_HOSTS": "other, Rebound.example"}, {"host": "rebound.example:7860"}, 200),
        ({"SPECDEMO_PUBLIC": "1"}, {"host": "rebound.example"}, 200),
        ({"SPACE_ID": "a/b", "SPECDEMO_PUBLIC": "0"}, {"host": "a-b.hf.space"}, 200),
        # Any page that is open in the browser could fill the disk, and press Run.
        ({}, {**HERE, "origin": "http://127.0.0.1:7860"}, 200),
        ({}, {**HERE, "origin": "http://evil.example"}, 403),
        ({}, {**HERE, "origin": "null"}, 403),
        ({}, {**HERE, "origin": "https://desk.lan", "x-forwarded-host": "desk.lan:443"}, 200),
        ({"SPECDEMO_HOSTS": "desk.lan"}, {**HERE, "origin": "https://Desk.lan"}, 200),
        ({"SPECDEMO_PUBLIC": "1"}, {**HERE, "origin": "https://other.example"}, 200),
    ],
    indirect=["environment"],
)
@pytest.mark.usefixtures("environment")
def test_a_private_page_answers_to_its_own_names_and_takes_nothing_from_other_pages(
    headers: dict[str, str], status: int
) -> None:
    for method in ("POST", "OPTIONS"):
        answer = ask("upload", Middleware(Addresses, hosts=own_hosts()), method=method, headers=headers)
        assert answer.status_code == (405 if (status, method) == (200, "OPTIONS") else status)
        assert status == 200 or "SPECDEMO_HOSTS" in answer.text


@pytest.mark.parametrize("entries", ["*", "nginx", "10.0.0.1/8"])
def test_proxies_that_are_no_addresses_are_told(monkeypatch: pytest.MonkeyPatch, entries: str) -> None:
    """A star would believe what every client writes."""
    monkeypatch.setenv("SPECDEMO_TRUSTED_PROXIES", f"127.0.0.1,{entries}")
    with pytest.raises(SpecDemoError, match="is no address; name proxies"):
        trust_proxies()
