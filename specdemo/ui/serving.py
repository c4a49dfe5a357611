"""The app from its start to its end: Ctrl-C, or the SIGTERM by which Spaces and containers stop a program."""

from __future__ import annotations

import os
import signal
import time
from threading import Thread
from typing import Any, NoReturn

import gradio as gr

from specdemo.ui.jobs.stops import stop_everyone
from specdemo.ui.page import launch_options

GRACE_SECONDS = 3
"""For what goes on when the server is closed, such as one forward of a large model; then the process ends."""


def serve(page: gr.Blocks) -> None:
    """Launch the page and block until the process is told to end; runs end first, within one round each."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        page.launch(prevent_thread_lock=True, **launch_options())
        while page.is_running:
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("Closing.", flush=True)
    # Python waits at its end for every thread that still decodes, and the server for every answer under way.
    Thread(target=_force, name="end", daemon=True).start()
    stop_everyone()
    page.close(verbose=False)


def _end(number: int, _: Any) -> NoReturn:
    """Leave the wait for the end; a second signal ends the process at once."""
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, lambda *_: os._exit(128 + number))
    raise KeyboardInterrupt


def _force() -> NoReturn:
    time.sleep(GRACE_SECONDS)
    os._exit(0)
