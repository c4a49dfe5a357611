"""The progress of a load, and other waiting times and counts, as text."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from threading import Event

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.rows import Run
from specdemo.errors import LoadCancelled
from specdemo.models.preflight import gigabytes
from specdemo.models.progress import STOPPED, LoadStep
from specdemo.runs.store import Load

UPDATE_SECONDS = 0.25


def await_load(load: Load, stop: Event) -> Iterator[str]:
    """The progress texts of a load, until it is done or has failed.

    Raises:
        LoadCancelled: ``stop`` was set meanwhile; the load goes on if others wait for it.
    """
    while not load.future.done():
        yield describe(load.progress.step)
        wait([load.future], timeout=UPDATE_SECONDS)
        if stop.is_set() and not load.future.done():
            raise LoadCancelled(STOPPED)


def describe(step: LoadStep) -> str:
    """The step's name, its progress, and how long it may still take."""
    if step.fraction is None:
        return f"{step.text}…"
    if not step.in_bytes:
        return f"{step.text}: {step.fraction:.0%}"
    parts = [f"{step.text}: {gigabytes(step.done)} of {gigabytes(step.total)}"]
    if step.per_second:
        parts.append(f"{gigabytes(round(step.per_second))}/s")
        parts.append(left((step.total - step.done) / step.per_second))
    return ", ".join(parts)


def left(seconds: float) -> str:
    """The time that something still takes, such as ``12 s left``."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f}\u00a0s left"
    return f"{seconds / 60:.0f} min left" if seconds < 5400 else f"{seconds / 3600:.1f} h left"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """``1 row``, ``2 rows``; ``things`` where it is not an s that is added."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def advice_progress(report: AdviceReport, run: Run) -> str:
    """What the advisor just tried, how many settings are still in the race, and what was dropped last and why."""
    race, kind = report.race, report.kind_of(run.prompt)
    text = (
        f"Tried {run.contender.name} on prompt {run.prompt + 1}{f' ({kind})' if kind else ''}; "
        f"{counted(len(race.live), 'setting')} in the race"
    )
    if not race.dropped:
        return text
    last = [*race.dropped.values()][-1]
    return (
        f"{text}, {len(race.dropped)} dropped, last {report.names[last.contender]}: "
        f"{report.names[last.by]} is {last.lead:.2f} times as fast"
    )
