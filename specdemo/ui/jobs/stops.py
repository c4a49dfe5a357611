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
        self._stops: dict[tuple[str, str], Stop] = {}

    def arm(self, session: str, kind: str) -> None:
        """A fresh signal for a new run; an older run of the same kind and visitor is told to end."""
        self.end(session, kind)
        self._stops[session, kind] = Stop()

    def signal(self, session: str, kind: str) -> Stop:
        """The signal of the visitor's run of this kind."""
        return self._stops.setdefault((session, kind), Stop())

    def running(self, session: str, kind: str | None = None) -> bool:
        """Whether the visitor has a run, of this kind if one is named."""
        return any(kind in (None, own) for own in self._kinds(session))

    def stop(self, session: str) -> None:
        """Tell all of the visitor's runs, waiting or going, to end."""
        for kind in self._kinds(session):
            if (stop := self._stops.get((session, kind))) is not None:
                stop.set()

    def end(self, session: str, kind: str) -> None:
        """The visitor's run of this kind has ended."""
        if (stop := self._stops.pop((session, kind), None)) is not None:
            stop.set()

    def sessions(self) -> set[str]:
        """The visitors of whom a signal is kept."""
        return {session for session, _ in [*self._stops]}

    def forget(self, session: str) -> None:
        """The visitor left: nothing goes on and nothing is kept."""
        for kind in self._kinds(session):
            self.end(session, kind)

    def _kinds(self, session: str) -> list[str]:
        """Of the visitor's runs; copied in one step, since others come and go meanwhile."""
        return [kind for owner, kind in [*self._stops] if owner == session]
