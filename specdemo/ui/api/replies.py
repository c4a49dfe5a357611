"""Answers to agents that went wrong are short: the protocol's own library repeats in them what was sent."""

from __future__ import annotations

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST = 200
"""Characters of any text in an answer that tells of an error."""
HEADER = 400
"""Characters of a header, which may repeat the request's address."""
SAYS_ERROR = (b'"isError":true', b'"error":')
UNREADABLE = "This is no request of the Model Context Protocol that this page answers."


class AgentReplies:
    """Shortens what agents are told of errors; what tools gave goes on as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if scope["type"] != "http" or "/gradio_api/mcp" not in scope["path"]:
            await self._app(scope, receive, send)
            return
        refused = False

        async def shortened(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                refused = message["status"] >= 400
                headers = [(n, v) for n, v in message["headers"] if n != b"content-length" and len(v) <= HEADER]
                message = {**message, "headers": headers}
            elif message["type"] == "http.response.body" and refused:
                last = not message.get("more_body", False)
                body = json.dumps({"detail": UNREADABLE}).encode() if last else b""
                message = {**message, "body": body}
            elif message["type"] == "http.response.body":
                message = {**message, "body": _short(message.get("body", b""))}
            await send(message)

        await self._app(scope, receive, shortened)


def _short(chunk: bytes) -> bytes:
    """One event of an answer, or a whole one."""
    if len(chunk) <= LONGEST or not any(sign in chunk for sign in SAYS_ERROR):
        return chunk
    lines = chunk.decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(map(_short_line, lines)).encode()


def _short_line(line: str) -> str:
    begin = line.find("{")
    try:
        value = json.loads(line[begin:])
    except ValueError:
        return line[:LONGEST]
    end = line[len(line.rstrip("\r\n")) :]
    return line[:begin] + json.dumps(_cut(value), ensure_ascii=False, separators=(",", ":")) + end


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return {name: _cut(item) for name, item in value.items()} if isinstance(value, dict) else value
