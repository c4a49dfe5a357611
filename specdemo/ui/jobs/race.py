"""A race as a job: lanes become rounds, rounds become the value of the race view; and its repetition."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from specdemo.machine import hardware
from specdemo.models.pair import ModelPair
from specdemo.models.request import PairRequest
from specdemo.recording import Hardware, Recording
from specdemo.runs.encode import pieces
from specdemo.runs.race import REPEATS, Pair, race, repeat_race
from specdemo.runs.record import record
from specdemo.servers.catalog import label_of
from specdemo.servers.gguf import GgufPair
from specdemo.trace import Trace
from specdemo.ui.jobs.job import Job, JobState, LaneRequest, Work
from specdemo.ui.jobs.limits import check_lanes, check_prompts, check_runs
from specdemo.ui.jobs.worker import gathered, in_thread, reason_of
from specdemo.view.lane_headers import lane_headers
from specdemo.view.race_value import RaceView, question

STOPPED = "Stopped. Press Run to start again."
BROKEN_OFF = "An answer broke off; what came until then is kept, and its lane says why. Press Run to try again."


@dataclass(frozen=True, slots=True)
class RaceResult:
    """What a race gave so far."""

    # of the race view, but for phase and message, which are the state's (:func:`race_value`)
    value: dict[str, Any]
    recording: Recording | None = None  # of a race that is over and in which every lane got somewhere
    job: RaceJob | None = None  # the race itself, to be run again, where all of its lanes came to their end


def race_value(state: JobState) -> dict[str, Any]:
    """The race view's value for a state; before there is a result it has no lanes."""
    value = state.result.value if state.result is not None else RaceView([]).value()
    return {**value, "phase": state.phase, "message": state.message or None}


@dataclass(frozen=True, slots=True)
class RaceJob(Job):
    """One prompt decoded by several lanes side by side; ``earlier`` as of :func:`specdemo.race`."""

    prompt: str
    lanes: tuple[LaneRequest, ...]
    earlier: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True)

    kind = "race"
    noun = "run"

    @property
    def pairs(self) -> Sequence[PairRequest | None]:
        return [lane.pair for lane in self.lanes]

    def after(self, runs: Sequence[Recording]) -> RaceJob:
        """The race after these runs of its visitor, whose outputs may be copied: those of its pair, and of other
        prompts, since the output of its own is the answer.
        """
        names = {pair.name for pair in self.pairs if pair}
        traces = [t for run in runs if run.prompt != self.prompt for t in run.traces if t.pair in names]
        return replace(self, earlier=tuple(dict.fromkeys(tuple(t.token_ids) for t in traces if not t.server)))

    @property
    def work(self) -> Sequence[Work]:
        return [Work(lane.settings) for lane in self.lanes]

    @property
    def first(self) -> Any:
        return RaceResult(self._view().value())

    def states(self, pairs: Sequence[Pair], thread: Executor, stop: Event) -> Generator[JobState]:
        """As :meth:`Job.states`; results are of :class:`RaceResult`."""
        view, settings = self._view(), [lane.settings for lane in self.lanes]
        here = next((pair for pair in pairs if isinstance(pair, ModelPair)), None)  # the first that runs here
        left = [s.max_new_tokens for s in settings]  # tokens that each lane may still emit
        with closing(in_thread(thread, race, pairs, self.prompt, settings, stop, self.earlier)) as racing:
            view.question = question(self.prompt, settings, self._places(here, pairs))
            if here is not None:
                view.show_prompt(settings, pieces(here, racing.prompt_ids))
            with closing(gathered(thread, lambda: racing, stop)) as updates:
                for news in updates:
                    view.add(news)
                    for lane, round_ in news:
                        left[lane] = 0 if round_.stop else left[lane] - len(round_.emitted)
                    done = 1 - sum(left) / sum(s.max_new_tokens for s in settings)
                    yield JobState("running", fraction=done, result=RaceResult(view.value()))
            traces = racing.traces()
        view.take_reported(traces)
        if all(t.rounds for t in traces):
            view.conclude(traces)
        recording = record(here or _gguf(pairs), self.prompt, traces) if view.figures else None
        phase, message = _ended(traces, stop)
        again = self if phase == "done" and len(traces) > 1 else None
        yield JobState(phase, message, result=RaceResult(view.value(), recording, again))

    def _places(self, here: ModelPair | None, pairs: Sequence[Pair]) -> list[str]:
        """What the lanes run on, for people."""
        served = (label_of(lane.settings.server) for lane in self.lanes if lane.settings.server)
        own = (f"{pair.name} in llama.cpp" for pair in pairs if isinstance(pair, GgufPair))
        servers = dict.fromkeys((*own, *served))
        if (ran := here or _gguf(pairs)) is None:
            return [*servers]
        machine = Hardware(**hardware(ran.device, ran.threads)).label
        if here is None:
            return [*servers, machine]
        weights = next((lane.pair.target_quantization for lane in self.lanes if lane.pair), None)
        precision = here.dtype + (f", {weights} weights" if weights else "")
        return [here.name, precision, machine, *servers]

    def _view(self) -> RaceView:
        weights = [lane.pair.target_quantization if lane.pair else None for lane in self.lanes]
        return RaceView(lane_headers([lane.settings for lane in self.lanes], weights))


def _gguf(pairs: Sequence[Pair]) -> GgufPair | None:
    return next((pair for pair in pairs if isinstance(pair, GgufPair)), None)


@dataclass(frozen=True, slots=True)
class Repeats:
    """What is repeated, and the lanes' tokens a second in each run so far."""

    job: RepeatJob
    speeds: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RepeatJob(RaceJob):
    """*Repeat ×5*: a race again without its tokens, for its speed-up’s range; results are :class:`Repeats`."""

    value: dict[str, Any]  # of the race view after the race, without its rounds
    repeats: int = REPEATS

    noun = "repetition"

    @property
    def work(self) -> Sequence[Work]:
        return [Work(lane.settings, self.repeats) for lane in self.lanes]

    @property
    def first(self) -> Any:
        return Repeats(self)

    def states(self, pairs: Sequence[Pair], thread: Executor, stop: Event) -> Generator[JobState]:
        """As :meth:`Job.states`; each task of the thread is one run."""
        done: tuple[tuple[float, ...], ...] = ()
        settings = [lane.settings for lane in self.lanes]
        with closing(repeat_race(pairs, self.prompt, settings, self.repeats, stop, self.earlier)) as runs:
            while True:
                text = f"Repeating: run {min(len(done) + 1, self.repeats)} of {self.repeats}…"
                yield JobState("running", text, len(done) / self.repeats, Repeats(self, done))
                speeds = in_thread(thread, next, runs, None)
                if speeds is None:
                    break
                done = (*done, speeds)
        if len(done) == self.repeats:
            yield JobState("done", result=Repeats(self, done))
        else:
            yield JobState("stopped", reason_of(stop, "Stopped: too few runs for a range."), result=Repeats(self))


def race_job(prompt: str, lanes: Sequence[LaneRequest]) -> RaceJob:
    """A race within the limits; raises SpecDemoError where it asks for too much."""
    check_prompts([prompt])
    check_lanes([lane.settings for lane in lanes])
    return RaceJob(prompt, tuple(lanes))


def repeat_job(race: RaceJob, value: dict[str, Any]) -> RepeatJob:
    """The race again, within the limits; ``value`` is the race view's. Raises what :func:`race_job` does."""
    job = RepeatJob(race.prompt, race.lanes, value, earlier=race.earlier)
    check_runs(len(job.lanes) * job.repeats)
    return job


def _ended(traces: Sequence[Trace], stop: Event) -> tuple[str, str]:
    if all(t.complete for t in traces):
        return "done", ""
    if any(t.server and t.server.incomplete for t in traces) and not stop.is_set():
        return "stopped", BROKEN_OFF
    return "stopped", reason_of(stop, STOPPED)
