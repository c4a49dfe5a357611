"""What a sweep and a measurement of batch sizes share: their progress, their warm-up and what they run on."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from specdemo.errors import SettingsError
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.single import checked
from specdemo.settings import Settings, check_measurable

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


def measured_on(pair: ModelPair) -> dict[str, Any]:
    """The fields of a report that say which models ran where."""
    return {
        "pair": pair.name,
        "dtype": pair.dtype,
        "quantization": pair.quantization,
        "machine": machine_of(pair.device, pair.threads),
    }
