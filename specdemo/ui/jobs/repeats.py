"""A race run again for its speed-up's range, as a job: *Repeat ×5* under a race that is over."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Event

from specdemo.models.pair import ModelPair
from specdemo.models.request import PairRequest
from specdemo.runs.repeats import REPEATS, repeat_race
from specdemo.ui.jobs.gpu_time import Work
from specdemo.ui.jobs.job import Job, JobState
from specdemo.ui.jobs.limits import check_runs
from specdemo.ui.jobs.race import RaceJob
from specdemo.ui.jobs.stops import reason_of
from specdemo.ui.jobs.worker import in_thread
from specdemo.view.progress_text import counted

FEWEST = 3
"""Runs of which a median and a range are told."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """What was repeated, by its run's name in the race view, and the lanes' tokens a second in each run so far."""

    run: str
    speeds: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RepeatJob(Job):
    """The lanes of a race again, without their tokens; results are of :class:`Repeats`."""

    race: RaceJob
    run: str
    repeats: int = REPEATS

    kind = "race"
    noun = "repetition"
    retry = "Press Repeat to try again."
    memory_advice = "Choose fewer lanes, a shorter length, a smaller pair or a quantisation, and press Run."

    @property
    def pairs(self) -> Sequence[PairRequest | None]:
        """Of each lane."""
        return self.race.pairs

    @property
    def on_server_here(self) -> bool:
        """Of any lane."""
        return self.race.on_server_here

    @property
    def first(self) -> Repeats:
        """Nothing yet."""
        return Repeats(self.run)

    @property
    def work(self) -> Sequence[Work]:
        """The race's, several times."""
        return [*self.race.work] * self.repeats

    def states(self, pairs: Sequence[ModelPair | None], thread: Executor, stop: Event) -> Generator[JobState]:
        """As :meth:`Job.states`; each task of the thread is one run."""
        done: tuple[tuple[float, ...], ...] = ()
        settings = [lane.settings for lane in self.race.lanes]
        runs = repeat_race(pairs, self.race.prompt, settings, self.repeats, stop)
        try:
            while True:
                text = f"Repeating: run {min(len(done) + 1, self.repeats)} of {self.repeats}…"
                yield JobState("running", text, len(done) / self.repeats, Repeats(self.run, done))
                speeds = in_thread(thread, next, runs, None)
                if speeds is None:
                    break
                done = (*done, speeds)
        finally:
            runs.close()
        if len(done) == self.repeats:
            yield JobState("done", result=Repeats(self.run, done))
            return
        told = done if len(done) >= FEWEST else ()
        kept = f"the range is that of {counted(len(done), 'run')}" if told else "too few runs for a range"
        yield JobState("stopped", reason_of(stop, f"Stopped: {kept}."), result=Repeats(self.run, told))


def repeat_job(race: RaceJob, run: str) -> RepeatJob:
    """The race again, within the limits; ``run`` names it in the race view.

    Raises:
        SpecDemoError: it asks for too much.
    """
    job = RepeatJob(race, run)
    check_runs(len(race.lanes) * job.repeats)
    return job
