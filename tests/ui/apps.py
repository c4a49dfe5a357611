"""The app as ``python app.py`` builds it, for tests that visit it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from specdemo.runs.store import PairStore
from specdemo.ui.jobs.queue import JobQueue
from specdemo.ui.page import build, launch_options


@contextmanager
def launched(store: PairStore | None = None, queue: JobQueue | None = None) -> Iterator[str]:
    """The address of an app of its own, on a free port, which ends with the block."""
    demo = build(store, queue)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    try:
        yield url
    finally:
        demo.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_page(app: subprocess.Popen[Any], port: int, seconds: float = 180) -> str:
    """The address of an app in a program of its own, once it has a page; without one the program is ended."""
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + seconds
    while time.monotonic() < end and app.poll() is None:
        try:
            httpx.get(f"{url}/config", timeout=5).raise_for_status()
            return url
        except httpx.TransportError:
            time.sleep(0.2)
    app.kill()
    raise AssertionError(f"the app gave no page: {app.communicate()[0]}")
