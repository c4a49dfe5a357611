"""Jobs on ZeroGPU, where a worker process has the GPU for a while.

A worker is forked from this process, perhaps long ago, and used again. It is handed a job, finds or loads its
pairs, runs it with threads of its own, and sends back the states.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.models.request import is_zero_gpu
from specdemo.runs.store import PairStore
from specdemo.runs.zero_gpu import worker_store
from specdemo.ui.jobs.job import Job, JobState, gpu_seconds, load_pairs, until_the_end
from specdemo.ui.jobs.worker import Stop, reason_of, watched

MARGIN_SECONDS = 4
"""Before ZeroGPU would abort it, a job is told to stop and has this long to show what it has."""
OVER = "This run had the shared GPU for as long as a run may. What was done until then is shown."
NO_NEWS = b""
_log = logging.getLogger(__name__)
_store: PairStore | None = None  # a worker's own; None in the program that workers are forked from


def states_from_gpu(job: Job, stop: Event) -> Generator[JobState]:
    """Run a job in a worker; raises SpecDemoError where the platform gives no GPU, or takes it away."""
    with TemporaryDirectory(prefix="specdemo-") as folder:
        file = Path(folder) / "stop"
        with closing(run_task(job, gpu_seconds(job.gpu_seconds), str(file))) as updates:
            while (update := _next(updates)) is not None:
                if stop.is_set() and not file.exists():
                    file.write_text(reason_of(stop, ""), encoding="utf-8")
                if update != NO_NEWS:
                    yield pickle.loads(update)


def _next(updates: Iterator[bytes]) -> bytes | None:
    try:
        return next(updates, None)
    except gr.Error as error:  # no quota left, no GPU free, or a worker that was aborted
        raise SpecDemoError(f"ZeroGPU: {error.message}") from error
    except Exception as error:
        _log.exception("a worker on ZeroGPU failed")
        raise SpecDemoError(f"ZeroGPU gave no GPU ({type(error).__name__}). Run it again.") from error


def _work(job: Job, seconds: int, stop_file: str) -> Generator[bytes]:
    """A job in a worker, with fresh threads: those of the program did not survive the fork.

    Yields the newest state about ten times a second, pickled, or ``NO_NEWS``. The file appears when the job shall
    stop, and holds the reason if it is not the visitor's wish: an event is only shared with processes that are
    forked later, and this worker may be older than the job. ``seconds`` is what was asked for on the GPU.
    """
    global _store
    store = _store = _store or worker_store()
    ends = time.monotonic() + seconds - MARGIN_SECONDS
    stop = Stop()
    with closing(watched(lambda: _states(job, store, stop))) as updates:
        try:
            for news in updates:
                if time.monotonic() > ends:
                    stop.end(OVER)
                elif (file := Path(stop_file)).exists():
                    stop.end(file.read_text(encoding="utf-8"))
                yield news[-1] if news else NO_NEWS
        finally:
            stop.set()  # left by the visitor: the job ends within one round


def _states(job: Job, store: PairStore, stop: Event) -> Generator[bytes]:
    """The job's states, pickled at once, since a job may go on with what it yielded."""

    def states() -> Generator[JobState]:
        with ExitStack() as stack:
            pairs = yield from load_pairs(job, store, stop, stack)
            yield from job.states(pairs, store.thread, stop)

    with closing(until_the_end(job, states(), stop)) as found:
        yield from map(pickle.dumps, found)


run_task = _work
if is_zero_gpu():
    # Here, in the thread that imports the page, and before anything touches CUDA: both are ZeroGPU's conditions.
    # Spaces have this package; elsewhere it is not needed, so it stands in no requirements.
    import spaces

    run_task = spaces.GPU(duration=lambda job, seconds, stop_file: seconds)(_work)
