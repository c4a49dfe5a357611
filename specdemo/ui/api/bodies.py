"""Bounds on what one request may send, kept before anything is made of it."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdemo.ui.api.addresses import peer_of
from specdemo.ui.api.purses import Purses

VALUES = 2_000
"""JSON values in one body; the page's largest event has a few hundred."""
DEPTH = 40
"""Lists and objects inside one another."""
PARTS = 4
"""Of one upload, in which the page sends a single file."""
PART = re.compile(rb"\r\ncontent-disposition:", re.IGNORECASE)
"""Where one begins, whatever it is that separates them."""
NAME = 100
"""Characters of a session's name, which Gradio makes of twelve."""
ADDRESS, STEP = 2_000, 255
"""Characters of the address of a request, and of a step of its path; links to the page itself may be longer."""
NUMBERED = ("fn_index", "component_id")
MOST_NUMBER = 1_000_000
"""What Gradio looks up by number, without a look at the number."""
SECONDS = 60.0
"""For a body to arrive."""
COST_BYTES, COST_FILE_BYTES = 25_000, 50_000
"""What is sent costs 1, and 1 more for every so many bytes, of JSON or of a file."""
BUILT = {"": 2, "/config": 2, "/gradio_api/info": 2, "/gradio_api/openapi.json": 5}
"""What is built anew whenever it is asked for, and its cost."""
PATIENCE = 10.0
"""Seconds that a body waits for its address to be out of debt; one that would have to wait longer is refused."""
SHARE = 5
"""Of the bytes on their way, one address may have one part of so many."""
DRAINED = 16_000_000
"""Bytes that are read, and dropped, behind a body that is too large: many clients read no answer before."""

TOO_LARGE = "This request is too large: at most {most:,} bytes are taken here."
TOO_MANY = f"This request holds too much: at most {VALUES:,} values are taken, nested {DEPTH} deep."
NO_JSON = "This request is not the JSON that its address takes."
NOT_OURS = "This request is not one that the page sends."
TOO_MANY_FILES = "Send one file at a time."
TOO_LONG = "The address of this request, or the name of its session, is too long."
NO_SESSION = "This request names no session. Programs call the endpoints; see the page's API."
TOO_SLOW = "This request took too long to arrive. Send it again."
TOO_MUCH_AT_ONCE = "Too much is being sent here at once. Try again in a minute."


class Refused(Exception):
    """A body that goes no further; the arguments are the status and the sentence."""


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
        self._arriving: Counter[tuple[bool, str]] = Counter()  # bytes, of files or not, by address and of all
        self._purses = Purses() if paced else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            _check_address(scope)
            if scope["method"] in ("POST", "PUT", "PATCH"):
                receive = _again(await self._checked(scope, receive), receive)
            elif cost := BUILT.get(scope["path"].rstrip("/")):
                await self._wait(scope, cost)
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
        await self._wait(scope, 1)
        body = await self._read(scope, receive)
        if is_upload(scope):
            if sum(1 for _ in PART.finditer(body)) > PARTS:
                raise Refused(413, TOO_MANY_FILES)
        elif body:
            _check_json(body, named="/gradio_api/run/" in scope["path"] or "/gradio_api/api/" in scope["path"])
        return body

    async def _wait(self, scope: Scope, cost: float, most: float = math.inf) -> None:
        """Until the address is out of debt; not beyond ``most`` seconds."""
        if self._purses is not None and (seconds := self._purses.spend(peer_of(scope), cost)):
            if seconds > most:
                raise Refused(429, TOO_MUCH_AT_ONCE)
            await asyncio.sleep(seconds)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        files = is_upload(scope)
        most = self._upload if files else self._most
        mine, everyones = (files, peer_of(scope)), (files, "")
        chunks: list[bytes] = []
        held = size = 0
        more = True
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
                        chunks.clear()
                        continue
                    held += len(chunk)
                    self._arriving.update({mine: len(chunk), everyones: len(chunk)})
                    most_mine = self._at_once // SHARE
                    if self._arriving[mine] > most_mine or self._arriving[everyones] > self._at_once:
                        raise Refused(503, TOO_MUCH_AT_ONCE)
                    chunks.append(chunk)
            # What waits is still in memory, so it counts until it goes on.
            await self._wait(scope, min(size, most) / (COST_FILE_BYTES if files else COST_BYTES), PATIENCE)
        except TimeoutError:
            raise Refused(408, TOO_SLOW) from None
        finally:
            self._arriving.subtract({mine: held, everyones: held})
            self._arriving = +self._arriving
        if size > most:
            raise Refused(413, TOO_LARGE.format(most=most))
        return b"".join(chunks)


def _check_address(scope: Scope) -> None:
    """
    Raises:
        Refused: longer than any that the page's scripts make, or than a file system takes.
    """
    path = scope["path"]
    long = "/gradio_api/" in path and len(path) + len(scope["query_string"]) > ADDRESS
    if long or any(len(step.encode("utf-8", "replace")) > STEP for step in path.split("/")):
        raise Refused(414, TOO_LONG)


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
        Refused: it is no JSON, holds too many values, names a session by a whole text, or what cannot be.
    """
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
