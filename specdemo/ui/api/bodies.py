"""What no page of ours sends: addresses and bodies that are refused before anything is made of them."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.types import Message, Receive, Scope

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
ADDRESS, LINK, STEP = 2_000, 60_000, 255
"""Characters of the address of a request, of a link to the page itself, and of a step of a path; Gradio cannot
answer links that are much longer."""
NUMBERED = ("fn_index", "component_id")
MOST_NUMBER = 1_000_000
"""What Gradio looks up by number, without a look at the number."""

TOO_MANY = f"This request holds too much: at most {VALUES:,} values are taken, nested {DEPTH} deep."
NO_JSON = "This request is not the JSON that its address takes."
NOT_OURS = "This request is not one that the page sends."
TOO_MANY_FILES = "Send one file at a time."
TOO_LONG = "The address of this request, or the name of its session, is too long."
NO_SESSION = "This request names no session. Programs call the endpoints; see the page's API."


class Refused(Exception):
    """A request that goes no further; the arguments are the status and the sentence."""


def check_address(scope: Scope) -> None:
    """
    Raises:
        Refused: longer than any that the page's scripts make, or than a file system takes.
    """
    path = scope["path"]
    long = len(path) + len(scope["query_string"]) > (ADDRESS if "/gradio_api/" in path else LINK)
    if long or any(len(step.encode("utf-8", "replace")) > STEP for step in path.split("/")):
        raise Refused(414, TOO_LONG)


def is_upload(scope: Scope) -> bool:
    """Whether a request sends a file."""
    return scope["method"] == "POST" and scope["path"].rstrip("/").endswith("/gradio_api/upload")


def check_upload(body: bytes) -> None:
    """
    Raises:
        Refused: it holds many files, each of which would be written before they are counted.
    """
    if sum(1 for _ in PART.finditer(body)) > PARTS:
        raise Refused(413, TOO_MANY_FILES)


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


def again(body: bytes, receive: Receive) -> Receive:
    """Hands on a body that was read, then whatever comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received
