"""Stop signals: one a job, of which each visitor has at most one of each kind."""

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
    """Keeps the stop signals of each visitor's runs, one of each kind of job, from the press of Run to the end."""

    def __init__(self) -> None:
        self._events: dict[str, dict[str, Stop]] = {}
        self._lock = Lock()

    def arm(self, session: str, kind: str) -> None:
        """A fresh signal for a new run; an older run of the same kind and visitor is told to end."""
        with self._lock:
            mine = self._events.setdefault(session, {})
            if kind in mine:
                mine[kind].set()
            mine[kind] = Stop()

    def signal(self, session: str, kind: str) -> Stop:
        """The signal of the visitor's run of this kind."""
        with self._lock:
            return self._events.setdefault(session, {}).setdefault(kind, Stop())

    def running(self, session: str, kind: str | None = None) -> bool:
        """Whether the visitor has a run, of this kind if one is named."""
        with self._lock:
            mine = self._events.get(session, {})
            return bool(mine) if kind is None else kind in mine

    def stop(self, session: str) -> None:
        """Tell all of the visitor's runs, waiting or going, to end."""
        with self._lock:
            for stop in self._events.get(session, {}).values():
                stop.set()

    def end(self, session: str, kind: str) -> None:
        """The visitor's run of this kind has ended."""
        with self._lock:
            mine = self._events.get(session, {})
            stop = mine.pop(kind, None)
            if not mine:
                self._events.pop(session, None)
        if stop is not None:
            stop.set()

    def sessions(self) -> set[str]:
        """The visitors of whom a signal is kept."""
        with self._lock:
            return {*self._events}

    def forget(self, session: str) -> None:
        """The visitor left: nothing goes on and nothing is kept."""
        self.stop(session)
        with self._lock:
            self._events.pop(session, None)
