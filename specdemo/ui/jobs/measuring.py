"""Measurements as jobs: every γ, every method or every batch size, many runs one after the other."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from specdemo.errors import PairError, SettingsError
from specdemo.models.pair import ModelPair
from specdemo.models.request import is_public
from specdemo.runs.advise import LONGEST_BUDGET, stream_advice
from specdemo.runs.batch_sizes import stream_batch_sizes
from specdemo.runs.load_test import REQUESTS_A_USER, stream_load_test
from specdemo.runs.measuring import Progress
from specdemo.runs.sweep import GAMMAS, stream_sweep
from specdemo.settings import LLAMA_CPP
from specdemo.ui.jobs.job import Job, JobState, LaneRequest, Work
from specdemo.ui.jobs.limits import check_prompts, check_runs, limits
from specdemo.ui.jobs.worker import reason_of, stepped
from specdemo.view.progress_text import measurement_done, measurement_progress

STOPPED = "Stopped. What was measured until then is shown."
STOPPED_EARLY = "Stopped before anything was measured."


@dataclass(frozen=True, slots=True)
class MeasureJob(Job):
    """Many runs from some prompts: batches or users of all ``sizes``, every method within a budget, or every γ."""

    prompts: list[str]  # of the runs
    lane: LaneRequest  # how they draft, and on what
    repeats: int = 1  # times each run is made
    gammas: tuple[int, ...] = ()  # to be tried; a server has its own
    sizes: tuple[int, ...] = ()  # rows of the batches; of what is served, users
    budget: float | None = None  # seconds in which every method is tried
    kinds: tuple[str, ...] = ()  # of the prompts, for advice by kind
    methods: tuple[str, ...] | None = None  # to be tried; None for all that the pair allows
    kind: str = "sweep"  # the queue of its tab

    noun = "measurement"
    pace = 0.25

    @property
    def is_load(self) -> bool:
        """Whether it sends the requests of several users to a server."""
        pair, settings = self.lane.pair, self.lane.settings
        return bool(self.sizes) and (pair is None or pair.is_gguf or settings.engine == LLAMA_CPP)

    @property
    def work(self) -> Sequence[Work]:
        drafted = self.lane.settings
        plain = replace(drafted, strategy="autoregressive")
        if self.sizes:
            rows = max(self.sizes) * (REQUESTS_A_USER if self.is_load else 1)
            times = {size: self.repeats * -(-rows // size) for size in self.sizes}
            return [Work(settings, times[size], size) for size in self.sizes for settings in (plain, drafted)]
        every = [plain, *(replace(drafted, gamma=gamma) for gamma in self.gammas or (drafted.gamma,))]
        return [Work(settings, len(self.prompts) * self.repeats) for settings in every]

    @property
    def gpu_seconds(self) -> float:
        return super(MeasureJob, self).gpu_seconds if self.budget is None else self.budget

    def checked(self) -> MeasureJob:
        """The same, if it is within the limits; else raises SpecDemoError."""
        check_prompts(self.prompts)
        if self.is_load and is_public():
            raise PairError("pair: a load test is for servers of your own; run this app on your machine.")
        if self.budget is None:
            check_runs(sum(work.times * work.rows for work in self.work))
            return self
        most = limits().seconds or LONGEST_BUDGET
        if not 0 < self.budget <= most:
            raise SettingsError("budget", f"must be above 0 and at most {most:,.0f} seconds here.")
        return self

    def start(self, pair: ModelPair | None, stop: Event) -> Iterator[Progress[Any]]:
        """Begin the runs; setting ``stop`` ends them within one round."""
        prompts, settings = self.prompts, self.lane.settings
        if self.is_load:
            return stream_load_test(pair, prompts, settings, self.sizes, self.repeats, stop=stop)
        if self.sizes and pair is not None:
            return stream_batch_sizes(pair, prompts, settings, self.sizes, self.repeats, stop)
        if self.budget is not None:
            return stream_advice(pair, prompts, settings, self.budget, self.methods, self.kinds or None, stop)
        gammas = self.gammas if settings.server is None else GAMMAS
        return stream_sweep(pair, prompts, settings, gammas, self.repeats, stop)

    def states(self, pairs: Sequence[ModelPair | None], thread: Executor, stop: Event) -> Generator[JobState]:
        """As :meth:`Job.states`; results are reports, and each task of the thread is one run."""
        state = JobState("running", "Warming up…")
        yield state
        with closing(stepped(thread, stop, self.start, pairs[0], stop)) as steps:
            for progress in steps:
                fraction = progress.done / max(progress.total, 1)
                state = JobState("running", measurement_progress(progress), fraction, progress.report)
                yield state
        report = state.result
        if report is not None and report.complete:
            yield replace(state, phase="done", message=measurement_done(report))
        else:
            stopped = STOPPED if report is not None and report.runs else STOPPED_EARLY
            yield replace(state, phase="stopped", message=reason_of(stop, stopped))
