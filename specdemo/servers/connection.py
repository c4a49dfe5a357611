"""One lane's connection to one deployment: the answer's stream, and the small requests around it."""

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
import openai

from specdemo.servers.pair import ServerPair

CONNECT_SECONDS = 5.0
SIDE_SECONDS = 5.0  # for anything but the answer itself
PROBES = 5
HEADERS = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"}
"""All that is sent with a request, but for the pair's own key."""


@cache
def _trust() -> ssl.SSLContext:
    """Whom to trust; reading the certificates takes longer than many a request."""
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
            event_hooks={"request": [self._watch]},
            verify=_trust(),
        )
        # No retries: the clock runs, and a request that was refused is said.
        self._openai = openai.OpenAI(base_url=url, api_key="none", http_client=self._http, max_retries=0)

    @property
    def aborted(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._aborted

    def answer(self, chat: bool, body: dict[str, Any], extra: dict[str, Any]) -> Iterator[Any]:
        """The chunks of one streamed answer; ``extra`` is what OpenAI's own API does not know."""
        api = self._openai.chat.completions if chat else self._openai.completions
        return api.create(**body, extra_body=extra, stream=True)

    def network_seconds(self) -> float | None:
        """The median time of an empty request, there and back, over a connection that stands; None if refused.

        Raises:
            httpx2.HTTPError: nobody is there.
        """
        path = "/health" if self.get("/health").is_success else "/v1/models"
        times = []
        for _ in range(PROBES):
            began = time.perf_counter()
            if not self.get(path).is_success:
                return None
            times.append(time.perf_counter() - began)
        return median(times)

    def get(self, path: str, seconds: float = SIDE_SECONDS) -> httpx2.Response:
        """A request beside the answer, to a path from the server's root, that may take so many seconds."""
        return self._http.get(self._root + path, timeout=seconds)

    def post(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        """The same with a body of JSON."""
        return self._http.post(self._root + path, json=body, timeout=SIDE_SECONDS)

    def abort(self) -> None:
        """End whatever is under way; whoever reads from it gets an error at once."""
        self._aborted = True
        for stream in self._sockets:
            plain = stream.get_extra_info("socket")
            # Only a shutdown wakes a thread that waits for the next bytes; closing does not.
            with suppress(OSError):  # it has ended by itself
                plain.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give back all sockets; from the thread that read from them."""
        self._http.close()

    def _watch(self, request: httpx2.Request) -> None:
        if self._aborted:
            raise httpx2.ReadError("the lane was closed", request=request)
        # openai adds keys and headers of the environment, which are not meant for this server.
        for name in set(request.headers) - HEADERS:
            del request.headers[name]
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        request.extensions["trace"] = self._note

    def _note(self, event: str, details: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets.append(details["return_value"])
            if self._aborted:
                self.abort()
