"""What is kept of visitors' runs: recordings to look at again, and rounds on their way to the page."""

from __future__ import annotations

import pickle
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from threading import RLock
from typing import Any, NamedTuple

from fastapi import Response

from specdemo.recording import Recording

HISTORY = 8
"""Runs of one visitor that are kept."""
GONE = "There is nothing to save any more. Press Run, or open a recording, and save again."


class Kept(NamedTuple):
    """A recording, packed, so that its size is known; and what the history says of it, if it was run here."""

    packed: bytes
    about: dict[str, Any] | None


class SessionRecordings:
    """What each visitor ran, and what they last ran or opened, which is their current one.

    The oldest of all go where it is more than ``most`` bytes.
    """

    def __init__(self, most: int) -> None:
        self._most, self.size = most, 0
        self._kept: dict[tuple[str, int], Kept] = {}  # the oldest first
        self._current: dict[str, int] = {}
        self._numbers = count(1)
        self._lock = RLock()

    def leave_current(self, session: str) -> None:
        """None of the visitor's is current any more; one that was only opened goes."""
        with self._lock:
            key = session, self._current.pop(session, 0)
            if key in self._kept and self._kept[key].about is None:
                self._drop(key)

    def keep(self, session: str, recording: Recording, about: dict[str, Any] | None = None) -> None:
        """Keep one, which becomes current; a run, of which the history says ``about``, replaces that."""
        # By this process for itself, and about a tenth of what the objects take.
        packed = zlib.compress(pickle.dumps(recording), 1)
        with self._lock:
            current = session, self._current.get(session, 0)
            if about is not None and current in self._kept:  # what was run again is one run
                self._drop(current)
            self.leave_current(session)
            number = self._current[session] = next(self._numbers)
            self._kept[session, number] = Kept(packed, about)
            self.size += len(packed)
            for old in [*self._runs(session)][:-HISTORY]:
                self._drop((session, old))
            while self.size > self._most:
                self._drop(next(iter(self._kept)))

    def look_back(self, session: str, number: int) -> Recording | None:
        """An earlier run of the visitor, which becomes current; None if it is not kept any more."""
        with self._lock:
            if number not in self._runs(session):
                return None
            self.leave_current(session)
            self._current[session] = number
        return self.get(session)

    def has(self, session: str) -> bool:
        return session in self._current

    def get(self, session: str) -> Recording | None:
        kept = self._kept.get((session, self._current.get(session, 0)))
        return pickle.loads(zlib.decompress(kept.packed)) if kept is not None else None

    def runs(self, session: str) -> list[Recording]:
        """What they ran and is still kept, the latest last."""
        with self._lock:
            packed = [self._kept[session, number].packed for number in self._runs(session)]
        return [pickle.loads(zlib.decompress(each)) for each in packed]

    def history(self, session: str) -> list[dict[str, Any]]:
        """What they ran and is still kept, the latest first: each one's number and what is said of it."""
        with self._lock:
            current, runs = self._current.get(session), self._runs(session)
            return [{"number": n, "current": n == current, **runs[n]} for n in [*runs][::-1]]

    def sessions(self) -> set[str]:
        return {session for session, _ in [*self._kept]}

    def forget(self, session: str) -> None:
        """The visitor left: keep nothing of them."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == session]:
                self._drop(key)

    def _runs(self, session: str) -> dict[int, dict[str, Any]]:
        runs = [(number, kept.about) for (owner, number), kept in self._kept.items() if owner == session]
        return {number: about for number, about in runs if about is not None}

    def _drop(self, key: tuple[str, int]) -> None:
        self.size -= len(self._kept.pop(key).packed)
        if self._current.get(key[0]) == key[1]:
            del self._current[key[0]]


MOST = 64  # runs whose rounds can be fetched: those shown last, on any page


class RoundStreams:
    """The rounds of the runs shown last, by the names of the runs, which nobody can guess."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Sequence[str]] = OrderedDict()

    def offer(self, value: dict[str, Any]) -> dict[str, Any]:
        """A value of the race view without its rounds, which can be fetched now; ``count`` says how many."""
        if value["rounds"]:  # those that wait or load need no place
            self._runs[value["run"]] = value["rounds"]
            self._runs.move_to_end(value["run"])
            if len(self._runs) > MOST:
                self._runs.popitem(last=False)
        return {**value, "rounds": [], "count": len(value["rounds"])}

    def fetch(self, asked: Any) -> Response:
        """The rounds of a run from a place on, as the page sent them, as JSON; none of an unknown run."""
        match asked:
            case [str(run), int(start)] if start >= 0:
                rounds = self._runs.get(run, ())[start:]
            case _:
                rounds = ()
        return Response(f"[{','.join(rounds)}]", media_type="application/json")
