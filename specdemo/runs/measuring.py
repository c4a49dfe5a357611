"""How all measurements run: contenders in turns on the same prompts, until everything or enough is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, get_args, get_type_hints

from specdemo.analysis.contenders import Contender
from specdemo.analysis.disturbance import drift
from specdemo.analysis.report import Report, key_of
from specdemo.analysis.rows import Run
from specdemo.errors import MemoryShortage, ServerError, SettingsError
from specdemo.machine import machine_of
from specdemo.metrics import counts_of
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode_all, models_here
from specdemo.runs.single import LocalLane, Prompt, checked, stream
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import ServedPair, on_server
from specdemo.settings import SEEDS, Settings
from specdemo.trace import Trace

if TYPE_CHECKING:
    from specdemo.servers.lane import ServerLane

Given = ParamSpec("Given")
Found = TypeVar("Found", bound=Report)
TIMES_AGAIN = 3
"""How often a run that was made while the machine was busy is made again at most."""
Block = tuple[int, int, Sequence[Contender]]
"""The number of a prompt, that of the repeat, and who decodes it."""


@dataclass(frozen=True, slots=True)
class Progress(Generic[Found]):
    """A run was finished, or a batch did not fit into memory.

    Attributes:
        done, total: finished runs, and all of them; of the advisor seconds.
        run: the one that was finished last; None if memory ran out.
        seconds_left: estimated from the time that those before took, waits included.
        report: everything measured so far.
    """

    done: float
    total: float
    run: Run | None
    seconds_left: float
    report: Found


def to_its_end(name: str, measurement: Callable[Given, Iterator[Progress[Found]]]) -> Callable[Given, Found]:
    """The same measurement, called ``name``, which gives its last report alone."""

    @wraps(measurement)
    def measured(*args: Given.args, **options: Given.kwargs) -> Found:
        steps = [*measurement(*args, **options)]
        if not steps:
            raise SettingsError("stop", "it was set before anything was measured; clear it.")
        return steps[-1].report

    measured.__name__ = measured.__qualname__ = name
    (progress,) = get_args(get_type_hints(measurement)["return"])
    (report,) = get_args(progress)
    vars(measured)["__signature__"] = signature(measurement).replace(return_annotation=report)  # what help() shows
    return measured


def drafting(settings: Settings | None, refusal: str) -> Settings:
    """The settings of a measurement against plain decoding; ``refusal``: what to say of other strategies."""
    settings = checked(settings)
    if settings.strategy != "speculative":
        raise SettingsError("strategy", refusal.format(repr(settings.strategy)) + "; choose 'speculative'.")
    if settings.max_new_tokens < 2:
        raise SettingsError(
            "max_new_tokens", "1 is the prefill's token, and speeds begin after it; give at least 2."
        )
    return settings


def opened(
    pair: ModelPair | ServedPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings,
    lanes: Sequence[Settings] = (),
) -> tuple[ModelPair | ServedPair, list[Any]]:
    """Who decodes, and the prompts as it takes them; ``lanes`` as of :func:`specdemo.runs.encode.encode`."""
    if on_server(pair, settings):
        from specdemo.servers.request import sweep_prompts  # with the libraries that only servers need

        return sweep_prompts(pair, prompts, settings)
    pair = models_here(pair)
    return pair, encode_all(pair, prompts, settings.chat, lanes)


def measured_on(pair: ModelPair | ServedPair) -> dict[str, Any]:
    """The fields of a report that say which models ran where."""
    if isinstance(pair, GgufPair):
        return {"pair": pair.name, "dtype": "unknown", "machine": machine_of(pair.device, pair.threads)}
    if isinstance(pair, ServedPair):
        return {"pair": pair.name, "dtype": "unknown", "server": pair.name}
    machine = machine_of(pair.device, pair.threads)
    return {"pair": pair.name, "dtype": pair.dtype, "quantization": pair.quantization, "machine": machine}


def finished_run(pair: ModelPair | ServedPair, prompt: Prompt, settings: Settings, stop: Event) -> Trace | None:
    """One whole run; None if it was stopped."""
    return complete(stream(pair, prompt, settings, stop), stop)


def complete(opened: LocalLane | ServerLane, stop: Event) -> Trace | None:
    """A lane's trace; None if it was stopped. A server's answer that broke off would spoil the figures."""
    with closing(opened) as lane:
        for _ in lane if isinstance(lane, LocalLane) else lane.until(stop):
            if stop.is_set():
                return None
        if stop.is_set():
            return None
        trace = lane.trace()
    if trace.server is not None and trace.server.incomplete:
        raise ServerError(f"a run of the measurement broke off: {trace.server.incomplete}")
    return trace


@dataclass
class Driver(Generic[Found]):
    """Runs contenders in blocks: within one all decode the same prompt, so that a machine that slows down is fair.

    ``stop`` ends it within one round; a run that was not finished is not counted. Tests have other clocks.
    """

    pair: ModelPair | ServedPair
    prompts: Sequence[Prompt]
    report: Found
    stop: Event
    clock: Callable[[], float] = time.perf_counter
    began: float = 0.0
    lost: float = 0.0  # seconds in runs that were made again

    def steps(self, tokens: int, warmed: Sequence[Contender]) -> Iterator[Progress[Found]]:
        """The progress of every run, after short ones of ``warmed``, which pay for what only a first run pays."""
        if isinstance(self.pair, GgufPair):
            self.clock = self.pair.clock
        self.began, base = self.clock(), self.report.base
        short = replace(base, max_new_tokens=min(tokens, base.max_new_tokens))
        if any(self.decoded(contender, 0, 0, short) is None for contender in warmed):
            return
        for prompt, repeat, contenders in self.blocks():
            for contender in contenders:
                if self.over(contender):
                    yield self.progress(None)
                    return
                try:
                    run = self.decoded(contender, prompt, repeat, base)
                except MemoryShortage:
                    if contender.size == 1:
                        raise
                    self.report = replace(self.report, ran_out=contender.size)
                    yield self.progress(None)
                    break
                if run is None:
                    return
                self.report = replace(self.report, runs=(*self.report.runs, run))
                yield self.progress(run)
            yield from self.steadied(prompt, repeat)

    def steadied(self, prompt: int, repeat: int) -> Iterator[Progress[Found]]:
        """A block's runs made while the machine was busy, once more: they take the place of those that were there.

        Plain decoding comes first, since it may be all that was disturbed; while its own steps are not steady the
        others wait. It takes as long as all other runs at most.
        """
        for _ in range(TIMES_AGAIN):
            for contender in dict.fromkeys(c.plain for c in self.busy(prompt, repeat)):
                yield from self.again(contender, prompt, repeat)
            for contender in self.busy(prompt, repeat):
                (plain,) = (r for r in self.report.of(contender.plain) if (r.prompt, r.repeat) == (prompt, repeat))
                if plain.pace and not drift(plain.pace.quarters):
                    yield from self.again(contender, prompt, repeat)

    def busy(self, prompt: int, repeat: int) -> list[Contender]:
        """Whose runs of a block were disturbed."""
        return [c for *block, c in self.report.disturbed if block == [prompt, repeat]]

    def again(self, contender: Contender, prompt: int, repeat: int) -> Iterator[Progress[Found]]:
        """A run once more, if there is time for it."""
        began = self.clock()
        if self.stop.is_set() or self.lost >= (began - self.began) / 2 or self.over(contender):
            return
        run = self.decoded(contender, prompt, repeat, self.report.base)
        self.lost += self.clock() - began
        if run is not None:
            runs = tuple(run if key_of(r) == key_of(run) else r for r in self.report.runs)
            self.report = replace(self.report, runs=runs, again=self.report.again + 1)
            yield self.progress(run)

    def blocks(self) -> Iterator[Block]:
        """What to run: every prompt in every repeat. It may look at the report of the block before."""
        for repeat in range(self.report.repeats):
            for prompt in range(len(self.prompts)):
                yield prompt, repeat, turned(self.report.contenders, prompt + repeat)

    def decoded(self, contender: Contender, prompt: int, repeat: int, shared: Settings) -> Run | None:
        """A contender's run; None if it was stopped."""
        began = self.clock()
        # Repeats have other seeds, so that sampled figures are not those of one text.
        settings = contender.settings(replace(shared, seed=(shared.seed + repeat) % SEEDS))
        trace = finished_run(self.pair, self.prompts[prompt], settings, self.stop)
        if trace is None:
            return None
        self.look(contender, prompt, trace)
        steps, figures = (counts_of(trace.rounds), None) if trace.server is None else ((), trace.metrics())
        return Run(contender, prompt, repeat, steps, figures, self.clock() - began, trace.peak_memory)

    def look(self, contender: Contender, prompt: int, trace: Trace) -> None:
        """Note in the report what only a trace tells."""
        if trace.server is not None and trace.server.gamma and not trace.server.obeyed:
            self.report = replace(self.report, server_gamma=self.report.server_gamma or trace.server.gamma)

    def over(self, contender: Contender) -> bool:
        """Whether it ends before this contender's next run."""
        return False

    def progress(self, run: Run | None) -> Progress[Found]:
        """How far it is."""
        done, total = len(self.report.runs), self.report.total
        left = (self.clock() - self.began) / max(done, 1) * max(total - done, 0)
        return Progress(done, total, run, left, self.report)


def turned(contenders: Sequence[Contender], by: int) -> list[Contender]:
    """The contenders, rotated: each comes first as often."""
    first = by % len(contenders)
    return [*contenders[first:], *contenders[:first]]
