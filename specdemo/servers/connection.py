"""One lane's HTTP connection to one deployment: the streamed response, and the small requests around it."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from statistics import median
from typing import Any

import httpx2

from specdemo.servers.failures import EndedByServer, Malformed, Refused, Unending, parsed
from specdemo.servers.pair import ServerPair

CONNECT_SECONDS = 5.0
SIDE_SECONDS = 5.0  # for every request but the streamed one
MOST_BYTES = 2**24  # of a page, or of one line of a stream, which may hold a long prompt and the output so far
MOST_STREAMED = 16 * MOST_BYTES
NETWORK_REQUESTS = 5


@cache
def _ssl_context() -> ssl.SSLContext:
    """Loading the certificates takes longer than many a request, so it is done once."""
    return httpx2.create_ssl_context()


class Connection:
    """Requests of one lane, one after the other. Only :meth:`abort` may be called from another thread."""

    def __init__(self, pair: ServerPair, strategy: str) -> None:
        self._root = pair.url_of(strategy).removesuffix("/v1")
        self._sockets: list[Any] = []
        self._pages: dict[str, Any] = {}
        self.aborted = False  # whether :meth:`abort` was called
        headers = {"Accept-Encoding": "identity"}  # a small body could unfold to any size
        if pair.api_key:
            headers["Authorization"] = f"Bearer {pair.api_key}"
        self._http = httpx2.Client(
            headers=headers,
            timeout=httpx2.Timeout(pair.timeout, connect=min(CONNECT_SECONDS, pair.timeout)),
            event_hooks={"request": [self._prepare]},
            verify=_ssl_context(),
        )

    def stream(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Send the request of a streamed response, to be closed; Refused is not retried: the lane's clock runs."""
        # llama.cpp closes the connection after a stream, whatever it says.
        request = self._http.build_request("POST", self._root + path, json=body, headers={"Connection": "close"})
        response = self._http.send(request, stream=True)
        if not response.is_success:
            raise Refused(_read(response, SIDE_SECONDS))
        return response

    def network_seconds(self) -> float | None:
        """The median time of an empty request over an open connection; None if the server refuses it."""
        path = "/health" if self.get("/health").is_success else "/v1/models"
        times = []
        for _ in range(NETWORK_REQUESTS):
            began = time.perf_counter()
            if not self.get(path).is_success:
                return None
            times.append(time.perf_counter() - began)
        return median(times)

    def get(self, path: str, seconds: float | None = None) -> httpx2.Response:
        """A small request to a path below the server's root, with its own time limit."""
        return self._small("GET", path, seconds)

    def page(self, path: str) -> Any:
        """The JSON at a path, asked for once; None if there is none."""
        if path not in self._pages:
            # Over a connection of its own, since a server that fails at a page may cut the connection.
            response = self._small("GET", path, headers={"Connection": "close"})
            self._pages[path] = None
            with suppress(Malformed):
                self._pages[path] = parsed(response.content) if response.is_success else None
        return self._pages[path]

    def post(self, path: str, body: dict[str, Any], seconds: float | None = None) -> Any:
        """The JSON of the response to a small request with a JSON body; else Refused, or Malformed."""
        response = self._small("POST", path, seconds, json=body)
        if not response.is_success:
            raise Refused(response)
        return parsed(response.content)

    def _small(self, method: str, path: str, seconds: float | None = None, **how: Any) -> httpx2.Response:
        seconds = seconds or SIDE_SECONDS
        request = self._http.build_request(method, self._root + path, timeout=seconds, **how)
        return _read(self._http.send(request, stream=True), seconds)

    def abort(self) -> None:
        """End whatever is under way; the thread that reads from it gets an error at once."""
        self.aborted = True
        for stream in self._sockets:
            plain = stream.get_extra_info("socket")
            # Only a shutdown wakes a thread that waits for the next bytes; closing does not.
            with suppress(OSError):  # it has ended by itself
                plain.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all sockets; to be called when no other thread reads from them."""
        self._http.close()

    def _prepare(self, request: httpx2.Request) -> None:
        if self.aborted:
            raise httpx2.ReadError("the lane was closed", request=request)
        request.extensions["trace"] = self._remember_socket

    def _remember_socket(self, event: str, details: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets.append(details["return_value"])
            if self.aborted:
                self.abort()


def _bounded(response: httpx2.Response, most: int, seconds: float) -> Iterator[bytes]:
    """A response's body, broken off where it is larger or takes longer than one of its kind."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Malformed("it is compressed, which was not asked for")
    until = time.perf_counter() + seconds
    for data in response.iter_raw():
        most -= len(data)
        if most < 0:
            raise Malformed("it is too long")
        if time.perf_counter() > until:
            raise Unending(f"had not ended its answer after {seconds:.0f} s")
        yield data


def _read(response: httpx2.Response, seconds: float) -> httpx2.Response:
    """A response with its whole body."""
    try:
        body = b"".join(_bounded(response, MOST_BYTES, seconds))
    finally:
        response.close()
    return httpx2.Response(response.status_code, headers=response.headers, content=body)


def events(response: httpx2.Response, pause: float, seconds: float) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream: server-sent events, or one object a line as Ollama sends them.

    Args:
        response: to a streamed request.
        pause: the longest time between two of them, though comments keep the connection alive.
        seconds: the longest time for all of them.

    ReadTimeout or Unending where it takes longer, EndedByServer for an error in place of an event, else Malformed.
    """
    heard = time.perf_counter()
    for line in _lines(_bounded(response, MOST_STREAMED, seconds)):
        data = line.removeprefix(b"data:").strip() if line.startswith((b"data:", b"{")) else b""
        if data == b"[DONE]":
            return
        if not data:  # the end of an event, its type, or a comment
            if time.perf_counter() - heard > pause:
                raise httpx2.ReadTimeout("nothing but comments")
            continue
        event = parsed(data)
        if not isinstance(event, dict):
            raise Malformed("it is no object")
        if event.get("error"):
            raise EndedByServer(event["error"])
        yield event
        heard = time.perf_counter()


def _lines(body: Iterator[bytes]) -> Iterator[bytes]:
    """Lines end with a line feed alone: JSON text may hold the other line separators of Unicode."""
    rest = b""
    for data in body:
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > MOST_BYTES:
            raise Malformed("one of its lines is too long")
    yield rest
