"""The app as ``python app.py`` builds it, for tests that visit it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
