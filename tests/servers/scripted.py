"""An HTTP server on loopback that answers as a test says."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Exchange(BaseHTTPRequestHandler):
    """One request, by ``command``, ``path``, ``headers`` and ``content``, and the ways to answer it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def parse_request(self) -> bool:
        self.close_connection = True  # where it has crashed; else the request says
        return not self.server.script.crashed and super().parse_request()

    def do_GET(self) -> None:
        self.content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.script.answer(self)

    do_HEAD = do_POST = do_GET

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """The whole answer: bytes, or anything that becomes JSON."""
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        body = content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
        self.head(status, {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def stream(self, kind: str = "text/event-stream") -> None:
        """Begin an answer in chunks."""
        self.head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked"})

    def write(self, data: bytes) -> None:
        """A chunk; the empty one ends the answer."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def event(self, data: Any) -> None:
        """A server-sent event: bytes as they are, anything else as JSON."""
        text = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
        self.write(b"data: " + text + b"\n\n")

    def cut(self) -> None:
        """Break the connection off."""
        self.close_connection = True
        with suppress(OSError):  # the client left first
            self.connection.shutdown(socket.SHUT_RDWR)


class ScriptedServer:
    """Answers from the beginning of a ``with`` statement to its end.

    Attributes:
        answer: the script; a subclass may have it as a method.
        crashed: no request is answered any more.
        gone: set when a client left in the middle of an answer.
    """

    answer: Callable[[Exchange], None]
    crashed = False

    def __init__(self, answer: Callable[[Exchange], None] | None = None) -> None:
        if answer is not None:
            self.answer = answer
        self.gone = threading.Event()
        self._http = _Http(self)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script: ScriptedServer) -> None:
        self.script = script
        super().__init__(("127.0.0.1", 0), Exchange)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, at whatever moment, is what tests are about; anything else is told."""
        if isinstance(sys.exception(), OSError):
            self.script.gone.set()
        else:
            super().handle_error(request, client_address)
