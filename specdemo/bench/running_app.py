"""The app, running for a measurement: in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

APP = Path(__file__).resolve().parents[2] / "app.py"
START_SECONDS = 180


@contextmanager
def app_here(store: Any = None, **options: Any) -> Iterator[str]:
    """The app in this process; its address.

    Args:
        store: of the pairs; None for one of its own.
        options: of the launch, beside the app's own ones.
    """
    from specdemo.ui.page import build, launch_options  # which a process that only visits the app does not need

    demo = build(store) if store is not None else build()
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **{**launch_options(), **options})
    try:
        yield url.rstrip("/")
    finally:
        demo.close()


@contextmanager
def app_process(port: int, **environment: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The app in a process of its own, once it gives a page: its address, and the process.

    ``environment``: variables beside those of this process.
    """
    variables = {"GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False", **environment}
    command = [sys.executable, str(APP)]
    app = subprocess.Popen(command, cwd=APP.parent, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _await_page(url)
        yield url, app
    finally:
        app.terminate()
        app.wait(30)


def _await_page(url: str) -> None:
    until = time.perf_counter() + START_SECONDS
    while time.perf_counter() < until:
        try:
            httpx.get(url, timeout=5).raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise TimeoutError(f"the app gave no page at {url} within {START_SECONDS} seconds")
