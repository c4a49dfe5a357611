"""The app from its start to its end: Ctrl-C, or the SIGTERM by which Spaces and containers stop a program."""

from __future__ import annotations

import os
import signal
import socket
import time
from threading import Timer
from typing import Any, NoReturn

import gradio as gr
from gradio.http_server import INITIAL_PORT_VALUE, LOCALHOST_NAME, TRY_NUM_PORTS

from specdemo.ui.jobs.worker import stop_everyone
from specdemo.ui.page import launch_options

PORT = "GRADIO_SERVER_PORT"
GRACE_SECONDS = 3
"""For what goes on when the server is closed, such as one forward of a large model; then the process ends."""


def serve(page: gr.Blocks) -> None:
    """Launch the page and block until the process is told to end; runs end first, within one round each."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        launch(page)
        while page.is_running:
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("Closing.", flush=True)
    # Python waits at its end for every thread that still decodes, and the server for every answer under way.
    force = Timer(GRACE_SECONDS, os._exit, [0])
    force.daemon = True
    force.start()
    stop_everyone()
    page.close(verbose=False)


def launch(page: gr.Blocks) -> None:
    """Launch the page on ``GRADIO_SERVER_PORT``, or without one on the first port from 7860 that is free.

    Gradio tries ports as well, but with one server for all of them, which can start only once: if another app
    takes a port between Gradio's look and its start, it never starts.

    Raises:
        SystemExit: no port is free; says what to do.
    """
    stated = os.environ.get(PORT)
    ports = range(INITIAL_PORT_VALUE, INITIAL_PORT_VALUE + (1 if stated else TRY_NUM_PORTS))
    for port in ports:
        if _taken(port):
            continue
        try:
            page.launch(prevent_thread_lock=True, server_port=port, **launch_options())
            return
        except OSError:
            if not _taken(port):  # not another app's doing
                raise
    where = f"Port {stated} is" if stated else f"The ports from {ports[0]} to {ports[-1]} are"
    raise SystemExit(f"{where} taken by another program; end it, or give another port in {PORT}.")


def _taken(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that just ended holds nothing up
        try:
            trial.bind((LOCALHOST_NAME, port))
        except OSError:
            return True
    return False


def _end(number: int, _: Any) -> NoReturn:
    """Leave the wait for the end; a second signal ends the process at once."""
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, lambda *_: os._exit(128 + number))
    raise KeyboardInterrupt
