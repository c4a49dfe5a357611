"""The last recording of each visitor, to be saved while they are here."""

from __future__ import annotations

from threading import Lock

from specdemo.recording import Recording


class SessionRecordings:
    """What each visitor last ran or opened, and who is running."""

    def __init__(self) -> None:
        self._recordings: dict[str, Recording] = {}
        self._running: set[str] = set()
        self._lock = Lock()

    def begin(self, session: str) -> None:
        """The visitor starts a run; what was kept of them goes."""
        with self._lock:
            self._recordings.pop(session, None)
            self._running.add(session)

    def end(self, session: str) -> None:
        """Their run is over, in whatever way."""
        with self._lock:
            self._running.discard(session)

    def running(self, session: str) -> bool:
        """Whether their run goes on, or waits for its turn."""
        with self._lock:
            return session in self._running

    def finish(self, session: str, recording: Recording) -> None:
        """Keep what a run gave, unless the visitor left meanwhile."""
        with self._lock:
            if session in self._running:
                self._recordings[session] = recording

    def keep(self, session: str, recording: Recording) -> None:
        """Keep this one, until the next."""
        with self._lock:
            self._recordings[session] = recording

    def get(self, session: str) -> Recording | None:
        """What they last ran or opened."""
        with self._lock:
            return self._recordings.get(session)

    def forget(self, session: str) -> None:
        """The visitor left: keep nothing of them."""
        with self._lock:
            self._recordings.pop(session, None)
            self._running.discard(session)
