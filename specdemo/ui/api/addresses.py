"""Whose address a request has: the peer's, or what a proxy that is trusted says of it."""

from __future__ import annotations

import os
import re
import secrets
from ipaddress import ip_address, ip_network

from starlette.types import ASGIApp, Receive, Scope, Send

from specdemo.errors import SpecDemoError

VARIABLE = "SPECDEMO_TRUSTED_PROXIES"
OF_A_SPACE = "10.0.0.0/8"
"""Where the proxy of a Space is."""
HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[\w.-]{1,253})(:\d{1,5})?")
"""What can name this page; Gradio writes it into the page."""
WHERE = {b"host": HOST, b"x-forwarded-host": HOST, b"x-forwarded-proto": re.compile(rb"https?")}
"""Headers that tell Gradio where the page is, and each value of theirs. Whoever sends another place gets links to
it in their own answer, nobody else does: so any proxy may say it, as one must where it serves the page by https.
"""
MOST = 255
"""Bytes of such a header."""
_HEADER = b"x-specdemo-agent"
_SECRET = secrets.token_hex().encode()


def trust_proxies() -> None:
    """Have the server believe ``X-Forwarded-For`` from the configured proxies alone; for the next launch.

    Uvicorn reads the header, from the right, up to the first address that is no trusted proxy's: what a client
    wrote itself stands left of that. It trusts loopback unless told otherwise.

    Raises:
        SpecDemoError: the variable holds something else than addresses and networks.
    """
    text = os.environ.get(VARIABLE, OF_A_SPACE if os.environ.get("SPACE_ID") else "")
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    for entry in entries:
        try:
            ip_network(entry)
        except ValueError:
            raise SpecDemoError(
                f"{VARIABLE}: {entry!r:.80} is no address; name proxies, such as 127.0.0.1, 10.0.0.0/8."
            ) from None
    os.environ["FORWARDED_ALLOW_IPS"] = ",".join(entries)


def peer_of(scope: Scope) -> str:
    """The address that a request came from."""
    return (scope.get("client") or ("", 0))[0]


class Addresses:
    """Drops headers that should say where the page is and name no place, over which Gradio stumbles.

    Gradio answers agents by calls to itself; this hands their address on, in a header that nobody can forge.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if scope["type"] == "http":
            said = [value for name, value in scope["headers"] if name == _HEADER]
            headers = [header for header in scope["headers"] if _stays(*header)]
            if "/gradio_api/mcp" in scope["path"]:  # of either transport
                headers.append((_HEADER, _SECRET + b" " + peer_of(scope).encode()))
            scope = {**scope, "headers": headers}
            if said and said[0].startswith(_SECRET + b" "):
                scope["client"] = (said[0].removeprefix(_SECRET + b" ").decode(), 0)
        await self._app(scope, receive, send)


def _stays(name: bytes, value: bytes) -> bool:
    if name in WHERE:  # of several proxies each adds its own
        return len(value) <= MOST and all(_is_place(WHERE[name], each.strip()) for each in value.split(b","))
    return name != _HEADER


def _is_place(pattern: re.Pattern[bytes], value: bytes) -> bool:
    found = pattern.fullmatch(value)
    if found and value.startswith(b"["):
        try:
            ip_address(found[1][1:-1].decode())
        except ValueError:
            return False
    return found is not None
