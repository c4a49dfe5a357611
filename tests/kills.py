"""Runs ended by Stop, closed tabs and crashes, and what they leave behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

from tab import Page, Tab

from specdemo.decoding.assisted import AssistedObserver
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.models.request import request_pair
from specdemo.runs.race import Race
from specdemo.runs.store import PairStore
from specdemo.ui.jobs.stops import StopSignals
from specdemo.ui.page import build, launch_options

WAYS = ("stop", "close", "crash")
FAULTS = (RuntimeError, SystemExit, MemoryError, KeyboardInterrupt)
"""What is raised in the models' thread by turns; two of the four are no ``Exception``."""
PROMPT = "Write a story about a lighthouse keeper."
LANES = ({"lane2__gamma": 4}, {"lane2__method": "assisted"}, {"lane2__method": "assisted_lookup"})
"""What differs from the page's beginning, by turns: the second lane drafts by itself, or is transformers' own."""
TOKENS = 400
LATEST_ROUND = 40
"""To be ended in; transformers' own lanes decode whole before the others go on."""
IDLE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Kill:
    """One run that was ended, and what was left of it.

    Attributes:
        way: ``stop``, ``close`` or ``crash``.
        fault: the exception that was raised, if any.
        rounds_after: rounds finished since the server knew of it.
        told: the page's last message; None for a closed tab.
        runners: models' caches, and watched generations, that were still alive, before any garbage was collected.
        threads: of the process.
    """

    way: str
    fault: str | None
    rounds_after: int
    told: str | None
    runners: int
    threads: int


class Probe:
    """Sees what the models' thread does, and can crash it in the middle of a round."""

    def __init__(self) -> None:
        self.rounds, self.theirs = 0, False
        self._kept: Sequence[Collection[Any]] = ()
        self.known: int | None = None
        self._fault: type[BaseException] | None = None

    def arm(self, fault: type[BaseException] | None) -> None:
        """Raise this at the next forward of any runner, or where the next round of transformers' ends."""
        self._fault = fault

    def note(self) -> None:
        """The server knows that the run shall end."""
        if self.known is None:
            self.known = self.rounds

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look on, for as long as the context is open."""

        def crash() -> None:
            fault, self._fault = self._fault, None
            if fault is not None:
                self.note()
                raise fault("raised by the test")

        def count() -> None:
            self.rounds += not self.theirs

        def count_theirs() -> None:
            self.rounds += self.theirs

        with (
            alive(EagerRunner) as own,
            alive(AssistedObserver) as theirs,
            patch.object(Race, "__next__", observed(Race.__next__, afterwards=count)),
            patch.object(EagerRunner, "forward", observed(EagerRunner.forward, before=crash)),
            patch.object(AssistedObserver, "put", observed(AssistedObserver.put, crash, count_theirs)),
            patch.object(StopSignals, "stop", observed(StopSignals.stop, afterwards=self.note)),
            patch.object(StopSignals, "forget", observed(StopSignals.forget, afterwards=self.note)),
        ):
            self._kept = own, theirs
            yield

    @property
    def runners(self) -> int:
        """What is left of lanes."""
        return sum(map(len, self._kept))


@contextmanager
def alive(kind: type) -> Iterator[WeakSet[Any]]:
    """What is made of a class while this is entered, for as long as it lives."""
    found: WeakSet[Any] = WeakSet()
    init = kind.__init__  # type: ignore[misc]

    def made(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        found.add(self)

    with patch.object(kind, "__init__", made):
        yield found


def observed(
    method: Callable[..., Any],
    before: Callable[[], object] = lambda: None,
    afterwards: Callable[[], object] = lambda: None,
) -> Callable[..., Any]:
    """The method, with something that is called before it and something once it returned."""

    def call(*arguments: Any, **options: Any) -> Any:
        before()
        result = method(*arguments, **options)
        afterwards()
        return result

    return call


class Killer:
    """The app in this process, and visitors who end their runs."""

    def __init__(self, url: str, store: PairStore, probe: Probe) -> None:
        self._page, self._store, self._probe = Page(url), store, probe
        # Each with every way to be ended, which take turns too.
        self._lanes = cycle(LANES[(n + n // len(WAYS)) % len(LANES)] for n in range(len(WAYS) * len(LANES)))

    def whole(self, tokens: int) -> dict[str, Any]:
        """A run that nobody ends; its last view."""
        with Tab(self._page) as tab:
            *_, last = tab.run(prompt=PROMPT, **LANES[0], max__tokens=tokens, ignore__eos=True)
        return last

    def kill(self, way: str, fault: type[BaseException] | None, at: int) -> Kill:
        """Start a run, end it after ``at`` rounds, and wait until the models' thread is free."""
        probe, lanes = self._probe, next(self._lanes)
        probe.theirs = lanes is not LANES[0]
        with Tab(self._page) as tab:
            before, probe.known, last = probe.rounds, None, None
            updates = tab.run(prompt=PROMPT, **lanes, max__tokens=TOKENS, ignore__eos=True)
            _until(lambda: probe.rounds >= before + at, "the round to be killed in was not reached")
            if way == "crash":
                probe.arm(fault)
            elif way == "stop":
                tab.press("stop")
            if way == "close":
                tab.close()
                _until(lambda: probe.known is not None, "the closed tab was not noticed")
            else:
                *_, last = updates
            # Jobs of that thread are done in turn, so this one waits for whatever is left of the run.
            self._store.thread.submit(int).result(IDLE_SECONDS)
            runners, decoded = self._await_freed(), probe.rounds - probe.known
        name = fault.__name__ if fault else None
        return Kill(way, name, decoded, last and last["message"], runners, threading.active_count())

    def _await_freed(self) -> int:
        """Caches that are left once the server's own threads had a moment to let go of them."""
        until = time.perf_counter() + 1
        while self._probe.runners and time.perf_counter() < until:
            time.sleep(0.01)
        return self._probe.runners


def _until(true: Callable[[], bool], failed: str) -> None:
    until = time.perf_counter() + IDLE_SECONDS
    while not true():
        if time.perf_counter() > until:
            raise TimeoutError(failed)
        time.sleep(0.001)


@contextmanager
def running() -> Iterator[Killer]:
    """The app on a free port, with the builtin pair in memory."""
    store, probe = PairStore(), Probe()
    demo = build(store)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    with ExitStack() as stack:
        stack.callback(demo.close)
        with store.using(request_pair("builtin")) as load:
            load.future.result()
        stack.enter_context(probe.watching())
        yield Killer(url, store, probe)


def plan(kills: int, seed: int) -> list[tuple[str, type[BaseException] | None, int]]:
    """Way, fault and round of each: ways and faults by turns, rounds at random."""
    random, faults = Random(seed), cycle(FAULTS)
    return [
        (way, next(faults) if way == "crash" else None, random.randint(1, LATEST_ROUND))
        for way in islice(cycle(WAYS), kills)
    ]
