"""What the sweep, the advisor and a measurement of batch sizes share: progress, runs and what they run on."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Generic, TypeVar

from specdemo.analysis.sweep_rows import SweepRun
from specdemo.errors import ServerError, SettingsError
from specdemo.machine import machine_of
from specdemo.metrics import counts_of
from specdemo.models.pair import ModelPair
from specdemo.runs.single import Prompt, checked, open_run
from specdemo.servers.pair import ServerPair
from specdemo.settings import Settings, check_measurable
from specdemo.trace import Trace

Run = TypeVar("Run")
Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class Progress(Generic[Run, Report]):
    """A run was finished, or a batch did not fit into memory.

    Attributes:
        done, total: finished runs, and all of them.
        run: the one that was finished last; None if memory ran out.
        seconds_left: estimated from the time that those before took, waits included.
        report: everything measured so far.
    """

    done: int
    total: int
    run: Run
    seconds_left: float
    report: Report


def seconds_left(began: float, done: int, total: int) -> float:
    """Seconds for the rest of the work, at the speed since ``began`` (of ``time.perf_counter``)."""
    return (time.perf_counter() - began) / max(done, 1) * max(total - done, 0)


def drafting(settings: Settings | None, refusal: str) -> Settings:
    """The settings of a measurement against plain decoding, or all defaults.

    Args:
        settings: as a person gave them.
        refusal: what to say of another strategy than ``speculative``.

    Raises:
        SettingsError: they do not draft, or their runs are too short for a speed.
    """
    settings = checked(settings)
    if settings.strategy != "speculative":
        raise SettingsError("strategy", refusal.format(repr(settings.strategy)) + "; choose 'speculative'.")
    check_measurable(settings)
    return settings


def warm_up(settings: Settings, tokens: int) -> Settings:
    """Short runs of the same kind, which pay for what only a first run pays."""
    return replace(settings, max_new_tokens=min(tokens, settings.max_new_tokens))


def finished_run(pair: ModelPair | ServerPair, prompt: Prompt, settings: Settings, stop: Event) -> Trace | None:
    """One whole run; None if it was stopped.

    Raises:
        ServerError: a server's answer broke off; half a run would spoil the figures.
    """
    with closing(open_run(pair, prompt, settings, stop)) as lane:
        for _ in lane if isinstance(pair, ModelPair) else lane.until(stop):
            if stop.is_set():
                return None
        if stop.is_set():
            return None
        trace = lane.trace()
    if trace.server is not None and trace.server.incomplete:
        raise ServerError(f"a run of the measurement broke off: {trace.server.incomplete}")
    return trace


def run_of(trace: Trace, gamma: int | None, prompt: int, repeat: int) -> SweepRun:
    """What a report keeps of a run: its rounds, or of a server's its figures."""
    if trace.server is not None:
        return SweepRun(gamma, prompt, repeat, (), trace.metrics())
    return SweepRun(gamma, prompt, repeat, counts_of(trace.rounds))


def measured_on(pair: ModelPair) -> dict[str, Any]:
    """The fields of a report that say which models ran where."""
    return {
        "pair": pair.name,
        "dtype": pair.dtype,
        "quantization": pair.quantization,
        "machine": machine_of(pair.device, pair.threads),
    }
