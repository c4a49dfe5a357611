"""Ctrl-C while modules are imported, which takes seconds, ends the process in one line."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130


@contextmanager
def interruptible() -> Iterator[None]:
    """For blocks of imports: a KeyboardInterrupt there can be lost in one of Python's callbacks, or half-import.

    Nothing changes outside the main thread, and where interrupts are ignored or handled already.
    """
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not own or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    os.write(2, b"Interrupted.\n")
    os._exit(INTERRUPTED)
