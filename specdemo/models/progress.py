"""The progress of a load: written by the thread that loads, read and cancelled by any other."""

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
        text: the step's name, for the user.
        done, total: bytes if ``in_bytes``, else parts; a total of 0 is unknown.
        in_bytes: the unit.
        per_second: bytes per second since the step began; None while there is no rate yet.
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
    """The current step of a load, and whether the load should stop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._step = Step("Waiting")
        self._began, self._had = time.monotonic(), 0
        self._cancelled = Event()

    @property
    def step(self) -> Step:
        """The current step, with its rate."""
        with self._lock:
            step = self._step
            passed = time.monotonic() - self._began
            gained = step.done - self._had
        rate = gained / passed if step.in_bytes and gained > 0 and passed > 0.5 else None
        return Step(step.text, step.done, step.total, step.in_bytes, rate)

    def begin(self, text: str, total: int = 0, *, done: int = 0, in_bytes: bool = False) -> None:
        """Start the next step, of which ``done`` was there before.

        Raises:
            LoadCancelled: the load should stop.
        """
        self.check()
        with self._lock:
            self._step = Step(text, done, total, in_bytes)
            self._began, self._had = time.monotonic(), done

    def advance(self, done: int, text: str | None = None) -> None:
        """Count ``done`` more of the step; negative where something must be done again.

        Raises:
            LoadCancelled: the load should stop.
        """
        self.check()
        with self._lock:
            old = self._step
            self._step = Step(text or old.text, old.done + done, old.total, old.in_bytes)

    def skip(self, done: int) -> None:
        """Count ``done`` of the step without counting it for the rate; negative where it was lost."""
        self.advance(done)
        with self._lock:
            self._had += done

    def cancel(self) -> None:
        """Stop the load at its next check."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check(self) -> None:
        """
        Raises:
            LoadCancelled: the load should stop.
        """
        if self.cancelled:
            raise LoadCancelled(STOPPED)
