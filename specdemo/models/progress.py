"""The progress of a load: written by the thread that loads, read and cancelled by any other."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from threading import Event, Lock

from specdemo.errors import LoadCancelled

STOPPED = "Loading was stopped. The next load goes on with what was downloaded."


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One step of a load."""

    text: str  # its name, for people
    done: int = 0  # bytes if ``in_bytes``, else parts; so is the total, of which 0 is unknown
    total: int = 0
    in_bytes: bool = False
    per_second: float | None = None  # bytes since the step began; None while there is no rate yet

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None where the total is unknown."""
        return min(self.done / self.total, 1.0) if self.total else None


class LoadProgress:
    """The current step of a load, and whether the load should stop: then its next call raises LoadCancelled."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._step = LoadStep("Waiting")
        self._began, self._skipped = time.monotonic(), 0
        self._cancelled = Event()

    @property
    def step(self) -> LoadStep:
        with self._lock:
            step, gained = self._step, self._step.done - self._skipped
            passed = time.monotonic() - self._began
        known = step.in_bytes and gained > 0 and passed > 0.5
        return replace(step, per_second=gained / passed if known else None)

    def begin(self, text: str, total: int = 0, *, in_bytes: bool = False) -> None:
        self.check()
        with self._lock:
            self._step = LoadStep(text, 0, total, in_bytes)
            self._began, self._skipped = time.monotonic(), 0

    def advance(self, done: int, text: str | None = None) -> None:
        """Count ``done`` more of the step."""
        self.check()
        with self._lock:
            self._step = replace(self._step, done=self._step.done + done, text=text or self._step.text)

    def skip(self, done: int) -> None:
        """Count ``done`` of the step without counting it for the rate; negative where it was lost."""
        self.advance(done)
        with self._lock:
            self._skipped += done

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check(self) -> None:
        if self.cancelled:
            raise LoadCancelled(STOPPED)
