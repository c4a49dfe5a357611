"""Lanes side by side on one machine, each on its own clock, once or repeatedly; servers run beside them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event
from typing import Any

from specdemo.decoding.lane import Texts
from specdemo.errors import ServerError, SettingsError, SpecDemoError
from specdemo.models.pair import ModelPair
from specdemo.rounds import Round
from specdemo.runs.single import LocalLane, Prompt, checked, stream
from specdemo.servers.pair import ServedPair
from specdemo.settings import SEEDS, Settings, at_least_one
from specdemo.trace import Trace

SLICE_SECONDS = 0.1
WAIT_SECONDS = 0.02
"""How long to look at one server for news before looking at the next."""
REPEATS = 5

Pair = ModelPair | ServedPair | None


def race(
    pair: Pair | Sequence[Pair],
    prompt: Prompt,
    lanes: Sequence[Settings],
    stop: Event | None = None,
    earlier: Texts = (),
) -> Race:
    """Decode the prompt once for each settings; yields (lane, round).

    Args:
        pair: runs all lanes; or one pair a lane, such as a quantised target beside the unquantised one, or a
            server beside the models here.
        prompt: text, or token ids taken as they are.
        lanes: the settings of each.
        stop: ends the race while it waits for a server or for transformers' own decoding. Between rounds it is
            the caller who stops asking.
        earlier: as of ``run``, for the lanes that read them; refused if none does.

    The lane whose clock is behind goes next, for about a tenth of a second of its own time: what has been
    yielded at any moment is what as many equal machines would show at that instant. A lane on a server elsewhere
    runs by itself, on the client's clock, and never waits for the others. One on this machine would take time from
    the others, and they from it, so it runs alone, in its turn. Closing the generator frees all caches.

    Raises:
        PromptError, SettingsError, ServerError: at once, before anything runs. What a server says to the request
            itself is raised when it says it.
    """
    if not lanes:
        raise SettingsError("lanes", "there are none; give at least one Settings.")
    pairs = pair if isinstance(pair, Sequence) else [pair] * len(lanes)
    if len(pairs) != len(lanes):
        raise SettingsError(
            "lanes", f"there are {len(lanes)}, but pairs: {len(pairs)}; give one pair for all, or one a lane."
        )
    return Race(pairs, prompt, [checked(s) for s in lanes], stop, earlier)


class Race(Iterator[tuple[int, Round]]):
    """A race under way: an iterator of (lane, round), and at any time the lanes' traces."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        prompt: Prompt,
        lanes: Sequence[Settings],
        stop: Event | None = None,
        earlier: Texts = (),
    ) -> None:
        unread = not any(s.reads_earlier for s in lanes)  # which the first lane says
        given = [earlier if unread or s.reads_earlier else () for s in lanes]
        self._lanes = [stream(p, prompt, s, stop, e) for p, s, e in zip(pairs, lanes, given, strict=True)]
        self._events = _interleave(self._lanes, stop)

    def __next__(self) -> tuple[int, Round]:
        return next(self._events)

    def close(self) -> None:
        """Free all caches, and break off what servers still send."""
        self._events.close()
        for lane in self._lanes:  # also of a race that never began
            lane.close()

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The prompt as the first lane that runs here encoded it; empty if none does."""
        return next((lane.ids for lane in self._lanes if isinstance(lane, LocalLane)), ())

    def traces(self) -> list[Trace]:
        """What each lane did so far; of a server's lane that has ended, with the rounds that it really had."""
        return [lane.trace() for lane in self._lanes]


def _interleave(lanes: list[Any], stop: Event | None = None) -> Generator[tuple[int, Round]]:
    """The rounds of iterators of rounds; those that can ``wait`` run by themselves, on a server."""
    try:
        for together in _turns(lanes):
            yield from _run_together({n: lanes[n] for n in together}, stop)
            if stop is not None and stop.is_set():
                return
    finally:
        for iterator in lanes:
            iterator.close()


def _turns(lanes: list[Any]) -> list[list[int]]:
    """The lanes that may run at the same time, in order: those of servers on this machine are each alone."""
    beside = [n for n, lane in enumerate(lanes) if hasattr(lane, "wait") and lane.shares_machine]
    others = [n for n in range(len(lanes)) if n not in beside]
    if len(beside) + any(not hasattr(lane, "wait") for lane in lanes) < 2:
        return [[*range(len(lanes))]]
    for n in beside:
        lanes[n].in_turn = True
    return sorted(filter(None, [others, *([n] for n in beside)]), key=min)


def _run_together(lanes: dict[int, Any], stop: Event | None) -> Iterator[tuple[int, Round]]:
    """The rounds of some of the lanes, by their numbers."""
    clocks = dict.fromkeys(lanes, 0.0)  # of the lanes still running
    remote = {n for n in lanes if hasattr(lanes[n], "wait")}
    for n in remote:
        lanes[n].start()
    while clocks:
        waiting = {n for n in remote & clocks.keys() if not lanes[n].wait(0)}
        # A server's lane with nothing to give yet is as far as its clock.
        now = {n: lanes[n].elapsed if n in waiting else clock for n, clock in clocks.items()}
        lane = min(now, key=now.__getitem__)
        if lane in waiting:  # all that runs here is ahead of the servers, or nothing runs here
            if stop is not None and stop.is_set():
                return
            lanes[lane].wait(WAIT_SECONDS)
            continue
        # Whether a server's lane has more is seen when it is its turn again.
        until = clocks[lane] + (SLICE_SECONDS if lane not in remote else 0.0)
        while (round_ := next(lanes[lane], None)) is not None:
            clocks[lane] = round_.seconds
            yield lane, round_
            if round_.seconds >= until:
                break
        else:
            del clocks[lane]


def repeat_race(
    pair: Pair | Sequence[Pair],
    prompt: Prompt,
    lanes: Sequence[Settings],
    repeats: int = REPEATS,
    stop: Event | None = None,
    earlier: Texts = (),
) -> Generator[tuple[float, ...]]:
    """Run a race ``repeats`` times; yields each lane's decode speed, tokens a second, after every run.

    Arguments are those of :func:`specdemo.race`. Lanes that sample have other seeds each time, so that the spread
    is not that of one text. Setting ``stop`` ends it within one round; a run that was not finished is not counted.
    ``Recording.repeats`` keeps what this yields.

    Raises:
        PromptError, SettingsError: as ``race`` does, at the first step.
        ServerError: a server's answer broke off; half a run has no speed.
        SpecDemoError: a lane ended with its first token, which has no speed.
    """
    for number in range(1, at_least_one("repeats", repeats) + 1):
        settings = [s if s.greedy else replace(s, seed=(s.seed + number) % SEEDS) for s in lanes]
        with closing(race(pair, prompt, settings, stop, earlier)) as racing:
            for _ in racing:
                if stop is not None and stop.is_set():
                    return
            traces = racing.traces()
        if stop is not None and stop.is_set():
            return
        yield tuple(map(_speed, traces))


def _speed(trace: Trace) -> float:
    if trace.server is not None and trace.server.incomplete:
        raise ServerError(f"a repeated run broke off: {trace.server.incomplete}")
    speed = trace.metrics().tokens_per_second
    if speed is None:
        raise SpecDemoError("A lane ended with its first token, so it has no speed; choose another prompt.")
    return speed
