"""The one way in which jobs run: load the pairs, wait for a turn, run, end with a result or a message."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from specdemo.models.request import is_zero_gpu
from specdemo.runs.store import PairStore
from specdemo.ui.jobs.job import Job, JobState, load_pairs, until_the_end
from specdemo.ui.jobs.limits import PRIVATE
from specdemo.ui.jobs.queue import JobQueues, Visitor
from specdemo.ui.jobs.stops import Stop
from specdemo.ui.jobs.zero_gpu import states_from_gpu

SERVER_THREADS = ThreadPoolExecutor(PRIVATE.servers, "servers")
"""Where jobs run for which servers do all the work: they wait for the network and compute next to nothing."""


class JobRunner:
    """Runs the jobs of all tabs and endpoints.

    Args:
        store: has the pairs, and the thread in which models run.
        queues: where jobs wait for their turn.
    """

    def __init__(self, store: PairStore, queues: JobQueues) -> None:
        self._store, self._queues = store, queues

    def run(self, job: Job, visitor: Visitor, stop: Stop) -> Iterator[JobState]:
        """The states of a job, about ten a second at most; the last one has ended, whatever happened.

        Setting ``stop`` or closing the iterator ends the job within one round.
        """
        return until_the_end(job, self._states(job, visitor, stop), stop)

    def _states(self, job: Job, visitor: Visitor, stop: Stop) -> Iterator[JobState]:
        needs_models = any(job.pairs)
        with ExitStack() as stack:
            # Before it queues, so that nobody waits for another one's download.
            pairs = yield from load_pairs(job, self._store, stop, stack)
            queue = self._queues.of(job.kind) if needs_models else self._queues.of_servers()
            ticket = stack.enter_context(queue.ticket(visitor))
            for text in ticket.wait(stop):
                yield JobState("loading", text)
            if needs_models and is_zero_gpu():
                yield from states_from_gpu(job, stop)
            else:
                yield from job.states(pairs, self._store.thread if needs_models else SERVER_THREADS, stop)
