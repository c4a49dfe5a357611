"""Stop signals: one a job, of which each visitor has at most one on a tab."""

from __future__ import annotations

from threading import Event, Lock
from weakref import WeakSet

_all: WeakSet[Stop] = WeakSet()
_all_lock = Lock()


def stop_everyone() -> None:
    """The program ends: tell all runs, whoever began them."""
    with _all_lock:
        stops = list(_all)
    for stop in stops:
        stop.set()


class Stop(Event):
    """Ends a run within one round when it is set.

    Attributes:
        reason: a line for people, where it was not the visitor who set it.
    """

    reason: str | None = None

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
    """Keeps the stop signal of each visitor's run, from the press of Run to its end."""

    def __init__(self) -> None:
        self._events: dict[str, Stop] = {}
        self._lock = Lock()

    def arm(self, session: str) -> None:
        """A fresh signal for a new run; an older run of the same visitor is told to end."""
        with self._lock:
            if session in self._events:
                self._events[session].set()
            self._events[session] = Stop()

    def signal(self, session: str) -> Stop:
        """The signal of the visitor's run."""
        with self._lock:
            return self._events.setdefault(session, Stop())

    def running(self, session: str) -> bool:
        """Whether the visitor has a run."""
        with self._lock:
            return session in self._events

    def stop(self, session: str) -> None:
        """Tell the visitor's run, waiting or going, to end."""
        with self._lock:
            if session in self._events:
                self._events[session].set()

    def sessions(self) -> set[str]:
        """The visitors of whom a signal is kept."""
        with self._lock:
            return {*self._events}

    def forget(self, session: str) -> None:
        """The visitor left, or their run has ended: nothing goes on and nothing is kept."""
        self.stop(session)
        with self._lock:
            self._events.pop(session, None)
