"""Measurements as jobs: γ sweep, advisor and batch sizes, many runs one after the other."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Protocol

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.sweep_report import SweepReport
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.models.request import PairRequest
from specdemo.runs.advise import LONGEST_BUDGET, AdviceProgress, stream_advice
from specdemo.runs.batch_sizes import SizeProgress, stream_batch_sizes
from specdemo.runs.sweep import GAMMAS, SweepProgress, stream_sweep
from specdemo.servers.catalog import shares_machine
from specdemo.settings import Settings
from specdemo.ui.jobs.gpu_time import decode_seconds
from specdemo.ui.jobs.job import Job, JobState, LaneRequest
from specdemo.ui.jobs.limits import check_prompts, check_runs, limits
from specdemo.ui.jobs.stops import reason_of
from specdemo.ui.jobs.worker import in_thread
from specdemo.view.progress_text import advice_progress, counted, left

UPDATE_SECONDS = 0.25
STOPPED = "Stopped. What was measured until then is shown."
STOPPED_EARLY = "Stopped before anything was measured."
SERVERS_OWN = (None,)
"""In place of γ on a server, which has its own."""


class Progress(Protocol):
    """What a measurement gives after each run: how far it is, and a report that has ``runs`` and ``complete``."""

    done: int
    total: int
    report: Any


@dataclass(frozen=True, slots=True)
class Measurement(Job):
    """Many runs from some prompts.

    Attributes:
        prompts: of the runs.
        lane: how they draft, and on what.
        repeats: times each run is made.
    """

    prompts: list[str]
    lane: LaneRequest
    repeats: int

    noun = "measurement"
    retry = "Run it again."
    memory_advice = "Choose fewer tokens a run, a smaller pair or a quantisation, and run it again."

    @property
    def pairs(self) -> Sequence[PairRequest | None]:
        """One, or None on a server."""
        return [self.lane.pair]

    @property
    def on_server_here(self) -> bool:
        """Of the drafted runs or of the plain ones they are compared with."""
        return any(map(shares_machine, (self.lane.settings, _plain(self.lane.settings))))

    @abstractmethod
    def start(self, pair: ModelPair | None, stop: Event) -> Iterator[Progress]:
        """Begin the runs; setting ``stop`` ends them within one round."""

    @abstractmethod
    def progress_text(self, progress: Any) -> str:
        """A line on what was just done."""

    @abstractmethod
    def done_text(self, report: Any) -> str:
        """The line at the end."""

    def states(self, pairs: Sequence[ModelPair | None], thread: Executor, stop: Event) -> Iterator[JobState]:
        """As :meth:`Job.states`; results are reports, and each task of the thread is one run."""
        state = JobState("running", "Warming up…")
        yield state
        told = time.monotonic()
        runs = in_thread(thread, self.start, pairs[0], stop)
        try:
            while not stop.is_set() and (progress := in_thread(thread, next, runs, None)) is not None:
                fraction = progress.done / max(progress.total, 1)
                state = JobState("running", self.progress_text(progress), fraction, progress.report)
                if time.monotonic() - told > UPDATE_SECONDS:
                    told = time.monotonic()
                    yield state
        except Exception:
            yield state  # so that what was measured stays beside the message
            raise
        finally:
            runs.close()
        yield state
        report = state.result
        if report is not None and report.complete:
            yield replace(state, phase="done", message=self.done_text(report))
        else:
            stopped = STOPPED if report is not None and report.runs else STOPPED_EARLY
            yield replace(state, phase="stopped", message=reason_of(stop, stopped))


@dataclass(frozen=True, slots=True)
class SweepJob(Measurement):
    """Every γ against plain decoding; ``gammas`` is ``SERVERS_OWN`` on a server."""

    gammas: Sequence[int | None]

    kind = "sweep"

    @property
    def gpu_seconds(self) -> float:
        """Of plain and drafted runs."""
        settings = self.lane.settings
        drafted = (replace(settings, gamma=gamma or settings.gamma) for gamma in self.gammas)
        return sum(map(decode_seconds, (_plain(settings), *drafted))) * len(self.prompts) * self.repeats

    def start(self, pair: ModelPair | None, stop: Event) -> Iterator[SweepProgress]:
        """As :meth:`Measurement.start`."""
        gammas = GAMMAS if self.gammas == SERVERS_OWN else self.gammas
        return stream_sweep(pair, self.prompts, self.lane.settings, gammas, self.repeats, stop)

    def progress_text(self, progress: SweepProgress) -> str:
        """As :meth:`Measurement.progress_text`."""
        gamma = progress.run.gamma
        what = "plain decoding" if gamma == 0 else "speculative decoding" if gamma is None else f"γ = {gamma}"
        return (
            f"Run {progress.done} of {progress.total} ({what}, prompt {progress.run.prompt + 1}, "
            f"repeat {progress.run.repeat + 1}), {left(progress.seconds_left)}"
        )

    def done_text(self, report: SweepReport) -> str:
        """As :meth:`Measurement.done_text`."""
        prompts, repeats = counted(report.prompts, "prompt"), counted(report.repeats, "repeat")
        tokens = counted(report.settings.max_new_tokens, "token")
        return f"Done: {len(report.runs)} runs ({prompts}, {repeats}), interleaved, of at most {tokens} each."


@dataclass(frozen=True, slots=True)
class AdviceJob(Measurement):
    """Every method that the pair allows, within a budget of seconds; ``kinds`` are those of the prompts."""

    budget_seconds: float
    kinds: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None

    kind = "sweep"

    @property
    def gpu_seconds(self) -> float:
        """The budget."""
        return self.budget_seconds

    def start(self, pair: ModelPair | None, stop: Event) -> Iterator[AdviceProgress]:
        """As :meth:`Measurement.start`."""
        kinds, settings = self.kinds or None, self.lane.settings
        return stream_advice(pair, self.prompts, settings, self.budget_seconds, self.methods, kinds, stop)

    def progress_text(self, progress: AdviceProgress) -> str:
        """As :meth:`Measurement.progress_text`."""
        return f"{advice_progress(progress.report, progress.run)}; {left(progress.seconds_left)}"

    def done_text(self, report: AdviceReport) -> str:
        """As :meth:`Measurement.done_text`."""
        race = report.race
        tried, dropped = counted(len(race.entered), "setting"), len(race.dropped)
        return (
            f"Done: {tried} in {len(report.runs)} runs, {report.seconds:.0f} of {report.budget_seconds:g} s; "
            f"{dropped} dropped as beaten."
        )


def checked_advice(job: AdviceJob) -> AdviceJob:
    """The same advice, if it is within the limits.

    Raises:
        SpecDemoError: it asks for too much.
    """
    check_prompts(job.prompts)
    most = limits().seconds or LONGEST_BUDGET
    if not 0 < job.budget_seconds <= most:
        raise SettingsError("budget", f"must be above 0 and at most {most:,.0f} seconds here; choose less.")
    return job


def checked_sweep(job: SweepJob) -> SweepJob:
    """The same sweep, if it is within the limits.

    Raises:
        SpecDemoError: it asks for too much.
    """
    check_prompts(job.prompts)
    check_runs((len(job.gammas) + 1) * len(job.prompts) * job.repeats)
    return job


@dataclass(frozen=True, slots=True)
class SizesJob(Measurement):
    """Drafted batches of every size against plain ones."""

    sizes: tuple[int, ...]

    kind = "batch"

    @property
    def gpu_seconds(self) -> float:
        """Every size decodes the prompts of the largest, in so many batches."""
        settings = self.lane.settings
        batches = sum(-(-max(self.sizes) // size) for size in self.sizes) * self.repeats
        return (decode_seconds(_plain(settings)) + decode_seconds(settings)) * batches

    def start(self, pair: ModelPair | None, stop: Event) -> Iterator[SizeProgress]:
        """As :meth:`Measurement.start`."""
        return stream_batch_sizes(pair, self.prompts, self.lane.settings, self.sizes, self.repeats, stop)

    def progress_text(self, progress: SizeProgress) -> str:
        """As :meth:`Measurement.progress_text`."""
        if progress.run is None:
            return f"Memory ran out at {counted(progress.report.ran_out, 'row')}, {left(progress.seconds_left)}"
        how = "drafted" if progress.run.drafted else "plain"
        rows = counted(progress.run.size, "row")
        return f"Batch {progress.done} of {progress.total} ({how}, {rows}), {left(progress.seconds_left)}"

    def done_text(self, report: SizeReport) -> str:
        """As :meth:`Measurement.done_text`."""
        repeats, tokens = counted(report.repeats, "repeat"), counted(report.settings.max_new_tokens, "token")
        return (
            f"Done: {len(report.runs)} batches ({repeats}), plain and drafted in turns, of at most {tokens} a row."
        )


def _plain(settings: Settings) -> Settings:
    return replace(settings, strategy="autoregressive")
