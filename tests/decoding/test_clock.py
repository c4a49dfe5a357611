"""The lane clock on one GPU, whose own stopwatch says when a phase ended: played by one that the test moves on."""

from __future__ import annotations

import types

import pytest
import torch

from specdemo.decoding import clock as clocks
from specdemo.decoding.clock import LaneClock


class _Gpu:
    """A GPU that works off what it is given; ``now`` is the host's clock and ``done`` the GPU's, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.done = 0.0
        self.waits = 0
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, stream: object) -> None:
                self.at = max(gpu.now, gpu.done)

            def elapsed_time(self, other: Event) -> float:
                return 1000 * (other.at - self.at)

        cuda = types.SimpleNamespace(Event=Event, current_stream=lambda device: None, synchronize=self.wait)
        monkeypatch.setattr(
            clocks, "torch", types.SimpleNamespace(cuda=cuda, get_device_module=lambda device: cuda)
        )
        monkeypatch.setattr(clocks.time, "perf_counter", lambda: self.now)

    def launch(self, seconds: float) -> None:
        self.now += 0.01  # the launch itself
        self.done = max(self.now, self.done) + seconds

    def wait(self, device: object) -> None:
        self.waits += 1
        self.now = max(self.now, self.done)


def test_marks_split_a_round_that_was_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the phases of a GPU's round: nothing waits between them, and together they are the round."""
    gpu = _Gpu(monkeypatch)
    clock = LaneClock(torch.device("cuda", 0), torch.device("cuda", 0))
    for total in (3.51, 7.02):
        clock.resume()
        gpu.waits = 0
        gpu.launch(1.0)
        clock.mark("draft")
        gpu.launch(2.0)
        clock.mark("verify")
        gpu.wait(None)
        gpu.now += 0.5
        clock.lap("other")
        assert gpu.waits == 2, "once to read the tokens, once at the end"
        assert clock.phases == pytest.approx({"draft": 1.01, "verify": 2.0, "other": 0.5})
        assert clock.seconds == pytest.approx(total)
        gpu.now += 100  # suspended


def test_on_two_devices_a_mark_is_a_lap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a draft on the CPU: one GPU's stopwatch does not know of it."""
    gpu = _Gpu(monkeypatch)
    clock = LaneClock(torch.device("cuda", 0), torch.device("cpu"))
    clock.resume()
    gpu.launch(1.0)
    clock.mark("draft")
    assert clock.phases["draft"] == pytest.approx(1.01)
    gpu.launch(2.0)
    clock.lap("verify")
    assert clock.phases == pytest.approx({"draft": 1.01, "verify": 2.01, "other": 0.0})
