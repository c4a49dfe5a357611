"""One sweep for one visitor: its runs take turns in the models' thread, the page is told as they finish."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event

from specdemo.analysis.sweep_report import SweepReport
from specdemo.errors import SpecDemoError
from specdemo.models.failures import out_of_memory
from specdemo.models.store import Load
from specdemo.settings import Settings
from specdemo.sweep import SweepProgress, stream_sweep
from specdemo.ui.progress_text import await_load, left

UPDATE_SECONDS = 0.25
STOPPED = "Stopped. What was measured until then is shown."
MEMORY = "Memory ran out. Choose fewer tokens a run, a smaller pair or a quantisation, and run the sweep again."
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a visitor wants measured."""

    prompts: list[str]
    settings: Settings
    gammas: range
    repeats: int


@dataclass(frozen=True, slots=True)
class SweepState:
    """Where a sweep stands.

    Attributes:
        phase: ``loading``, ``running``, ``done``, ``stopped`` or ``error``; the last three end it.
        message: a line for people.
        fraction: how far it is, from 0 to 1.
        report: what was measured so far.
    """

    phase: str
    message: str
    fraction: float = 0.0
    report: SweepReport | None = None


def sweep_states(thread: Executor, load: Load, plan: Plan, stop: Event) -> Iterator[SweepState]:
    """Sweep in ``thread``, one job a run, so that other visitors' runs come in between; the last state is final.

    Errors a person can cause, and any other, end as a message, with what was measured until then. Setting
    ``stop`` or closing the generator ends decoding within one round.
    """
    state = SweepState("loading", "Waiting for a turn…")
    try:
        for text in await_load(load, stop):
            yield SweepState("loading", text)
        events = stream_sweep(load.future.result(), plan.prompts, plan.settings, plan.gammas, plan.repeats, stop)
        with closing(_runs(thread, events, stop)) as states:
            for state in states:
                yield state
        if state.report is not None and state.report.complete:
            yield replace(state, phase="done", message=_counted(state.report))
        else:
            yield replace(state, phase="stopped", message=STOPPED)
    except SpecDemoError as error:
        yield replace(state, phase="error", message=str(error))
    except Exception as error:
        if not out_of_memory(error):
            _log.exception("a sweep failed")
        failed = f"The sweep failed: {type(error).__name__}. Run it again."
        yield replace(state, phase="error", message=MEMORY if out_of_memory(error) else failed)


def _runs(thread: Executor, events: Iterator[SweepProgress], stop: Event) -> Iterator[SweepState]:
    state = SweepState("running", "Warming up…")
    yield state
    told = time.monotonic()
    try:
        while not stop.is_set():
            progress = thread.submit(next, events, None).result()
            if progress is None:
                break
            state = _state(progress)
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


def _state(progress: SweepProgress) -> SweepState:
    what = "plain decoding" if progress.run.gamma == 0 else f"γ = {progress.run.gamma}"
    message = (
        f"Run {progress.done} of {progress.total} ({what}, prompt {progress.run.prompt + 1}, "
        f"repeat {progress.run.repeat + 1}), {left(progress.seconds_left)}"
    )
    return SweepState("running", message, progress.done / progress.total, progress.report)


def _counted(report: SweepReport) -> str:
    prompts = f"{report.prompts} prompt{'s' if report.prompts > 1 else ''}"
    repeats = f"{report.repeats} repeat{'s' if report.repeats > 1 else ''}"
    tokens = report.settings.max_new_tokens
    return f"Done: {len(report.runs)} runs ({prompts}, {repeats}), interleaved, of at most {tokens} tokens each."
