"""A losslessness test as a job: its runs take turns in the models' thread."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event

from specdemo.errors import LoadCancelled
from specdemo.losslessness.certificate import Certificate
from specdemo.losslessness.certify import Certifier
from specdemo.losslessness.greedy_check import GreedyCheck, check_greedy
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import models_here
from specdemo.runs.single import stream
from specdemo.settings import Settings
from specdemo.ui.jobs.job import WAITING, Job, JobState, LaneRequest, Work
from specdemo.ui.jobs.worker import in_thread, reason_of

UPDATE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CheckJob(Job):
    """What is checked: greedy settings by one run, others by many pairs of runs."""

    prompt: str  # of all runs
    lane: LaneRequest  # how the drafted runs are decoded
    runs: int
    tokens: int  # as :func:`specdemo.certify` takes them

    kind = "losslessness"
    noun = "check"
    retry = "Press Check to try again."
    memory_advice = "Choose fewer tokens, a smaller pair or a quantisation, and check again."

    @property
    def settings(self) -> Settings:
        return self.lane.settings

    @property
    def work(self) -> Sequence[Work]:
        if self.settings.greedy:
            return [Work(self.settings)]
        drafted = replace(self.settings, max_new_tokens=self.tokens)
        return [Work(settings, self.runs) for settings in (replace(drafted, strategy="autoregressive"), drafted)]

    def states(self, pairs: Sequence[ModelPair | None], thread: Executor, stop: Event) -> Generator[JobState]:
        """As :meth:`Job.states`; each task of the thread is a pair of runs, or a round."""
        return (self._greedy if self.settings.greedy else self._certificate)(models_here(pairs[0]), thread, stop)

    def _certificate(self, pair: ModelPair, thread: Executor, stop: Event) -> Generator[JobState]:
        yield JobState("running", WAITING)
        # In the models' thread, since the models may be tried for what they can do.
        certifier = in_thread(thread, Certifier, pair, self.prompt, self.settings, self.runs, self.tokens)
        updated = 0.0
        while not certifier.done and not stop.is_set():
            in_thread(thread, certifier.step)
            if time.monotonic() - updated >= UPDATE_SECONDS and not certifier.done:
                updated = time.monotonic()
                found = certifier.certificate()
                yield JobState("running", fraction=found.runs / found.budget, result=found)
        yield _ended(certifier.done, certifier.certificate(), stop)

    def _greedy(self, pair: ModelPair, thread: Executor, stop: Event) -> Generator[JobState]:
        emitted, updated = 0, time.monotonic()
        yield JobState("running", "Decoding…")
        with closing(in_thread(thread, stream, pair, self.prompt, self.settings, stop)) as decoding:
            while not stop.is_set() and (round_ := in_thread(thread, next, decoding, None)) is not None:
                emitted += len(round_.emitted)
                if time.monotonic() - updated >= UPDATE_SECONDS:
                    updated = time.monotonic()
                    yield JobState("running", f"Decoding: {emitted} of {self.settings.max_new_tokens} tokens…")
        if not emitted:
            raise LoadCancelled("Stopped before the first token. Press Check to start again.")
        # Dropped caches are freed here; the check reads the finished text in one forward.
        trace = decoding.trace()
        result = in_thread(thread, check_greedy, pair, trace)
        yield _ended(trace.complete, result, stop)


def _ended(complete: bool, result: Certificate | GreedyCheck, stop: Event) -> JobState:
    phase, message = ("done", "") if complete else ("stopped", reason_of(stop, "Stopped."))
    return JobState(phase, message, result=result)
