"""A losslessness test as a job: of models, whose runs take turns in their thread, or of two deployments."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from specdemo.errors import LoadCancelled
from specdemo.losslessness.certificate import Certificate
from specdemo.losslessness.certify import ERROR_RATE, stream_certificate
from specdemo.losslessness.deployment_check import DeploymentCheck
from specdemo.losslessness.deployments import stream_comparison
from specdemo.losslessness.greedy_check import check_greedy
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import models_here
from specdemo.runs.single import stream
from specdemo.settings import Settings
from specdemo.ui.jobs.job import WAITING, Job, JobState, LaneRequest, Work
from specdemo.ui.jobs.worker import in_thread, reason_of, stepped


@dataclass(frozen=True, slots=True)
class CheckJob(Job):
    """What is checked: greedy settings by one run of each deployment or model, others by many pairs of runs."""

    prompts: tuple[str, ...]  # of all runs; of models one
    lane: LaneRequest  # how the drafted runs are decoded
    runs: int
    tokens: int  # as :func:`specdemo.certify` takes them

    kind = "losslessness"
    noun = "check"
    pace = 0.5

    @property
    def settings(self) -> Settings:
        return self.lane.settings

    @property
    def deployed(self) -> bool:
        """Whether servers decode."""
        return self.lane.pair is None or self.lane.pair.is_gguf

    @property
    def work(self) -> Sequence[Work]:
        """One run, or many pairs of short ones; of deployments two runs of each prompt, by both."""
        drafted, both = self.settings, self.deployed or not self.settings.greedy
        times = 2 * len(self.prompts) if self.deployed else 1
        if not drafted.greedy:
            drafted, times = replace(drafted, max_new_tokens=self.tokens), self.runs
        plain = [Work(replace(drafted, strategy="autoregressive"), times)] if both else []
        return [*plain, Work(drafted, times)]

    def states(self, pairs: Sequence[Any], thread: Executor, stop: Event) -> Generator[JobState]:
        """As :meth:`Job.states`; each task of the thread is a pair of runs, or a round."""
        if self.settings.greedy and not self.deployed:
            return self._greedy(models_here(pairs[0]), thread, stop)
        return self._steps(pairs[0], thread, stop)

    def _begin(self, pair: Any, stop: Event) -> Generator[Certificate | DeploymentCheck]:
        test = self.runs, self.tokens, ERROR_RATE
        if self.deployed:
            return stream_comparison(pair, self.prompts, self.settings, test, stop)
        return stream_certificate(models_here(pair), self.prompts[0], self.settings, *test)

    def _steps(self, pair: Any, thread: Executor, stop: Event) -> Generator[JobState]:
        state = JobState("running", WAITING)
        yield state
        with closing(stepped(thread, stop, self._begin, pair, stop)) as steps, suppress(LoadCancelled):
            for found in steps:
                state = JobState("running", fraction=found.fraction, result=found)
                yield state
        yield _ended(not stop.is_set(), state.result, stop)

    def _greedy(self, pair: ModelPair, thread: Executor, stop: Event) -> Generator[JobState]:
        emitted = 0
        yield JobState("running", "Decoding…")
        with closing(in_thread(thread, stream, pair, self.prompts[0], self.settings, stop)) as decoding:
            while not stop.is_set() and (round_ := in_thread(thread, next, decoding, None)) is not None:
                emitted += len(round_.emitted)
                yield JobState("running", f"Decoding: {emitted} of {self.settings.max_new_tokens} tokens…")
        if not emitted:
            raise LoadCancelled("Stopped before the first token. Press Check to start again.")
        # Dropped caches are freed here; the check reads the finished text in one forward.
        trace = decoding.trace()
        result = in_thread(thread, check_greedy, pair, trace)
        yield _ended(trace.complete, result, stop)


def _ended(complete: bool, result: Any, stop: Event) -> JobState:
    phase, message = ("done", "") if complete else ("stopped", reason_of(stop, "Stopped."))
    return JobState(phase, message, result=result)
