"""Whose address a request has, under which names a page is called, and how many connections one may have."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from ipaddress import ip_address, ip_network
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http import auto

from specdemo.errors import SpecDemoError
from specdemo.models.request import is_public
from specdemo.ui.jobs.limits import network_of

PROXIES = "SPECDEMO_TRUSTED_PROXIES"
OF_A_SPACE = "10.0.0.0/8"  # where the proxy of a Space is
HOSTS = "SPECDEMO_HOSTS"
HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[\w.-]{1,253})(:\d{1,5})?")
"""What can name this page; Gradio writes it into the page."""
PLACES, SCHEME = (b"host", b"x-forwarded-host"), b"x-forwarded-proto"
"""Headers that tell Gradio where the page is. Whoever sends another place gets links to it in their own answer,
nobody else does: so any proxy may say it, as one must where it serves the page by https."""
MOST = 255  # bytes of such a header
NOT_HERE = f"This page does not answer to this name. Open it as localhost or by an address, or name it in {HOSTS}."
NOT_FROM_THERE = f"Another page asked for this. If it is this page under another name, name it in {HOSTS}."
CONNECTIONS = 200  # of one address; a process may often have no more than 1,024 files and connections
HEADER_SECONDS = 10.0  # for the head of a request to arrive, from the connection or from the last answer on
_Protocol: Any = auto.AutoHTTPProtocol  # the quicker one of those that are installed
_HEADER = b"x-specdemo-agent"
_SECRET = secrets.token_hex().encode()


def trust_proxies() -> None:
    """Have the server believe ``X-Forwarded-For`` from the configured proxies alone; for the next launch.

    Uvicorn reads the header, from the right, up to the first address that is no trusted proxy's: what a client
    wrote itself stands left of that. It trusts loopback unless told otherwise.

    Raises:
        SpecDemoError: the variable holds something else than addresses and networks.
    """
    entries = _entries(PROXIES, OF_A_SPACE if os.environ.get("SPACE_ID") else "")
    for entry in entries:
        try:
            ip_network(entry)
        except ValueError:
            raise SpecDemoError(
                f"{PROXIES}: {entry!r:.80} is no address; name proxies, such as 127.0.0.1, 10.0.0.0/8."
            ) from None
    os.environ["FORWARDED_ALLOW_IPS"] = ",".join(entries)


def peer_of(scope: Scope) -> str:
    return (scope.get("client") or ("", 0))[0]


def own_hosts() -> frozenset[str] | None:
    """The names, beside localhost and addresses, by which a private page is called; None for any, as in public."""
    if is_public() or os.environ.get("SPACE_ID"):
        return None
    return frozenset(name.lower() for name in (*_entries(HOSTS), *_entries("GRADIO_SERVER_NAME")))


class Addresses:
    """Drops headers that should say where the page is and name no place, over which Gradio stumbles.

    Gradio answers agents by calls to itself; this hands their address on, in a header that nobody can forge.

    Args:
        app: what answers requests otherwise.
        hosts: as of :func:`own_hosts`. The pages of strangers in the browser can let their own names lead here
            (DNS rebinding), and would then be taken for this page by the browser; an address they cannot take.
            Nor may they send anything here under their own name, which the browser gives as the ``Origin``.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None = None) -> None:
        self._app, self._hosts = app, None if hosts is None else {"localhost", *hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not all(self._is_own(value) for name, value in scope["headers"] if name == b"host"):
                await JSONResponse({"detail": NOT_HERE}, 421)(scope, receive, send)
                return
            if self._is_foreign(scope):
                await JSONResponse({"detail": NOT_FROM_THERE}, 403)(scope, receive, send)
                return
            said = [value for name, value in scope["headers"] if name == _HEADER]
            headers = [header for header in scope["headers"] if _stays(*header)]
            if "/gradio_api/mcp" in scope["path"]:  # of either transport
                headers.append((_HEADER, _SECRET + b" " + peer_of(scope).encode()))
            scope = {**scope, "headers": headers}
            if said and said[0].startswith(_SECRET + b" "):
                scope["client"] = (said[0].removeprefix(_SECRET + b" ").decode(), 0)
        await self._app(scope, receive, send)

    def _is_foreign(self, scope: Scope) -> bool:
        """Whether a browser sent this for a page of another name, whatever its port; programs give no origin."""
        if self._hosts is None:
            return False
        called = [v for name, value in scope["headers"] if name in PLACES for v in value.split(b",")]
        own = {*self._hosts, *map(_name, called)} - {""}
        origins = [value.partition(b"://")[2] for name, value in scope["headers"] if name == b"origin"]
        return not all(_name(origin) in own for origin in origins)

    def _is_own(self, host: bytes) -> bool:
        """Whether the page is called by this; no name of another can be an address."""
        name = _name(host)
        return self._hosts is None or name in self._hosts or name.endswith(".localhost") or _is_address(name)


class BoundedConnection(_Protocol):
    """One connection to a public page; the server's own protocol waits for ever for the rest of a head."""

    def connection_made(self, transport: Any) -> None:
        """As the server's; one too many of an address ends at once."""
        super().connection_made(transport)
        self._watch: asyncio.TimerHandle | None = None
        self._look(object())
        address, _ = self.client or ("0.0.0.0", 0)
        self.network = network_of(address)
        alike = sum(getattr(c, "network", None) == self.network for c in self.connections)
        # Through a trusted proxy come many visitors, whose requests are counted by the gate.
        proxies = map(ip_network, _entries("FORWARDED_ALLOW_IPS"))
        if alike > CONNECTIONS and not any(ip_address(address) in proxy for proxy in proxies):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _look(self, last: object) -> None:
        """End a connection that has had no request since the last look, and no answer under way."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is last:
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(HEADER_SECONDS, self._look, self.cycle)


def _entries(variable: str, otherwise: str = "") -> list[str]:
    """What a variable lists, with commas between."""
    return [entry.strip() for entry in os.environ.get(variable, otherwise).split(",") if entry.strip()]


def _name(host: bytes) -> str:
    """Of a host, without its port; empty if it is none."""
    found = HOST.fullmatch(host.strip())
    name = found[1].decode().lower() if found else ""
    return "" if name.startswith("[") and not _is_address(name) else name


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _stays(name: bytes, value: bytes) -> bool:
    """Whether a header is handed on; where there are several proxies each adds its own place."""
    if name not in (*PLACES, SCHEME):
        return name != _HEADER
    is_place = _name if name in PLACES else (b"http", b"https").__contains__
    return len(value) <= MOST and all(is_place(each.strip()) for each in value.split(b","))
