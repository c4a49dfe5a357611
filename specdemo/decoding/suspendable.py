"""A call that stands still whenever it has handed something over: a generator made of a callback."""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import get_ident
from typing import TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")
Give = Callable[[T], None]


def suspendable(call: Callable[[Give[T]], object]) -> Generator[T]:
    """What ``call(give)`` gives, one value at a time; between two values nothing of it runs.

    Python suspends generators only, so the call has a stack of its own (a greenlet) in the thread that asks for
    values. A thread of its own would have a second team of OpenMP threads, and two teams slow each other down.
    Closing the generator ends the call where it gave its last value. Raises what the call raised.

    Raises:
        RuntimeError: another thread asks for a value than for the first.
    """
    thread = get_ident()

    def give(value: T) -> None:
        worker.parent.switch(value)

    worker = greenlet(lambda: call(give))
    try:
        while True:
            if get_ident() != thread:
                raise RuntimeError("transformers' own decoding goes on only in the thread that began to read it.")
            worker.parent = getcurrent()
            value = worker.switch()
            if worker.dead:
                return
            yield value
    finally:
        if get_ident() == thread:  # in any other thread it ends when it is collected
            worker.parent = getcurrent()
            worker.throw()
