"""What one address, and all of them, may ask of a page at once; counted before anything is loaded or queued.

Whoever asks for more than their share waits, and is refused with a sentence where that would take long, so that a
flood fills its own share and nobody else's. What no page of ours sends is refused before anything is made of it.
An address is a network: see :func:`network_of`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdemo.ui.api.addresses import peer_of
from specdemo.ui.jobs.limits import Limits, network_of

# Of one address, where strangers use the page.
OPEN = 200  # requests that are under way; a tab keeps two open, for news and to say that it is there
EVENTS = 16  # events that wait or run in Gradio, which runs 64 at once and lets 100 wait
PART = 4
"""Of events that take turns among themselves, such as looks at pairs, one part of so many."""
PURSE, INCOME = 100.0, 20.0
"""What requests may cost at once, and in a second; further ones wait until it is there again."""
PURSES = 4_096  # addresses of which it is known what they spent lately
PATIENCE, LOOK_SECONDS = 10.0, 0.25
"""Seconds that a request waits for its share, else it is refused; and how often it looks for a place."""
COST_BYTES, COST_FILE_BYTES = 25_000, 50_000
"""A request that sends something costs 1, and 1 more for every so many bytes, of JSON or of a file."""
MCP, MCP_COST, MCP_AT_ONCE = "/gradio_api/mcp", 5, 4
"""Where agents come in, what one request of theirs costs, and how many are answered at once: Gradio describes all
tools anew for each, on the event loop."""
BUILT = {"": 2, "/config": 2, "/gradio_api/info": 2, "/gradio_api/openapi.json": 5}
"""What is built anew whenever it is asked for, and its cost."""
EVENT_STEPS = ("/gradio_api/queue/join", "/gradio_api/call/", "/gradio_api/run/", "/gradio_api/api/")

# Of bodies and files.
SECONDS = 60.0  # for a body to arrive
AT_ONCE, SHARE = 10, 5
"""Largest files that may be on their way together, and bytes as many of all else; one address has a fifth."""
FORM = 10_000  # bytes around a file that is sent
DRAINED = 16_000_000
"""Bytes that are read, and dropped, behind a body that is too large: many clients read no answer before."""
KEPT_SECONDS = 3600.0  # for which files of visitors are kept at most
FILES_SHARE, LEAST_FILES = 10, 10
"""One address may send one part of so many of all files within that time, or this number."""
FILE_PARTS, FILE_PART = 4, re.compile(rb"\r\ncontent-disposition:", re.IGNORECASE)
"""Parts of one upload, in which the page sends a single file, and where one begins, whatever separates them."""
VALUES, DEPTH = 2_000, 40
"""JSON values in one body, of which the page's largest event has a few hundred, and how deep they may nest."""
NAME = 100  # characters of a session's name, which Gradio makes of twelve
ADDRESS, LINK, STEP = 2_000, 60_000, 255
"""Characters of the address of a request, of a link to the page itself, and of a step of a path."""
NUMBERED, MOST_NUMBER = ("fn_index", "component_id"), 1_000_000
"""What Gradio looks up by number, without a look at the number."""

TOO_LARGE = "This request is too large: at most {most:,} bytes are taken here."
TOO_SLOW = "This request took too long to arrive. Send it again."
TOO_MUCH_AT_ONCE = "Too much is being sent here at once. Try again in a minute."
BUSY = "Too much from your network is under way here. Try again in a minute."
NO_STREAM = "There is no event of this name, or its answer was fetched already."
FULL = "Too many files were uploaded here lately. Try again in an hour."
TOO_MANY = f"This request holds too much: at most {VALUES:,} values are taken, nested {DEPTH} deep."
NO_JSON = "This request is not the JSON that its address takes."
NOT_OURS = "This request is not one that the page sends."
TOO_MANY_FILES = "Send one file at a time."
TOO_LONG = "The address of this request, or the name of its session, is too long."
NO_SESSION = "This request names no session. Programs call the endpoints; see the page's API."


class Refused(Exception):
    """A request that goes no further; the arguments are the status and the sentence."""


@dataclass(eq=False, slots=True)
class Request:
    """One that is under way."""

    address: str  # whose it is
    files: bool  # whether it sends a file
    size: int = 0  # bytes of its body that are held
    group: Hashable = None  # of the event that it asks for, on its way into Gradio's queue; None otherwise


class Gate:
    """Lets requests through, each in its turn; all counts are of what is under way, so none is left over.

    Where the page is ``shared`` with strangers each address has its share alone.
    """

    def __init__(self, app: ASGIApp, limits: Limits, *, shared: bool) -> None:
        self._app, self._limits, self._shared = app, limits, shared
        self._requests: set[Request] = set()
        self._purses: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when
        self._files: Counter[str] = Counter()  # that were sent by each address, since
        self._since, self._bytes = monotonic(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sends = scope["method"] in ("POST", "PUT", "PATCH")
        files = scope["method"] == "POST" and scope["path"].rstrip("/").endswith("/gradio_api/upload")
        request = Request(network_of(peer_of(scope)), files)
        self._requests.add(request)
        try:
            if self._shared and sum(r.address == request.address for r in self._requests) > OPEN:
                raise Refused(429, BUSY)
            _check_address(scope)
            cost = MCP_COST if MCP in scope["path"] else BUILT.get(scope["path"].rstrip("/"), 0)
            await self._wait(request.address, max(1, cost) if sends else cost)
            if sends:
                receive = await self._passed_body(request, scope, receive)
            else:
                _check_stream(scope)
            await self._app(scope, receive, send)
        except Refused as refusal:
            status, sentence = refusal.args
            await JSONResponse({"detail": sentence}, status)(scope, receive, send)
        finally:
            self._requests.remove(request)

    async def _passed_body(self, request: Request, scope: Scope, receive: Receive) -> Receive:
        """Hands on the body, once it was read and has its place, then whatever comes."""
        path, page = scope["path"], scope["app"].blocks
        try:
            async with asyncio.timeout(SECONDS):
                body = await self._read(request, receive)
        except TimeoutError:
            raise Refused(408, TOO_SLOW) from None
        if request.files:
            self._count_file(request.address, body)
        else:
            fields = checked_fields(body, path)
            if self._shared and MCP in path:
                await self._enter(request, page, "mcp", MCP_AT_ONCE)
            elif self._shared and any(step in path for step in EVENT_STEPS):
                await self._enter(request, page, *_places(page, path, fields))
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def received() -> Message:
            return left.pop() if left else await receive()

        return received

    async def _wait(self, address: str, cost: float, most: float | None = None) -> None:
        """Until the address is out of debt; not beyond ``most`` seconds."""
        if not self._shared or not cost:
            return
        now = monotonic()
        left, since = self._purses.pop(address, (PURSE, now))
        left = min(PURSE, left + INCOME * (now - since)) - cost
        self._purses[address] = left, now
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
        body, size, more = bytearray(), 0, True
        while more and size <= most + DRAINED:
            message = await receive()
            # A client that went away is for the application to notice.
            more = message["type"] == "http.request" and message.get("more_body", False)
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most:
                body.clear()
            else:
                body += chunk
            request.size = len(body)
            alike = [r for r in self._requests if r.files == request.files]
            own = sum(r.size for r in alike if r.address == request.address)
            if body and (own > all_bytes // SHARE or sum(r.size for r in alike) > all_bytes):
                raise Refused(503, TOO_MUCH_AT_ONCE)
        cost = min(size, most) / (COST_FILE_BYTES if request.files else COST_BYTES)
        await self._wait(request.address, cost, PATIENCE)
        if size > most:
            raise Refused(413, TOO_LARGE.format(most=most))
        return bytes(body)

    async def _enter(self, request: Request, page: Any, group: Hashable, most: int) -> None:
        """Until the address has a place for one more event, of which at most so many may be of this group."""
        until = monotonic() + PATIENCE
        while (own := self._events(request.address, page)).total() >= EVENTS or own[group] >= most:
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
        queued = (e for some in lists for e in some if network_of(peer_of(e.request.scope)) == address)
        entering = (r.group for r in self._requests if r.address == address and r.group is not None)
        return Counter([*(event.concurrency_id for event in queued), *entering])

    def _count_file(self, address: str, body: bytes) -> None:
        """Refuses many files in one request, each of which would be written, and more than may lie on the disk."""
        if sum(1 for _ in FILE_PART.finditer(body)) > FILE_PARTS:
            raise Refused(413, TOO_MANY_FILES)
        if monotonic() - self._since > KEPT_SECONDS:
            self._files.clear()
            self._since, self._bytes = monotonic(), 0
        most, files = self._limits, self._files
        full = files.total() >= most.files or self._bytes + len(body) > most.uploads
        if full or files[address] >= max(LEAST_FILES, most.files // FILES_SHARE):
            raise Refused(507, FULL)
        files[address] += 1
        self._bytes += len(body)


def _check_address(scope: Scope) -> None:
    """Refuses one longer than any that the page's scripts make, or than a file system takes."""
    path = scope["path"]
    long = len(path) + len(scope["query_string"]) > (ADDRESS if "/gradio_api/" in path else LINK)
    if long or any(len(step.encode("utf-8", "replace")) > STEP for step in path.split("/")):
        raise Refused(414, TOO_LONG)


def _check_stream(scope: Scope) -> None:
    """Refuses to listen to a session or a call that there is not: Gradio would log a trace over each."""
    queue, path = scope["app"].blocks._queue, scope["path"].rstrip("/")
    known = {*queue.pending_messages_per_session}
    if path.endswith("/gradio_api/queue/data"):
        (name,) = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[-1:]
    elif "/gradio_api/call/" in path:
        name = path.rpartition("/")[2]
        known.update(queue.event_ids_to_events, *queue.pending_event_ids_session.values())
    else:
        return
    if name not in known:
        raise Refused(404, NO_STREAM)


def _places(page: Any, path: str, fields: dict[str, Any]) -> tuple[Hashable, int]:
    """The group of the event that a request names by number or address, and how many of it an address may have."""
    if fields.get("fn_index") is not None:
        event = page.fns.get(fields["fn_index"])
    else:
        name = path.rstrip("/").rpartition("/")[2]
        event = next((event for event in page.fns.values() if event.api_name == name), None)
    if event is None or not event.queue:
        return "", EVENTS
    limit = event.concurrency_limit
    limit = page._queue.default_concurrency_limit if limit == "default" else limit
    return event.concurrency_id, EVENTS if limit is None else max(1, limit // PART)


def checked_fields(body: bytes, path: str) -> dict[str, Any]:
    """The fields of a JSON body; none where it is empty or no object.

    Raises:
        Refused: it is no JSON, holds too many values, names a session by a whole text, or what cannot be; or it
            names none where Gradio would build a new one, for this request alone.
    """
    if not body:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, NO_JSON) from None
    fields = value if isinstance(value, dict) else {}
    session = fields.get("session_hash")
    if any(isinstance(name, str) and len(name) > NAME for name in (session, fields.get("id"))):
        raise Refused(414, TOO_LONG)
    numbers = [fields[name] for name in NUMBERED if fields.get(name) is not None]
    if fields.get("batched") or not all(isinstance(n, int) and 0 <= n < MOST_NUMBER for n in numbers):
        raise Refused(422, NOT_OURS)
    by_name = "/gradio_api/run/" in path or "/gradio_api/api/" in path
    if by_name and not (isinstance(session, str) and session):
        raise Refused(422, NO_SESSION)
    level, count = [value], 1
    for _ in range(DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        count += len(level)
        if count > VALUES:
            break
    if count > VALUES or any(map(_inside, level)):
        raise Refused(413, TOO_MANY)
    return fields


def _inside(value: Any) -> Any:
    """The values in a list or an object; none in others."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
