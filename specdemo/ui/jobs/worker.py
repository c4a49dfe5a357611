"""Decoding in the models' thread while a visitor's thread looks on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from contextvars import copy_context
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

UPDATE_SECONDS, BEAT_SECONDS = 0.1, 1.0
T = TypeVar("T")


class WorkerCrash(RuntimeError):
    """A run was ended by what is no ``Exception``, such as ``SystemExit`` raised inside a library."""


def named(error: Exception) -> str:
    """What went wrong, as people call it."""
    return type(error.__cause__ if isinstance(error, WorkerCrash) else error).__name__


def in_thread(thread: Executor, work: Callable[..., T], *arguments: Any) -> T:
    """What ``work`` returns in ``thread``; waits for it, and raises what it raised as :func:`outcome` does."""
    return outcome(thread.submit(work, *arguments))


def outcome(job: Future[T]) -> T:
    """What a job in the models' thread returned, once it is over.

    Raises what the job raised, without the local variables on its way: they hold the caches of the lanes, which
    would stay in memory for as long as somebody looks at the error.

    Raises:
        WorkerCrash: it was no ``Exception``. Passed on as it was, it would end the server instead of the run.
    """
    wait([job])
    error = job.exception()
    if error is None:
        return job.result()
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__
    try:
        if isinstance(error, Exception):
            raise error
        raise WorkerCrash(f"{type(error).__name__}: {error}") from error
    finally:
        del job, error, chain  # the error's own traceback leads here


def gathered(
    thread: Executor, start: Callable[[], Any], stop: Event, *, beats: bool = False
) -> Generator[list[Any]]:
    """Run a generator in ``thread``; yields what it gave, gathered about ten times a second.

    With ``beats`` it yields as often when nothing is new, so that whoever looks on can look elsewhere too.

    Decoding never waits for the browser: the models' thread only puts into a queue. Setting ``stop`` or closing
    this iterator ends the generator at its next value. Raises what the generator raised, as :func:`outcome` does.
    """
    values: SimpleQueue[Any] = SimpleQueue()
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
            if news or beats:
                yield news
        outcome(worker)  # raises what ended the worker, if anything did
    finally:
        left.set()
        wait([worker])


def beating(values: Generator[T], stop: Event) -> Generator[T | None]:
    """What a generator gives, and None for each second in which it gives nothing.

    Closing this iterator sets ``stop`` at once, also where the generator waits for something silent.
    """

    def advance() -> T | None:
        return next(values, None)

    with ThreadPoolExecutor(1, "call") as thread, closing(values):
        while True:
            new = thread.submit(copy_context().run, advance)
            try:
                while not wait([new], BEAT_SECONDS).done:
                    yield None
                if (value := new.result()) is None:
                    return
                yield value
            except GeneratorExit:
                stop.set()
                wait([new])
                raise
