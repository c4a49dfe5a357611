"""What a job is: the one contract behind race, sweep, batch and losslessness test."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from specdemo.errors import SpecDemoError
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.models.request import PairRequest
from specdemo.runs.store import PairStore
from specdemo.servers.catalog import shares_machine
from specdemo.settings import Settings
from specdemo.ui.jobs.durations import Work, gpu_seconds_of
from specdemo.ui.jobs.worker import named
from specdemo.view.progress_text import await_load

WAITING = "Waiting for a turn…"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaneRequest:
    """One lane of a run: its settings, and the pair that decodes it; None on a server."""

    settings: Settings
    pair: PairRequest | None


@dataclass(frozen=True, slots=True)
class JobState:
    """How far a job is."""

    phase: str  # ``loading``, ``running``, ``done``, ``stopped`` or ``error``; the last three end the job
    message: str = ""  # a line for people, may be empty
    fraction: float = 0.0  # from 0 to 1
    result: Any = None  # what is known so far, of the job's own kind; None where nothing new is known

    @property
    def ended(self) -> bool:
        """Whether this is the job's last state."""
        return self.phase not in ("loading", "running")


class Job(ABC):
    """What a visitor asks for. It can be pickled, since on ZeroGPU another process runs it."""

    kind: str  # names the queue in which it waits
    noun: str  # what people call it, for messages
    retry = "Run it again."  # a sentence on how
    memory_advice = "Choose fewer lanes, a shorter length, a smaller pair or a quantisation, and press Run."
    lane: LaneRequest  # what it measures; a race has several, and says its pairs itself

    @property
    def first(self) -> Any:
        """The result that is shown before it runs."""
        return None

    @property
    def on_server_here(self) -> bool:
        """Whether a server that computes on this machine decodes any of it."""
        return any(shares_machine(each.settings) for each in self.work)

    @property
    def pairs(self) -> Sequence[PairRequest | None]:
        """The pairs that it runs on; None where a server decodes. Without any it needs no models here."""
        return [self.lane.pair]

    @property
    @abstractmethod
    def work(self) -> Sequence[Work]:
        """The runs that it makes at most, for what they will take."""

    @property
    def gpu_seconds(self) -> float:
        """Seconds that it takes on a large GPU, roughly."""
        return gpu_seconds_of(self.work)

    @abstractmethod
    def states(self, pairs: Sequence[ModelPair | None], thread: Executor, stop: Event) -> Generator[JobState]:
        """Run it: a few states a second, the last one final. It ends within one round once ``stop`` is set.

        Args:
            pairs: those of ``self.pairs``, loaded.
            thread: where models run, while the calling thread waits.
            stop: ends the job.
        """


def load_pairs(
    job: Job, store: PairStore, stop: Event, stack: ExitStack
) -> Generator[JobState, None, list[ModelPair | None]]:
    """Wait for a job's pairs; returns them. They stay in memory until ``stack`` is left.

    Raises:
        LoadCancelled: ``stop`` was set meanwhile.
        PairError: one cannot be loaded.
    """
    requests = dict.fromkeys(filter(None, job.pairs))
    loads = {request: stack.enter_context(store.using(request)) for request in requests}
    for load in loads.values():
        for text in await_load(load, stop):
            yield JobState("loading", text)
    return [loads[request].future.result() if request else None for request in job.pairs]


def until_the_end(job: Job, states: Generator[JobState], stop: Event) -> Generator[JobState]:
    """The states of a job; an error ends them with one that has its message and the last result.

    Closing this iterator, as happens when the visitor leaves, sets ``stop``.
    """
    state = JobState("loading", WAITING)
    with closing(states):
        try:
            state = replace(state, result=job.first)
            for new in states:
                state = new if new.result is not None else replace(new, result=state.result)
                yield state
            return
        except GeneratorExit:
            stop.set()  # before ``states`` is closed: its thread may be waiting for a server
            raise
        except SpecDemoError as error:
            message = str(error)
        except Exception as error:
            if out_of_memory(error):
                message = f"Memory ran out. {job.memory_advice}"
            else:
                _log.exception("a %s failed", job.noun)
                message = f"The {job.noun} failed: {named(error)}. {job.retry}"
    yield replace(state, phase="error", message=message)
