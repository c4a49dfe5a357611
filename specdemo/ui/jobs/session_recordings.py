"""The last recording of each visitor, to be saved while they are here."""

from __future__ import annotations

import pickle
import zlib
from collections import OrderedDict
from threading import Lock

from specdemo.recording import Recording


class SessionRecordings:
    """What each visitor last ran or opened, and who is running.

    Recordings are kept packed, so that it is known what they take; the oldest go where it is too much.

    Args:
        most: bytes of all of them.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._running: set[str] = set()
        self._lock = Lock()

    def begin(self, session: str) -> None:
        """The visitor starts a run; what was kept of them goes."""
        with self._lock:
            self._drop(session)
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
        packed = _pack(recording)
        with self._lock:
            if session in self._running:
                self._put(session, packed)

    def keep(self, session: str, recording: Recording) -> None:
        """Keep this one, until the next."""
        packed = _pack(recording)
        with self._lock:
            self._put(session, packed)

    def has(self, session: str) -> bool:
        """Whether something is kept of them."""
        with self._lock:
            return session in self._packed

    def get(self, session: str) -> Recording | None:
        """What they last ran or opened."""
        with self._lock:
            packed = self._packed.get(session)
        return pickle.loads(zlib.decompress(packed)) if packed is not None else None

    def sessions(self) -> set[str]:
        """The visitors of whom something is kept."""
        with self._lock:
            return {*self._packed, *self._running}

    def forget(self, session: str) -> None:
        """The visitor left: keep nothing of them."""
        with self._lock:
            self._drop(session)
            self._running.discard(session)

    def _put(self, session: str, packed: bytes) -> None:
        self._drop(session)
        self._packed[session] = packed
        self._size += len(packed)
        while self._size > self._most:
            self._drop(next(iter(self._packed)))

    def _drop(self, session: str) -> None:
        self._size -= len(self._packed.pop(session, b""))


def _pack(recording: Recording) -> bytes:
    """Pickled by this process for itself, and about a tenth of what the objects take."""
    return zlib.compress(pickle.dumps(recording), 1)
