"""The recordings of each visitor, to be saved and looked at again while they are here."""

from __future__ import annotations

import pickle
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any

from specdemo.recording import Recording

HISTORY = 8
"""Runs of one visitor that are kept."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A recording that is kept packed, so that it is known what it takes.

    Attributes:
        packed: the recording.
        about: what the history says of it, as plain data; None if it was only opened.
    """

    packed: bytes
    about: dict[str, Any] | None


class SessionRecordings:
    """What each visitor ran, and what they last ran or opened, which is their current one; and who is running.

    The oldest go where it is too much.

    Args:
        most: bytes of all of them.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[tuple[str, int], Kept] = OrderedDict()
        self._current: dict[str, int] = {}
        self._running: set[str] = set()
        self._numbers = count(1)
        self._lock = Lock()

    def begin(self, session: str, *, afresh: bool = True) -> None:
        """The visitor starts a run; none of what they ran is current any more, unless it is run again."""
        with self._lock:
            if afresh:
                self._leave_current(session)
            self._running.add(session)

    def end(self, session: str) -> None:
        """Their run is over, in whatever way."""
        with self._lock:
            self._running.discard(session)

    def running(self, session: str) -> bool:
        """Whether their run goes on, or waits for its turn."""
        with self._lock:
            return session in self._running

    def finish(self, session: str, recording: Recording, about: dict[str, Any]) -> None:
        """Keep what a run gave, and what the history says of it, unless the visitor left meanwhile."""
        packed = _pack(recording)
        with self._lock:
            if session in self._running:
                again = session, self._current.get(session, 0)
                if again in self._kept:  # what was run again is one run
                    self._drop(again)
                self._put(session, Kept(packed, about))

    def keep(self, session: str, recording: Recording) -> None:
        """Keep one that was opened, while it is current."""
        packed = _pack(recording)
        with self._lock:
            self._put(session, Kept(packed, None))

    def look_back(self, session: str, number: int) -> Recording | None:
        """An earlier run of the visitor, which becomes current; None if it is not kept any more."""
        with self._lock:
            kept = self._kept.get((session, number))
            if kept is None or kept.about is None:
                return None
            self._leave_current(session)
            self._current[session] = number
        return _unpack(kept.packed)

    def has(self, session: str) -> bool:
        """Whether they have a current one."""
        with self._lock:
            return session in self._current

    def get(self, session: str) -> Recording | None:
        """The current one."""
        with self._lock:
            kept = self._kept.get((session, self._current.get(session, 0)))
        return _unpack(kept.packed) if kept is not None else None

    def history(self, session: str) -> list[dict[str, Any]]:
        """What they ran and is still kept, the latest first: each one's number and what is said of it."""
        with self._lock:
            current = self._current.get(session)
            mine = [(n, kept.about) for (owner, n), kept in self._kept.items() if owner == session]
        return [
            {"number": n, "current": n == current, **about} for n, about in reversed(mine) if about is not None
        ]

    def sessions(self) -> set[str]:
        """The visitors of whom something is kept."""
        with self._lock:
            return {*(owner for owner, _ in self._kept), *self._running}

    def forget(self, session: str) -> None:
        """The visitor left: keep nothing of them."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == session]:
                self._drop(key)
            self._running.discard(session)

    def _put(self, session: str, kept: Kept) -> None:
        self._leave_current(session)
        key = session, next(self._numbers)
        self._kept[key] = kept
        self._current[session] = key[1]
        self._size += len(kept.packed)
        runs = [k for k, each in self._kept.items() if k[0] == session and each.about is not None]
        for old in runs[: max(0, len(runs) - HISTORY)]:
            self._drop(old)
        while self._size > self._most:
            self._drop(next(iter(self._kept)))

    def _leave_current(self, session: str) -> None:
        """What was only opened goes when something else becomes current."""
        number = self._current.pop(session, None)
        if number is not None and self._kept[session, number].about is None:
            self._drop((session, number))

    def _drop(self, key: tuple[str, int]) -> None:
        self._size -= len(self._kept.pop(key).packed)
        if self._current.get(key[0]) == key[1]:
            del self._current[key[0]]


def _pack(recording: Recording) -> bytes:
    """Pickled by this process for itself, and about a tenth of what the objects take."""
    return zlib.compress(pickle.dumps(recording), 1)


def _unpack(packed: bytes) -> Recording:
    return pickle.loads(zlib.decompress(packed))
