"""Decoding in the models' thread while a visitor's thread looks on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from contextlib import closing
from queue import SimpleQueue
from threading import Event
from typing import TypeVar

UPDATE_SECONDS = 0.1
T = TypeVar("T")


def gathered(thread: Executor, start: Callable[[], Iterator[T]], stop: Event) -> Iterator[list[T]]:
    """Run a generator in ``thread``; yields what it gave, gathered about ten times a second.

    Decoding never waits for the browser: the models' thread only puts into a queue. Setting ``stop`` or closing
    this iterator ends the generator at its next value. Raises what the generator raised.
    """
    values: SimpleQueue[T] = SimpleQueue()
    left = Event()

    def work() -> None:
        with closing(start()) as source:
            for value in source:
                values.put(value)
                if stop.is_set() or left.is_set():
                    break

    worker = thread.submit(work)
    try:
        running = True
        while running:
            # One sleep an update: waking for every token would take the interpreter from the decoding.
            running = bool(wait([worker], timeout=UPDATE_SECONDS).not_done)
            news = []
            while not values.empty():
                news.append(values.get())
            if news:
                yield news
        worker.result()  # raises what ended the worker, if anything did
    finally:
        left.set()
        wait([worker])
