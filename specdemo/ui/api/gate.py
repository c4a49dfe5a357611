"""What one address, and all of them, may ask of a page at once; counted before anything is loaded or queued.

Whoever asks for more than their share waits, and is refused with a sentence where that would take long, so that a
flood fills its own share and nobody else's. An address is a network: see :func:`network_of`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from specdemo.ui.api.addresses import peer_of
from specdemo.ui.api.bodies import Refused, again, check_address, check_upload, checked_fields, is_upload
from specdemo.ui.jobs.limits import Limits, network_of

OPEN = 200
"""Requests of one address that are under way; a tab keeps two open, for news and to say that it is there."""
EVENTS = 16
"""Events of one address that wait or run in Gradio, which runs 64 at once and lets 100 wait."""
PART = 4
"""Of events that take turns among themselves, such as looks at pairs, one address has one part of so many."""
EVENT_STEPS = ("/gradio_api/queue/join", "/gradio_api/call/", "/gradio_api/run/", "/gradio_api/api/")
PATIENCE = 10.0
"""Seconds that a request waits for its share; one that would have to wait longer is refused."""
LOOK_SECONDS = 0.25
"""How often a request that waits for a place looks for one."""
PURSE, INCOME = 100.0, 20.0
"""What requests from one address may cost at once, and in a second; further ones wait until it is there again."""
PURSES = 4_096
"""Addresses of which it is known what they spent lately."""
COST_BYTES, COST_FILE_BYTES = 25_000, 50_000
"""A request that sends something costs 1, and 1 more for every so many bytes, of JSON or of a file."""
MCP, MCP_COST, MCP_AT_ONCE = "/gradio_api/mcp", 5, 4
"""Where agents come in, what one request of theirs costs, and how many of one address are answered at once: Gradio
describes all tools anew for each, on the event loop."""
BUILT = {"": 2, "/config": 2, "/gradio_api/info": 2, "/gradio_api/openapi.json": 5}
"""What is built anew whenever it is asked for, and its cost."""
SECONDS = 60.0
"""For a body to arrive."""
AT_ONCE, SHARE = 10, 5
"""Largest files that may be on their way together, and bytes as many of all else; one address has a fifth."""
FORM = 10_000
"""Bytes around a file that is sent."""
DRAINED = 16_000_000
"""Bytes that are read, and dropped, behind a body that is too large: many clients read no answer before."""
KEPT_SECONDS = 3600.0
"""For which files of visitors are kept at most."""
FILES_SHARE, LEAST_FILES = 10, 10
"""One address may send one part of so many of all files within that time, or this number."""

TOO_LARGE = "This request is too large: at most {most:,} bytes are taken here."
TOO_SLOW = "This request took too long to arrive. Send it again."
TOO_MUCH_AT_ONCE = "Too much is being sent here at once. Try again in a minute."
BUSY = "Too much from your network is under way here. Try again in a minute."
NO_STREAM = "There is no event of this name, or its answer was fetched already."
FULL = "Too many files were uploaded here lately. Try again in an hour."


@dataclass(eq=False, slots=True)
class Request:
    """One that is under way.

    Attributes:
        address: whose it is.
        files: whether it sends a file.
        size: bytes of its body that are held.
        group: of the event that it asks for, on its way into Gradio's queue; None otherwise.
    """

    address: str
    files: bool
    size: int = 0
    group: Hashable = None


class Gate:
    """Lets requests through, each in its turn; all counts are of what is under way, so none is left over.

    Args:
        app: what answers them.
        limits: bytes of bodies and files, and the number of files.
        shared: whether strangers use the page, so that each address has its share alone.
    """

    def __init__(self, app: ASGIApp, limits: Limits, *, shared: bool) -> None:
        self._app, self._limits, self._shared = app, limits, shared
        self._requests: set[Request] = set()
        self._purses: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when
        self._file_by_file = asyncio.Lock()  # each is counted before the next is let in
        self._sent: Counter[str] = Counter()  # files by address, since
        self._since = monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(network_of(peer_of(scope)), is_upload(scope))
        self._requests.add(request)
        try:
            if self._shared and sum(r.address == request.address for r in self._requests) > OPEN:
                raise Refused(429, BUSY)
            check_address(scope)
            if scope["method"] in ("POST", "PUT", "PATCH"):
                await self._pass_body(request, scope, receive, send)
            else:
                await self._wait(request, _cost(scope["path"]))
                _check_stream(scope)
                await self._app(scope, receive, send)
        except Refused as refusal:
            status, sentence = refusal.args
            await JSONResponse({"detail": sentence}, status)(scope, receive, send)
        finally:
            self._requests.remove(request)

    async def _pass_body(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        await self._wait(request, max(1, _cost(scope["path"])))
        try:
            async with asyncio.timeout(SECONDS):
                body = await self._read(request, receive)
        except TimeoutError:
            raise Refused(408, TOO_SLOW) from None
        page, receive = scope["app"].blocks, again(body, receive)
        if request.files:
            check_upload(body)
            async with self._file_by_file:
                await self._count_file(request, page)
                await self._app(scope, receive, send)
            return
        fields = checked_fields(body, scope["path"])
        if self._shared and MCP in scope["path"]:
            await self._enter(request, page, "mcp", MCP_AT_ONCE)
        elif self._shared and any(step in scope["path"] for step in EVENT_STEPS):
            await self._enter(request, page, *_places(page, _event(page, scope["path"], fields)))
        await self._app(scope, receive, send)

    async def _wait(self, request: Request, cost: float, most: float | None = None) -> None:
        """Until the address is out of debt; not beyond ``most`` seconds."""
        if not self._shared or not cost:
            return
        now = monotonic()
        left, since = self._purses.pop(request.address, (PURSE, now))
        left = min(PURSE, left + INCOME * (now - since)) - cost
        self._purses[request.address] = left, now
        if len(self._purses) > PURSES:
            self._purses.popitem(last=False)
        seconds = max(0.0, -left / INCOME)
        if most is not None and seconds > most:
            raise Refused(429, TOO_MUCH_AT_ONCE)
        if seconds:
            await asyncio.sleep(seconds)

    async def _read(self, request: Request, receive: Receive) -> bytes:
        """The body, once the address may have sent it; it counts as long as the request is under way."""
        most = self._limits.upload + FORM if request.files else self._limits.body
        all_bytes = AT_ONCE * self._limits.upload
        chunks: list[bytes] = []
        size, more = 0, True
        while more and size <= most + DRAINED:
            message = await receive()
            # A client that went away is for the application to notice.
            more = message["type"] == "http.request" and message.get("more_body", False)
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most:
                chunks.clear()
                request.size = 0
                continue
            chunks.append(chunk)
            request.size = size
            alike = [r for r in self._requests if r.files == request.files]
            mine = sum(r.size for r in alike if r.address == request.address)
            if mine > all_bytes // SHARE or sum(r.size for r in alike) > all_bytes:
                raise Refused(503, TOO_MUCH_AT_ONCE)
        await self._wait(request, min(size, most) / (COST_FILE_BYTES if request.files else COST_BYTES), PATIENCE)
        if size > most:
            raise Refused(413, TOO_LARGE.format(most=most))
        return b"".join(chunks)

    async def _enter(self, request: Request, page: Any, group: Hashable, most: int) -> None:
        """Until the address has a place for one more event, of which at most so many may be of this group.

        Raises:
            Refused: it had none for long.
        """
        until = monotonic() + PATIENCE
        while (mine := self._events(request.address, page)).total() >= EVENTS or mine[group] >= most:
            if monotonic() > until:
                raise Refused(429, BUSY)
            await asyncio.sleep(LOOK_SECONDS)
        request.group = group

    def _events(self, address: str, page: Any) -> Counter[Hashable]:
        """An address's events that wait or run in Gradio's queue, or are on their way to it, by group."""
        queue = page._queue
        lists = [
            *(q.queue for q in queue.event_queue_per_concurrency_id.values()),
            *filter(None, queue.active_jobs),
        ]
        mine = (e for some in lists for e in some if network_of(peer_of(e.request.scope)) == address)
        entering = (r.group for r in self._requests if r.address == address and r.group is not None)
        return Counter([*(event.concurrency_id for event in mine), *entering])

    async def _count_file(self, request: Request, page: Any) -> None:
        """
        Raises:
            Refused: the files that visitors sent and that are still there take too much, or there are too many.
        """
        if monotonic() - self._since > KEPT_SECONDS:
            self._sent.clear()
            self._since = monotonic()
        self._sent[request.address] += 1
        sizes, gone = await asyncio.to_thread(_sizes, page.upload_file_set.copy())
        page.upload_file_set -= gone
        full = len(sizes) >= self._limits.files or sum(sizes) >= self._limits.uploads
        if full or self._sent[request.address] > max(LEAST_FILES, self._limits.files // FILES_SHARE):
            raise Refused(507, FULL)


def _event(page: Any, path: str, fields: dict[str, Any]) -> Any:
    """The event that a request names, by its number or by the last step of its address; None if there is none."""
    if fields.get("fn_index") is not None:
        return page.fns.get(fields["fn_index"])
    name = path.rstrip("/").rpartition("/")[2]
    return next((event for event in page.fns.values() if event.api_name == name), None)


def _places(page: Any, event: Any) -> tuple[Hashable, int]:
    """The group of an event, and how many of it an address may have: a part of those that run at once."""
    if event is None or not event.queue:
        return "", EVENTS
    limit = event.concurrency_limit
    limit = page._queue.default_concurrency_limit if limit == "default" else limit
    return event.concurrency_id, EVENTS if limit is None else max(1, limit // PART)


def _cost(path: str) -> int:
    """Of an answer that is built anew whenever it is asked for; 0 for any other."""
    return MCP_COST if MCP in path else BUILT.get(path.rstrip("/"), 0)


def _check_stream(scope: Scope) -> None:
    """
    Raises:
        Refused: it asks for the messages of a session or a call that there is not; Gradio would begin an
            answer, cut it off, and log the trace.
    """
    queue, path = scope["app"].blocks._queue, scope["path"].rstrip("/")
    if path.endswith("/gradio_api/queue/data"):
        (name,) = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[-1:]
        known = name in queue.pending_messages_per_session
    elif "/gradio_api/call/" in path:
        name = path.rpartition("/")[2]
        sessions = queue.pending_event_ids_session.values()
        known = name in queue.event_ids_to_events or any(name in events for events in sessions)
        known = known or name in queue.pending_messages_per_session
    else:
        return
    if not known:
        raise Refused(404, NO_STREAM)


def _sizes(paths: set[str]) -> tuple[list[int], set[str]]:
    """Bytes of those of the files that are still there, and the others."""
    sizes, gone = [], set()
    for path in paths:
        try:
            sizes.append(Path(path).stat().st_size)
        except FileNotFoundError:
            gone.add(path)
    return sizes, gone
