"""One lane's HTTP connection to one deployment: the streamed response, and the small requests around it."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from statistics import median
from typing import Any

import httpx2

from specdemo.servers.failures import EndedByServer, Malformed, Refused
from specdemo.servers.pair import ServerPair

CONNECT_SECONDS = 5.0
SIDE_SECONDS = 5.0  # for every request but the streamed one
NETWORK_REQUESTS = 5
HEADERS = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"}
"""The only headers that are sent, besides the pair's own key."""


@cache
def _ssl_context() -> ssl.SSLContext:
    """Loading the certificates takes longer than many a request, so it is done once."""
    return httpx2.create_ssl_context()


class Connection:
    """Requests of one lane, one after the other. Only :meth:`abort` may be called from another thread."""

    def __init__(self, pair: ServerPair, strategy: str) -> None:
        url = pair.url_of(strategy)
        self._root = url.removesuffix("/v1")
        self._sockets: list[Any] = []
        self._aborted = False
        self._key = pair.api_key
        self._http = httpx2.Client(
            timeout=httpx2.Timeout(pair.timeout, connect=min(CONNECT_SECONDS, pair.timeout)),
            event_hooks={"request": [self._prepare]},
            verify=_ssl_context(),
        )

    @property
    def aborted(self) -> bool:
        """Whether :meth:`abort` was called."""
        return self._aborted

    def stream(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Send the request of a streamed response; to be closed. Nothing is retried: the lane's clock runs.

        Raises:
            Refused: another status than success.
        """
        request = self._http.build_request("POST", self._root + path, json=body)
        response = self._http.send(request, stream=True)
        if not response.is_success:
            response.read()
            raise Refused(response)
        return response

    def network_seconds(self) -> float | None:
        """The median time of an empty request over an open connection; None if the server refuses it.

        Raises:
            httpx2.HTTPError: nobody is there.
        """
        path = "/health" if self.get("/health").is_success else "/v1/models"
        times = []
        for _ in range(NETWORK_REQUESTS):
            began = time.perf_counter()
            if not self.get(path).is_success:
                return None
            times.append(time.perf_counter() - began)
        return median(times)

    def get(self, path: str, seconds: float = SIDE_SECONDS, *, alone: bool = False) -> httpx2.Response:
        """A small request to a path below the server's root, with its own time limit.

        ``alone``: over a connection of its own, since a server that fails at a page may cut the connection.
        """
        headers = {"Connection": "close"} if alone else {}
        return self._http.get(self._root + path, timeout=seconds, headers=headers)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON of the response to a small request with a JSON body.

        Raises:
            Refused: another status than success.
        """
        response = self._http.post(self._root + path, json=body, timeout=SIDE_SECONDS)
        if not response.is_success:
            raise Refused(response)
        return response.json()

    def abort(self) -> None:
        """End whatever is under way; the thread that reads from it gets an error at once."""
        self._aborted = True
        for stream in self._sockets:
            plain = stream.get_extra_info("socket")
            # Only a shutdown wakes a thread that waits for the next bytes; closing does not.
            with suppress(OSError):  # it has ended by itself
                plain.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all sockets; to be called when no other thread reads from them."""
        self._http.close()

    def _prepare(self, request: httpx2.Request) -> None:
        if self._aborted:
            raise httpx2.ReadError("the lane was closed", request=request)
        # The environment may name keys (a .netrc file), which are not meant for this server.
        for name in set(request.headers) - HEADERS:
            del request.headers[name]
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        request.extensions["trace"] = self._remember_socket

    def _remember_socket(self, event: str, details: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets.append(details["return_value"])
            if self._aborted:
                self.abort()


def events(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream: server-sent events, or one object a line as Ollama sends them.

    Raises:
        EndedByServer: the server reports an error in place of an event.
        Malformed, json.JSONDecodeError, UnicodeDecodeError: a line is no event.
    """
    for line in _lines(response):
        data = line.removeprefix(b"data:").strip() if line.startswith((b"data:", b"{")) else b""
        if data == b"[DONE]":
            return
        if not data:  # the end of an event, its type, or a comment that keeps the connection alive
            continue
        event = json.loads(data)
        if not isinstance(event, dict):
            raise Malformed("it is no object")
        if event.get("error"):
            raise EndedByServer(event["error"])
        yield event


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    """Lines end with a line feed alone: JSON text may hold the other line separators of Unicode."""
    held = b""
    for data in response.iter_bytes():
        *whole, held = (held + data).split(b"\n")
        yield from whole
    yield held
