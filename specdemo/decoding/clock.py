"""The lane clock: seconds of one lane's own work, split by phase."""

from __future__ import annotations

import time
from typing import Any, Literal

import torch

Phase = Literal["draft", "verify", "other"]


def synchronize(device: torch.device) -> None:
    """Wait until a device has done all that was launched on it."""
    if device.type == "mps":
        torch.mps.synchronize()  # which takes no device
    elif device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


class LaneClock:
    """Runs from ``resume`` to the round's last lap; every moment in between belongs to one phase.

    Device work is waited for where a lap ends, so that a lane pays for what it launched. A mark does not wait
    where one GPU does all of the work: the GPU notes the time when it gets there.
    """

    def __init__(self, *devices: torch.device) -> None:
        self._devices = list(dict.fromkeys(devices))
        self._one_gpu = [d.type for d in self._devices] == ["cuda"]
        self._begun: Any = None
        self._marks: list[tuple[Phase, Any]] = []
        self._since = 0.0
        self.seconds = 0.0
        self.phases: dict[Phase, float] = {"draft": 0.0, "verify": 0.0, "other": 0.0}

    def resume(self) -> None:
        """Start a round: phases count from zero, the lane clock goes on."""
        self.phases = {"draft": 0.0, "verify": 0.0, "other": 0.0}
        self._begin(self._now())

    def mark(self, phase: Phase) -> None:
        """Book the time since the last reading under ``phase``, to be known after the next lap."""
        if self._one_gpu:
            self._marks.append((phase, self._event()))
        else:
            self.lap(phase)

    def lap(self, phase: Phase) -> None:
        """Book the time since the last reading under ``phase``."""
        now = self._now()
        left = now - self._since
        self.seconds += left
        for marked, event in self._marks:
            spent = min(left, self._begun.elapsed_time(event) / 1000)
            self.phases[marked] += spent
            left -= spent
            self._begun = event
        self.phases[phase] += left
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._since, self._marks = now, []
        if self._one_gpu:
            self._begun = self._event()

    def _event(self) -> Any:
        """The moment when the GPU has done all that was launched so far."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._devices[0]))
        return event

    def _now(self) -> float:
        for device in self._devices:
            synchronize(device)
        return time.perf_counter()
