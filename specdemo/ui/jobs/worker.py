"""Decoding in the models' thread while a visitor's thread looks on, and the signals that stop it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from contextvars import copy_context
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, TypeVar
from weakref import WeakSet

UPDATE_SECONDS = 0.1
T = TypeVar("T")


class WorkerCrash(RuntimeError):
    """A run was ended by what is no ``Exception``, such as ``SystemExit`` raised inside a library."""


def named(error: Exception) -> str:
    return type(error.__cause__ if isinstance(error, WorkerCrash) else error).__name__


def in_thread(thread: Executor, work: Callable[..., T], *arguments: Any) -> T:
    """What ``work`` returns in ``thread``; waits for it, and raises what it raised as :func:`outcome` does."""
    return outcome(thread.submit(work, *arguments))


def stepped(thread: Executor, stop: Event, start: Callable[..., Any], *arguments: Any) -> Generator[Any]:
    """The values of a generator that ``start`` gives in ``thread``, each a task of it, until ``stop`` is set."""
    with closing(in_thread(thread, start, *arguments)) as steps:
        while not stop.is_set() and (new := in_thread(thread, next, steps, None)) is not None:
            yield new


def outcome(job: Future[T]) -> T:
    """What a job in the models' thread returned, once it is over.

    Raises what the job raised, without the local variables on its way: they hold the caches of the lanes, which
    would stay in memory for as long as somebody looks at the error. What was no ``Exception`` is a WorkerCrash:
    passed on as it was, it would end the server instead of the run.
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

    worker = thread.submit(copy_context().run, work)
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


def watched(start: Callable[[], Any]) -> Generator[list[Any]]:
    """Run a generator in a thread of its own, to its end; as :func:`gathered` with ``beats``."""
    with (
        ThreadPoolExecutor(1, "watched") as thread,
        closing(gathered(thread, start, Event(), beats=True)) as updates,
    ):
        yield from updates


_all: WeakSet[Stop] = WeakSet()
_all_lock = Lock()


def stop_everyone() -> None:
    """The program ends: tell all runs, whoever began them."""
    with _all_lock:
        stops = list(_all)
    for stop in stops:
        stop.set()


class Stop(Event):
    """Ends a run within one round when it is set."""

    reason: str | None = None  # a line for people, where it was not the visitor who set it

    def __init__(self) -> None:
        super().__init__()
        with _all_lock:
            _all.add(self)

    def end(self, reason: str) -> None:
        """Set it for a reason; one that is set already keeps its own."""
        if not self.is_set():
            self.reason = reason
        self.set()


def reason_of(stop: Event, otherwise: str) -> str:
    """Why a run was stopped, for people; ``otherwise`` if it was the visitor, or nobody said."""
    return getattr(stop, "reason", None) or otherwise


class StopSignals:
    """The stop signals of each visitor's runs, one of each kind of job, from the press of Run to the end."""

    def __init__(self) -> None:
        self._stops: dict[str, dict[str, Stop]] = {}

    def arm(self, session: str, kind: str) -> None:
        """A fresh signal for a new run; an older run of the same kind and visitor is told to end."""
        self.end(session, kind)
        self.signal(session, kind)

    def signal(self, session: str, kind: str) -> Stop:
        return self._stops.setdefault(session, {}).setdefault(kind, Stop())

    def running(self, session: str, kind: str | None = None) -> bool:
        stops = self._stops.get(session, {})
        return bool(stops) if kind is None else kind in stops

    def stop(self, session: str) -> None:
        """Tell all of the visitor's runs, waiting or going, to end."""
        for stop in [*self._stops.get(session, {}).values()]:
            stop.set()

    def end(self, session: str, kind: str) -> None:
        if (stop := self._stops.get(session, {}).pop(kind, None)) is not None:
            stop.set()

    def sessions(self) -> set[str]:
        return {*self._stops}

    def forget(self, session: str) -> None:
        self.stop(session)
        self._stops.pop(session, None)
