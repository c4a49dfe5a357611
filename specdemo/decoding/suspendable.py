"""A call that stands still whenever it has handed something over: a generator made of a callback."""

from __future__ import annotations

from collections.abc import Callable, Generator
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
Give = Callable[[T], None]
Check = Callable[[], None]


class _Closed(BaseException):
    """Ends the call from inside; no ``Exception``, so that nothing on its way out takes it for an error."""


def suspendable(call: Callable[[Give[T], Check], object]) -> Generator[T]:
    """What ``call(give, check)`` gives, one value at a time; between two values nothing of it runs.

    Python suspends generators only, so the call has a thread of its own, which works while ``next`` waits for it.
    Closing the generator ends the call where it stands, or, if ``next`` was interrupted (Ctrl-C), where it next
    gives or checks, and returns when it has ended. Raises what the call raised.

    Args:
        call: hands over values by ``give``, and calls ``check`` often.
    """
    turns: SimpleQueue[None] = SimpleQueue()
    given: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
    closed = Event()

    def check() -> None:
        if closed.is_set():
            raise _Closed

    def give(value: T) -> None:
        given.put((value,))
        turns.get()
        check()

    def work() -> None:
        try:
            call(give, check)
        except BaseException as error:  # raised where the values are awaited
            given.put(error)
        else:
            given.put(None)

    thread = Thread(target=work, name="suspendable", daemon=True)  # standing still, it must not delay an exit
    thread.start()
    try:
        while (news := given.get()) is not None:
            if isinstance(news, BaseException):
                raise news
            yield news[0]
            turns.put(None)
    finally:
        closed.set()
        turns.put(None)
        thread.join()
