"""The lane clock: seconds of one lane's own work, split by phase."""

from __future__ import annotations

import time
from typing import Literal

import torch

Phase = Literal["draft", "verify", "other"]


class LaneClock:
    """Runs between ``resume`` and ``pause``; every moment in between belongs to one phase.

    Device work is waited for at every reading, so that a phase pays for what it launched.
    """

    def __init__(self, *devices: torch.device) -> None:
        self._cuda = [d for d in dict.fromkeys(devices) if d.type == "cuda"]
        self._mps = any(d.type == "mps" for d in devices)
        self._since = 0.0
        self.seconds = 0.0
        self.phases: dict[Phase, float] = {"draft": 0.0, "verify": 0.0, "other": 0.0}

    def resume(self) -> None:
        """Start a round: phases count from zero, the lane clock goes on."""
        self.phases = {"draft": 0.0, "verify": 0.0, "other": 0.0}
        self._since = self._now()

    def lap(self, phase: Phase) -> None:
        """Book the time since the last reading under ``phase``."""
        now = self._now()
        self.phases[phase] += now - self._since
        self.seconds += now - self._since
        self._since = now

    def _now(self) -> float:
        for device in self._cuda:
            torch.cuda.synchronize(device)
        if self._mps:
            torch.mps.synchronize()
        return time.perf_counter()
