"""Jobs with models: where the models are, which on ZeroGPU is in a worker that has the GPU for a while.

A worker is a process forked from this one, perhaps long ago, and used again. It is handed names and numbers, finds
or loads the pairs, runs the whole job with threads of its own, and sends back what the page shows.
"""

from __future__ import annotations

import inspect
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.models.request import PairRequest, is_zero_gpu
from specdemo.runs.store import Load, PairStore
from specdemo.runs.zero_gpu import worker_store
from specdemo.ui.jobs.gpu_time import gpu_seconds
from specdemo.ui.jobs.stops import Stop, reason_of
from specdemo.ui.jobs.worker import gathered
from specdemo.view.progress_text import await_load

MARGIN_SECONDS = 4
"""Before ZeroGPU would abort it, a job is told to stop and has this long to show what it has."""
OVER = "This run had the shared GPU for as long as a run may. What was done until then is shown."
_log = logging.getLogger(__name__)
_store: PairStore | None = None
"""A worker's own; None in the program that workers are forked from."""

Job = Callable[..., Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is handed; all of it can be pickled.

    Attributes:
        job: what was decorated with :func:`on_gpu`, by its name.
        requests: the pair of each load the job takes; None for a lane on a server.
        arguments: the others, by name.
        seconds: what was asked for on the GPU.
        stop: a file that appears when the job shall stop, and says why if it is not the visitor's wish. Events are
            only shared with processes that are forked later, and this worker may be older than the run.
    """

    job: Job
    requests: tuple[PairRequest | None, ...]
    arguments: dict[str, Any]
    seconds: int
    stop: str


@dataclass(frozen=True, slots=True)
class Update:
    """What a worker sends about ten times a second, and when nothing is new.

    Attributes:
        value: the newest of the job's values, pickled as it was when it came; None if there was none.
        kept: what the job handed to ``keep`` meanwhile.
    """

    value: bytes | None
    kept: tuple[Any, ...]


def on_gpu(seconds: Callable[..., float]) -> Callable[[Job], Job]:
    """Decorate a job, a generator that takes ``thread``, ``load`` or ``loads``, ``stop`` and perhaps ``keep``.

    Args:
        seconds: what it takes, from the job's other arguments by name.

    The job must be a function of a module, its other arguments and its values must be picklable, and each value
    must stand for all before it. A job without any load runs on servers, needs no GPU and stays here. Nothing is
    changed where there is no ZeroGPU.
    """

    def decorate(job: Job) -> Job:
        if not is_zero_gpu():
            return job
        parameters = inspect.signature(job)

        @wraps(job)
        def away(*positional: Any, **named: Any) -> Iterator[Any]:
            given = parameters.bind(*positional, **named).arguments
            del given["thread"]
            loads = given.pop("loads", None) or [given.pop("load")]
            if not any(loads):
                yield from job(*positional, **named)
                return
            stop, keep = given.pop("stop"), given.pop("keep", None)
            # The thread, the signal and ``keep`` belong to this program; the worker has its own.
            yield from _sent(away, loads, given, gpu_seconds(seconds(**given)), stop, keep)

        return away

    return decorate


def _sent(
    job: Job, loads: Sequence[Load | None], given: dict[str, Any], seconds: int, stop: Event, keep: Any
) -> Iterator[Any]:
    """Hand a job to a worker, and pass on what comes.

    Raises:
        SpecDemoError: the platform gave no GPU, or took it away; its own message says why.
    """
    for load in filter(None, loads):
        for _ in await_load(load, stop):  # the card shows a download's progress
            pass
        load.future.result()
    with TemporaryDirectory(prefix="specdemo-") as folder:
        file = Path(folder) / "stop"
        task = Task(job, tuple(load and load.request for load in loads), given, seconds, str(file))
        with closing(run_task(task)) as updates:
            while (update := _next(updates)) is not None:
                if stop.is_set() and not file.exists():
                    file.write_text(reason_of(stop, ""), encoding="utf-8")
                for thing in update.kept if keep else ():
                    keep(thing)
                if update.value is not None:
                    yield pickle.loads(update.value)


def _next(updates: Iterator[Update]) -> Update | None:
    try:
        return next(updates, None)
    except gr.Error as error:  # no quota left, no GPU free, or a worker that was aborted
        raise SpecDemoError(f"ZeroGPU: {error.message}") from error
    except Exception as error:
        _log.exception("a worker on ZeroGPU failed")
        raise SpecDemoError(f"ZeroGPU gave no GPU ({type(error).__name__}). Run it again.") from error


def _work(task: Task) -> Iterator[Update]:
    """A job in a worker, with a fresh thread for the models: those of the program did not survive the fork."""
    global _store
    _store = _store or worker_store()
    ends = time.monotonic() + task.seconds - MARGIN_SECONDS
    stop, never = Stop(), Event()
    with (
        ThreadPoolExecutor(1, "job") as looker,
        closing(gathered(looker, lambda: _values(task, _store, stop), never, beats=True)) as updates,
    ):
        try:
            for news in updates:
                if time.monotonic() > ends:
                    stop.end(OVER)
                elif (told := Path(task.stop)).exists():
                    stop.end(told.read_text(encoding="utf-8"))
                kept = tuple(thing for _, things in news for thing in things)
                yield Update(news[-1][0] if news else None, kept)
        finally:
            stop.set()  # left by the visitor: the job ends within one round


def _values(task: Task, store: PairStore, stop: Event) -> Iterator[tuple[bytes, list[Any]]]:
    """The job's values, pickled at once since a job may go on with what it yielded, and what it wants kept."""
    job = task.job.__wrapped__
    takes = inspect.signature(job).parameters
    kept: list[Any] = []
    with ExitStack() as stack:
        loads = [request and stack.enter_context(store.using(request)) for request in task.requests]
        own = {"thread": store.thread, "stop": stop, "loads": loads, "load": loads[0], "keep": kept.append}
        given = {name: value for name, value in own.items() if name in takes}
        for value in job(**given, **task.arguments):
            yield pickle.dumps(value), kept.copy()
            kept.clear()


run_task = _work
if is_zero_gpu():
    # Here, in the thread that imports the page, and before anything touches CUDA: both are ZeroGPU's conditions.
    # Spaces have this package; elsewhere it is not needed, so it stands in no requirements.
    import spaces

    run_task = spaces.GPU(duration=lambda task: task.seconds)(_work)
