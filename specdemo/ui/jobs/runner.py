"""The one way in which jobs run: count, load the pairs, wait, run, end with a result or a message."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing

from specdemo.models.request import is_zero_gpu
from specdemo.runs.store import PairStore
from specdemo.ui.jobs.job import Job, JobState, load_pairs, until_the_end
from specdemo.ui.jobs.limits import PRIVATE
from specdemo.ui.jobs.queue import STOP_SECONDS, JobQueue, StoppedInQueue, Visitor
from specdemo.ui.jobs.stops import Stop
from specdemo.ui.jobs.zero_gpu import states_from_gpu

SERVER_THREADS = ThreadPoolExecutor(PRIVATE.servers, "servers")
"""Where jobs run for which servers do all the work: they wait for the network and compute next to nothing."""


class JobRunner:
    """Runs the jobs of all tabs and endpoints.

    Args:
        store: has the pairs, and the thread in which models run.
        queue: where jobs wait for their turn.
    """

    def __init__(self, store: PairStore, queue: JobQueue) -> None:
        self._store, self._queue = store, queue

    def run(self, job: Job, visitor: Visitor, stop: Stop) -> Generator[JobState]:
        """The states of a job, about ten a second at most; the last one has ended, whatever happened.

        Setting ``stop`` or closing the iterator ends the job within one round.
        """
        return until_the_end(job, self._states(job, visitor, stop), stop)

    def _states(self, job: Job, visitor: Visitor, stop: Stop) -> Generator[JobState]:
        needs_models = any(job.pairs)
        with ExitStack() as stack:
            ticket = stack.enter_context(self._queue.admitted(visitor, job))
            # Admitted, but not yet in line, so that nobody waits for another one's download.
            pairs = yield from load_pairs(job, self._store, stop, stack)
            for text in self._queue.wait(ticket, stop):
                yield JobState("loading", text)
            if needs_models and is_zero_gpu():
                states = states_from_gpu(job, stop)
            else:
                if needs_models:
                    yield from self._models_free(stop)
                states = job.states(pairs, self._store.thread if needs_models else SERVER_THREADS, stop)
            with closing(states):
                for state in states:
                    ticket.progress = state.fraction
                    yield state

    def _models_free(self, stop: Stop) -> Iterator[JobState]:
        """Wait for the models' thread, which a race keeps to its end, whatever the line of another kind says."""
        free = self._store.thread.submit(lambda: None)
        try:
            while not wait([free], timeout=STOP_SECONDS).done:
                if stop.is_set():
                    raise StoppedInQueue
                yield JobState("loading", self._queue.race_text())
        finally:
            free.cancel()
