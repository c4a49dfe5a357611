"""The progress of a load, and other waiting times and counts, as text."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from threading import Event
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_sizes import LoadReport, SizeReport
from specdemo.analysis.report import Report
from specdemo.analysis.rows import Run
from specdemo.analysis.wording import counted
from specdemo.errors import LoadCancelled
from specdemo.models.preflight import gigabytes
from specdemo.models.progress import STOPPED, LoadStep
from specdemo.runs.measuring import Progress
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
        parts.append(f"{duration((step.total - step.done) / step.per_second)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Such as ``12 s``, ``3 min`` or ``1.5 h``."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f}\u00a0s"
    return f"{seconds / 60:.0f}\u00a0min" if seconds < 5400 else f"{seconds / 3600:.1f}\u00a0h"


def measurement_progress(progress: Progress[Any]) -> str:
    """What a measurement just did, and how long it may still take."""
    report, run = progress.report, progress.run
    if isinstance(report, AdviceReport) and run is not None:
        return f"{advice_progress(report, run)}; {duration(progress.seconds_left)} left"
    if run is None and report.ran_out is None:
        return "The time is over"
    if run is None:
        return f"Memory ran out at {counted(report.ran_out, 'row')}, {duration(progress.seconds_left)} left"
    sizes, batches = isinstance(report, SizeReport), type(report) is SizeReport
    where = (
        counted(run.contender.size, report.thing) if sizes else f"prompt {run.prompt + 1}, repeat {run.repeat + 1}"
    )
    what = f"{'Batch' if batches else 'Run'} {progress.done:.0f} of {progress.total:.0f}"
    return f"{what} ({run.contender.name}, {where}){_again(report)}; {duration(progress.seconds_left)} left"


def _again(report: Report) -> str:
    return f", {report.again} made again since the machine was busy" if report.again else ""


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


def measurement_done(report: Report) -> str:
    """What a measurement that is over has done."""
    if isinstance(report, AdviceReport):
        tried, dropped = counted(len(report.race.entered), "setting"), len(report.race.dropped)
        spent = f"{report.seconds:.0f} of {report.budget_seconds:g} s"
        return f"Done: {tried} in {len(report.runs)} runs, {spent}; {dropped} dropped as beaten{_again(report)}."
    repeats, tokens = counted(report.repeats, "repeat"), counted(report.base.max_new_tokens, "token")
    if isinstance(report, LoadReport):
        made, each = f"{len(report.runs)} runs of {counted(report.each, 'request')} ({repeats})", "each"
    elif isinstance(report, SizeReport):
        made, each = f"{counted(len(report.runs), 'batch', 'batches')} ({repeats})", "a row"
    else:
        made, each = f"{len(report.runs)} runs ({counted(report.prompts, 'prompt')}, {repeats})", "each"
    return f"Done: {made}, plain and drafted in turns, of at most {tokens} {each}{_again(report)}."
