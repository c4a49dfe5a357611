"""``python -m specdemo.bench.kills``: runs ended by Stop, closed tabs and crashes, and what they leave behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from random import Random
from typing import Any
from unittest.mock import patch

import psutil
import torch

from specdemo.bench.forwards import EagerRunner, alive_runners
from specdemo.bench.harness import Args, Results, as_json, head, run_bench
from specdemo.bench.running_app import app_here
from specdemo.bench.tab import Page, Tab
from specdemo.decoding.assisted import AssistedObserver
from specdemo.models.request import request_pair
from specdemo.runs.race import Race
from specdemo.runs.store import PairStore
from specdemo.ui.jobs.stops import StopSignals

WAYS = ("stop", "close", "crash")
FAULTS = (RuntimeError, SystemExit, MemoryError, KeyboardInterrupt)
"""What is raised in the models' thread by turns; two of the four are no ``Exception``."""
PROMPT = "Write a story about a lighthouse keeper."
LANES = ({"lane2__gamma": 4}, {"lane2__method": "assisted"}, {"lane2__method": "assisted_lookup"})
"""What differs from the page's beginning, by turns: the second lane drafts by itself, or is transformers' own."""
TOKENS = 400
LATEST_ROUND, LATEST_OF_THEIRS = 120, 40
"""To be ended in; transformers' own lanes decode whole before the others go on."""
WARM_UP = 20
"""Runs after which memory and threads are first read."""
IDLE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Kill:
    """One run that was ended, and what was left of it.

    Attributes:
        way: ``stop``, ``close`` or ``crash``.
        fault: the exception that was raised, if any.
        round: rounds that were decoded when it was ended: of all lanes, or of transformers' own.
        rounds_after: rounds finished since the server knew of it.
        seconds_to_know: from the press, or the closing, until the server knew of it.
        seconds_to_idle: from then until the models' thread was free.
        told: the page's last message; None for a closed tab.
        runners: models' caches, and watched generations, that were still alive, before any garbage was collected.
        threads: of the process.
        resident: bytes of the process.
    """

    way: str
    fault: str | None
    round: int
    rounds_after: int
    seconds_to_know: float
    seconds_to_idle: float
    told: str | None
    runners: int
    threads: int
    resident: int


class Probe:
    """Sees what the models' thread does, and can crash it in the middle of a round."""

    def __init__(self) -> None:
        self.rounds, self.theirs = 0, False
        self._kept: Sequence[Collection[Any]] = ()
        self.known: tuple[float, int] | None = None
        self._fault: type[BaseException] | None = None

    def arm(self, fault: type[BaseException] | None) -> None:
        """Raise this at the next forward of any runner, or where the next round of transformers' ends."""
        self._fault = fault

    def note(self) -> None:
        """The server knows that the run shall end."""
        if self.known is None:
            self.known = time.perf_counter(), self.rounds

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look on, for as long as the context is open."""

        def crash() -> None:
            fault, self._fault = self._fault, None
            if fault is not None:
                self.note()
                raise fault("raised by the bench")

        def count() -> None:
            self.rounds += not self.theirs

        def count_theirs() -> None:
            self.rounds += self.theirs

        with (
            alive_runners() as own,
            alive_runners(AssistedObserver) as theirs,
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


class Bench:
    """The app in this process, and visitors who end their runs."""

    def __init__(self, url: str, store: PairStore, probe: Probe) -> None:
        self._page, self._store, self._probe = Page(url), store, probe
        self._process = psutil.Process()
        # Each with every way to be ended, which take turns too.
        self._lanes = cycle(LANES[(n + n // len(WAYS)) % len(LANES)] for n in range(len(WAYS) * len(LANES)))

    @property
    def device(self) -> torch.device:
        """Where the pair runs."""
        with self._store.using(request_pair("builtin")) as load:
            return load.future.result().device

    def whole(self, tokens: int) -> dict[str, Any]:
        """A run that nobody ends; its last view."""
        with Tab(self._page) as tab:
            *_, last = tab.run(prompt=PROMPT, **LANES[0], max__tokens=tokens, ignore__eos=True)
        return last

    def kill(self, way: str, fault: type[BaseException] | None, at: int) -> Kill:
        """Start a run, end it after ``at`` rounds, and wait until the models' thread is free."""
        probe, lanes = self._probe, next(self._lanes)
        probe.theirs = lanes is not LANES[0]
        at = min(at, LATEST_OF_THEIRS) if probe.theirs else at
        with Tab(self._page) as tab:
            before = probe.rounds
            updates = tab.run(prompt=PROMPT, **lanes, max__tokens=TOKENS, ignore__eos=True)
            _until(lambda: probe.rounds >= before + at, "the round to be killed in was not reached")
            at, pressed, last = probe.rounds - before, time.perf_counter(), None
            probe.known = None
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
            idle = time.perf_counter()
            since, rounds = probe.known
            runners, decoded = self._await_freed(), probe.rounds - rounds
        return Kill(
            way=way,
            fault=fault.__name__ if fault else None,
            round=at,
            rounds_after=decoded,
            seconds_to_know=since - pressed,
            seconds_to_idle=max(idle - since, 0.0),
            told=last and last["message"],
            runners=runners,
            threads=threading.active_count(),
            resident=self._process.memory_info().rss,
        )

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
def running() -> Iterator[Bench]:
    """The app on a free port, with the builtin pair in memory."""
    store, probe = PairStore(), Probe()
    # Gradio keeps something of every visitor who left, up to so many; more have come when memory is first read.
    with app_here(store, state_session_capacity=WARM_UP // 2) as url:
        with store.using(request_pair("builtin")) as load:
            load.future.result()
        with probe.watching():
            yield Bench(url, store, probe)


def plan(kills: int, seed: int) -> list[tuple[str, type[BaseException] | None, int]]:
    """Way, fault and round of each: ways and faults by turns, rounds at random."""
    random, faults = Random(seed), cycle(FAULTS)
    return [
        (way, next(faults) if way == "crash" else None, random.randint(1, LATEST_ROUND))
        for way in islice(cycle(WAYS), kills)
    ]


def summary(kills: Sequence[Kill]) -> dict[str, Any]:
    """The worst of all runs, and what the process grew by after the warm-up."""
    settled = kills[min(WARM_UP, len(kills) - 1) :]
    return {
        "kills": len(kills),
        "most_rounds_after": max(k.rounds_after for k in kills),
        "most_runners_left": max(k.runners for k in kills),
        "longest_to_idle_seconds": max(k.seconds_to_idle for k in kills),
        "longest_to_know_seconds": {
            way: max((k.seconds_to_know for k in kills if k.way == way), default=None) for way in WAYS
        },
        "crashes_told": sum(bool(k.told) for k in kills if k.way == "crash"),
        "threads": [settled[0].threads, settled[-1].threads],
        "resident_mb": [settled[0].resident / 1e6, settled[-1].resident / 1e6],
    }


def measure(args: Args) -> Results:
    """All figures as plain data; prints those of each run as they come."""
    kills: list[Kill] = []
    with running() as bench:
        bench.whole(24)
        for way, fault, at in plan(args.kills, args.seed):
            kills.append(bench.kill(way, fault, at))
            print(kills[-1], flush=True)
        gc.collect()
        last = bench.whole(24)
        found = {**head(args, bench.device, "kills", "seed"), **summary(kills), "last_run": last["phase"]}
    return {**found, "all": [asdict(kill) for kill in kills]}


def table(found: dict[str, Any]) -> str:
    """The results for people: all but those of single runs."""
    return as_json({name: figure for name, figure in found.items() if name != "all"})


if __name__ == "__main__":
    run_bench("kills", __doc__, measure, table, kills=100, seed=0)
