"""What a load is doing now: written by the thread that loads, read by any other."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Event, Lock

from specdemo.errors import LoadCancelled

STOPPED = "Loading was stopped. The next load goes on with what was downloaded."


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a load.

    Attributes:
        text: what is being done, for people.
        done, total: how far, in bytes if ``in_bytes``, else in parts; a total of 0 cannot be told.
        in_bytes: the unit.
        per_second: bytes a second since the step began; None before there is a rate.
    """

    text: str
    done: int = 0
    total: int = 0
    in_bytes: bool = False
    per_second: float | None = None

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None where the total is unknown."""
        return min(self.done / self.total, 1.0) if self.total else None


class Progress:
    """The step a load is in, and the wish of those who wait to end it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._step = Step("Waiting")
        self._began, self._had = time.monotonic(), 0
        self._cancelled = Event()

    @property
    def step(self) -> Step:
        """Where the load is."""
        with self._lock:
            step = self._step
            passed = time.monotonic() - self._began
            gained = step.done - self._had
        rate = gained / passed if step.in_bytes and gained > 0 and passed > 0.5 else None
        return Step(step.text, step.done, step.total, step.in_bytes, rate)

    def begin(self, text: str, total: int = 0, *, done: int = 0, in_bytes: bool = False) -> None:
        """The next step; ``done`` of it was there before.

        Raises:
            LoadCancelled: nobody waits for this load any more.
        """
        self.check()
        with self._lock:
            self._step = Step(text, done, total, in_bytes)
            self._began, self._had = time.monotonic(), done

    def advance(self, done: int, text: str | None = None) -> None:
        """``done`` more of the step, negative where something must be done again.

        Raises:
            LoadCancelled: nobody waits for this load any more.
        """
        self.check()
        with self._lock:
            old = self._step
            self._step = Step(text or old.text, old.done + done, old.total, old.in_bytes)

    def skip(self, done: int) -> None:
        """``done`` of the step was there before and says nothing of its speed; negative if it is lost."""
        self.advance(done)
        with self._lock:
            self._had += done

    def cancel(self) -> None:
        """End the load at its next check."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check(self) -> None:
        """
        Raises:
            LoadCancelled: the load should end.
        """
        if self.cancelled:
            raise LoadCancelled(STOPPED)
