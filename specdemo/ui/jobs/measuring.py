"""Many runs for one visitor: they take turns in the models' thread, and the page is told as they end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Protocol

from specdemo.errors import SpecDemoError
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.runs.store import Load
from specdemo.ui.jobs.stops import reason_of
from specdemo.ui.jobs.worker import in_thread, named
from specdemo.ui.jobs.zero_gpu import on_gpu
from specdemo.view.progress_text import await_load

UPDATE_SECONDS = 0.25
STOPPED = "Stopped. What was measured until then is shown."
STOPPED_EARLY = "Stopped before anything was measured."
MEMORY = "Memory ran out. Choose fewer tokens a run, a smaller pair or a quantisation, and run it again."
_log = logging.getLogger(__name__)


class Progress(Protocol):
    """What a measurement gives after each run."""

    done: int
    total: int
    report: Any
    """What was measured so far; its ``runs`` and whether it is ``complete``."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """How to measure, and how to speak of it.

    Attributes:
        start: begins it on a pair, None where a server does the work; the event ends it within one round.
        told: a line for people on what was just done.
        counted: the line at its end, from the whole report.
        seconds: what it takes on a large GPU, roughly.
    """

    start: Callable[[ModelPair | None, Event], Iterator[Progress]]
    told: Callable[[Any], str]
    counted: Callable[[Any], str]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MeasureState:
    """Where a measurement stands.

    Attributes:
        phase: ``loading``, ``running``, ``done``, ``stopped`` or ``error``; the last three end it.
        message: a line for people.
        fraction: how far it is, from 0 to 1.
        report: what was measured so far; None before the first run ended.
    """

    phase: str
    message: str
    fraction: float = 0.0
    report: Any = None


@on_gpu(lambda measurement: measurement.seconds)
def measure_states(
    thread: Executor, load: Load | None, measurement: Measurement, stop: Event
) -> Iterator[MeasureState]:
    """Measure in ``thread``, one job a run, so that other visitors' runs come in between; the last state is final.

    There is no ``load`` where a server does the work.

    Errors a person can cause, and any other, end as a message, with what was measured until then. Setting
    ``stop`` or closing the generator ends decoding within one round.
    """
    state = MeasureState("loading", "Waiting for a turn…")
    try:
        for text in await_load(load, stop) if load else ():
            yield MeasureState("loading", text)
        with closing(_runs(thread, load and load.future.result(), measurement, stop)) as states:
            for state in states:
                yield state
        if state.report is not None and state.report.complete:
            yield replace(state, phase="done", message=measurement.counted(state.report))
        else:
            told = STOPPED if state.report is not None and state.report.runs else STOPPED_EARLY
            yield replace(state, phase="stopped", message=reason_of(stop, told))
    except SpecDemoError as error:
        yield replace(state, phase="error", message=str(error))
    except Exception as error:
        if not out_of_memory(error):
            _log.exception("a measurement failed")
        failed = f"The measurement failed: {named(error)}. Run it again."
        yield replace(state, phase="error", message=MEMORY if out_of_memory(error) else failed)


def _runs(
    thread: Executor, pair: ModelPair | None, measurement: Measurement, stop: Event
) -> Iterator[MeasureState]:
    state = MeasureState("running", "Warming up…")
    yield state
    told = time.monotonic()
    events = in_thread(thread, measurement.start, pair, stop)
    try:
        while not stop.is_set():
            progress = in_thread(thread, next, events, None)
            if progress is None:
                break
            fraction = progress.done / max(progress.total, 1)
            state = MeasureState("running", measurement.told(progress), fraction, progress.report)
            if time.monotonic() - told > UPDATE_SECONDS:
                told = time.monotonic()
                yield state
        yield state
    except Exception:
        yield state  # so that what was measured stays beside the message
        raise
    finally:
        stop.set()
        events.close()
