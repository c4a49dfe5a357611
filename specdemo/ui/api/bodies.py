"""Bounds on what one request may send, kept before anything is made of it."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from time import monotonic
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

VALUES = 2_000
"""JSON values in one body; the page's largest event has a few hundred."""
DEPTH = 40
"""Lists and objects inside one another."""
PARTS = 4
"""Of one upload, in which the page sends a single file."""
NAME = 100
"""Characters of a session's name, which Gradio makes of twelve."""
ADDRESS = 2_000
"""Characters of the address of a request that the page's scripts send; links to the page itself may be longer."""
SECONDS = 60.0
"""For a body to arrive."""
COST_BYTES, COST_FILE_BYTES = 25_000, 50_000
"""A request costs 1, and 1 more for every so many bytes, of JSON or of a file."""
PURSE, INCOME = 100.0, 20.0
"""What requests from one address may cost at once, and in a second; further ones wait until it is there again."""
PURSES = 4_096
"""Addresses of which it is known what they spent lately."""
DRAINED = 16_000_000
"""Bytes that are read, and dropped, behind a body that is too large: many clients read no answer before."""

TOO_LARGE = "This request is too large: at most {most:,} bytes are taken here."
TOO_MANY = f"This request holds too much: at most {VALUES:,} values are taken, nested {DEPTH} deep."
NO_JSON = "This request is not the JSON that its address takes."
TOO_MANY_FILES = "Send one file at a time."
TOO_LONG = "The address of this request, or the name of its session, is too long."
NO_SESSION = "This request names no session. Programs call the endpoints; see the page's API."
TOO_SLOW = "This request took too long to arrive. Send it again."
TOO_MUCH_AT_ONCE = "Too much is being sent here at once. Try again in a minute."


class Refused(Exception):
    """A body that goes no further; the arguments are the status and the sentence."""


class Purses:
    """What each address may still ask for. A page hardly touches it, and a flood is slowed to a trickle."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, address: str, cost: float) -> float:
        """Take from an address's purse; returns the seconds until it is out of debt."""
        now = monotonic()
        left, since = self._left.pop(address, (PURSE, now))
        left = min(PURSE, left + INCOME * (now - since)) - cost
        self._left[address] = left, now
        if len(self._left) > PURSES:
            self._left.popitem(last=False)
        return max(0.0, -left / INCOME)


class BodyBound:
    """Reads each request's body, refuses what no honest client sends, and hands on the rest.

    What one address sends beyond a measure waits, so that it takes little of the time of others.

    Args:
        app: what answers requests otherwise.
        most: bytes of a body.
        upload: bytes of the body of an upload.
        at_once: bytes of all bodies that are on their way.
        paced: whether an address has to wait, as where strangers are.
    """

    def __init__(self, app: ASGIApp, most: int, upload: int, at_once: int, *, paced: bool) -> None:
        self._app, self._most, self._upload, self._at_once = app, most, upload, at_once
        self._arriving = 0
        self._purses = Purses() if paced else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if "/gradio_api/" in scope["path"] and len(scope["path"]) + len(scope["query_string"]) > ADDRESS:
                raise Refused(414, TOO_LONG)
            if scope["method"] in ("POST", "PUT", "PATCH"):
                receive = _again(await self._checked(scope, receive), receive)
        except Refused as refusal:
            status, sentence = refusal.args
            await JSONResponse({"detail": sentence}, status)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive) -> bytes:
        """The body.

        Raises:
            Refused: it is more than one client, or all of them at once, may send.
        """
        upload = is_upload(scope)
        await self._wait(scope, 1)
        body = await self._read(scope, receive, self._upload if upload else self._most)
        if upload:
            boundary = Request(scope).headers.get("content-type", "").rpartition("boundary=")[2].strip('"')
            if boundary and body.count(b"--" + boundary.encode("latin-1")) > PARTS + 1:
                raise Refused(413, TOO_MANY_FILES)
        elif body:
            _check_json(body, named="/gradio_api/run/" in scope["path"] or "/gradio_api/api/" in scope["path"])
        return body

    async def _wait(self, scope: Scope, cost: float) -> None:
        if self._purses is not None:
            await asyncio.sleep(self._purses.spend((scope.get("client") or ("", 0))[0], cost))

    async def _read(self, scope: Scope, receive: Receive, most: int) -> bytes:
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(SECONDS):
                while more:
                    message = await receive()
                    # A client that went away is for the application to notice.
                    more = message["type"] == "http.request" and message.get("more_body", False)
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > most + DRAINED:
                        break
                    if size > most:
                        self._arriving -= sum(map(len, chunks))
                        chunks.clear()
                        continue
                    if self._arriving + len(chunk) > self._at_once:
                        raise Refused(503, TOO_MUCH_AT_ONCE)
                    self._arriving += len(chunk)
                    chunks.append(chunk)
        except TimeoutError:
            raise Refused(408, TOO_SLOW) from None
        finally:
            self._arriving -= sum(map(len, chunks))
        await self._wait(scope, min(size, most) / (COST_FILE_BYTES if is_upload(scope) else COST_BYTES))
        if size > most:
            raise Refused(413, TOO_LARGE.format(most=most))
        return b"".join(chunks)


def is_upload(scope: Scope) -> bool:
    """Whether a request sends a file."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    return scope["path"].rstrip("/").endswith("/gradio_api/upload")


def _check_json(body: bytes, *, named: bool) -> None:
    """
    Args:
        body: of a request.
        named: whether it must name the session; Gradio would build a new one, for this request alone.

    Raises:
        Refused: it is no JSON, holds too many values, or names a session by a whole text.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, NO_JSON) from None
    session = value.get("session_hash") if isinstance(value, dict) else None
    if isinstance(session, str) and len(session) > NAME:
        raise Refused(414, TOO_LONG)
    if named and not (isinstance(session, str) and session):
        raise Refused(422, NO_SESSION)
    level, count = [value], 1
    for _ in range(DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        count += len(level)
        if count > VALUES:
            break
    if count > VALUES or any(map(_inside, level)):
        raise Refused(413, TOO_MANY)


def _inside(value: Any) -> Any:
    """The values in a list or an object; none in others."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _again(body: bytes, receive: Receive) -> Receive:
    """Hands on a body that was read, then whatever comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received
