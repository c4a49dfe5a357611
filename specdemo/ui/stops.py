"""One stop signal a visitor."""

from __future__ import annotations

from threading import Event, Lock
from weakref import WeakSet


class Stops:
    """Keeps the stop signal of each visitor's run, from the press of Run to its end."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}
        self._lock = Lock()
        _everyone.add(self)

    def arm(self, session: str) -> None:
        """A fresh signal for a new run; an older run of the same visitor is told to end."""
        with self._lock:
            if session in self._events:
                self._events[session].set()
            self._events[session] = Event()

    def signal(self, session: str) -> Event:
        """The signal of the visitor's run."""
        with self._lock:
            return self._events.setdefault(session, Event())

    def stop(self, session: str) -> None:
        """Tell the visitor's run, waiting or going, to end."""
        with self._lock:
            if session in self._events:
                self._events[session].set()

    def stop_all(self) -> None:
        """Tell the runs of all visitors to end."""
        with self._lock:
            for event in self._events.values():
                event.set()

    def forget(self, session: str) -> None:
        """The visitor left: end their run and keep nothing of them."""
        self.stop(session)
        with self._lock:
            self._events.pop(session, None)


_everyone: WeakSet[Stops] = WeakSet()


def stop_everyone() -> None:
    """The program ends: tell all runs of all tabs."""
    for stops in list(_everyone):
        stops.stop_all()
