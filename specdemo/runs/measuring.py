"""What all measurements share: contenders run in turns on the same prompts, progress, and what they run on."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Generic, TypeVar

from specdemo.analysis.contenders import Contender
from specdemo.analysis.rows import Run
from specdemo.errors import ServerError, SettingsError
from specdemo.machine import machine_of
from specdemo.metrics import counts_of
from specdemo.models.pair import ModelPair
from specdemo.runs.single import Prompt, checked, open_run
from specdemo.servers.pair import ServerPair
from specdemo.settings import SEEDS, Settings, check_measurable
from specdemo.trace import Trace

Made = TypeVar("Made")
Report = TypeVar("Report")
Block = tuple[int, int, Sequence[Contender]]
"""The number of a prompt, that of the repeat, and who decodes it."""


@dataclass(frozen=True, slots=True)
class Progress(Generic[Made, Report]):
    """A run was finished, or a batch did not fit into memory.

    Attributes:
        done, total: finished runs, and all of them; of the advisor seconds.
        run: the one that was finished last; None if memory ran out.
        seconds_left: estimated from the time that those before took, waits included.
        report: everything measured so far.
    """

    done: float
    total: float
    run: Made
    seconds_left: float
    report: Report


def seconds_left(began: float, done: float, total: float) -> float:
    """Seconds for the rest of the work, at the speed since ``began`` (of ``time.perf_counter``)."""
    return (time.perf_counter() - began) / max(done, 1) * max(total - done, 0)


def drafting(settings: Settings | None, refusal: str) -> Settings:
    """The settings of a measurement against plain decoding, or all defaults.

    Args:
        settings: as a person gave them.
        refusal: what to say of another strategy than ``speculative``.

    Raises:
        SettingsError: they do not draft, or their runs are too short for a speed.
    """
    settings = checked(settings)
    if settings.strategy != "speculative":
        raise SettingsError("strategy", refusal.format(repr(settings.strategy)) + "; choose 'speculative'.")
    check_measurable(settings)
    return settings


def warm_up(settings: Settings, tokens: int) -> Settings:
    """Short runs of the same kind, which pay for what only a first run pays."""
    return replace(settings, max_new_tokens=min(tokens, settings.max_new_tokens))


def finished_run(pair: ModelPair | ServerPair, prompt: Prompt, settings: Settings, stop: Event) -> Trace | None:
    """One whole run; None if it was stopped.

    Raises:
        ServerError: a server's answer broke off; half a run would spoil the figures.
    """
    with closing(open_run(pair, prompt, settings, stop)) as lane:
        for _ in lane if isinstance(pair, ModelPair) else lane.until(stop):
            if stop.is_set():
                return None
        if stop.is_set():
            return None
        trace = lane.trace()
    if trace.server is not None and trace.server.incomplete:
        raise ServerError(f"a run of the measurement broke off: {trace.server.incomplete}")
    return trace


def measured_on(pair: ModelPair) -> dict[str, Any]:
    """The fields of a report that say which models ran where."""
    return {
        "pair": pair.name,
        "dtype": pair.dtype,
        "quantization": pair.quantization,
        "machine": machine_of(pair.device, pair.threads),
    }


@dataclass
class Driver(Generic[Report]):
    """Runs contenders in blocks: within one all decode the same prompt, so that a machine that slows down is fair.

    Attributes:
        pair: decodes.
        prompts: as the pair takes them.
        report: of the runs so far.
        stop: ends it within one round; a run that was not finished is not counted.
        shared: the settings of all contenders.
        clock: seconds; another one for tests.
    """

    pair: ModelPair | ServerPair
    prompts: Sequence[Prompt]
    report: Report
    stop: Event
    shared: Settings
    clock: Callable[[], float] = time.perf_counter
    began: float = 0.0

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """What to run; it may look at the report of the block before."""

    @abstractmethod
    def add(self, run: Run, trace: Trace) -> Progress[Run, Report]:
        """Put a finished run into the report."""

    def last(self, contender: Contender) -> Progress[Run, Report] | None:
        """The end, if this contender's next run is not to be begun."""
        return None

    def steps(self, short: Settings, warmed: Sequence[Contender]) -> Iterator[Progress[Run, Report]]:
        """The progress of every run, after one of each of ``warmed`` that pays for what only a first run pays."""
        self.began = self.clock()
        for contender in warmed:
            if finished_run(self.pair, self.prompts[0], contender.settings(short), self.stop) is None:
                return
        for prompt, repeat, contenders in self.blocks():
            # Repeats have other seeds, so that sampled figures are not those of one text.
            shared = replace(self.shared, seed=(self.shared.seed + repeat) % SEEDS)
            for contender in contenders:
                if (end := self.last(contender)) is not None:
                    yield end
                    return
                began = self.clock()
                trace = finished_run(self.pair, self.prompts[prompt], contender.settings(shared), self.stop)
                if trace is None:
                    return
                steps, figures = (counts_of(trace.rounds), None) if trace.server is None else ((), trace.metrics())
                seconds = self.clock() - began
                yield self.add(Run(contender, prompt, repeat, steps, figures, seconds, trace.peak_memory), trace)


def turned(contenders: Sequence[Contender], by: int) -> list[Contender]:
    """The contenders, rotated: each comes first as often."""
    first = by % len(contenders)
    return [*contenders[first:], *contenders[:first]]
