"""``python -m specdemo.bench.kills``: runs ended by Stop, closed tabs and crashes, and what they leave behind."""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import httpx
import psutil

from specdemo.bench.tab import Tab
from specdemo.decoding.engines.eager import Runner
from specdemo.machine import machine_of
from specdemo.models.request import request_pair
from specdemo.runs.race import Race
from specdemo.runs.store import PairStore
from specdemo.trace import Round
from specdemo.ui.jobs.stops import Stops
from specdemo.ui.page import build, launch_options

WAYS = ("stop", "close", "crash")
FAULTS = (RuntimeError, SystemExit, MemoryError, KeyboardInterrupt)
"""What is raised in the models' thread by turns; two of the four are no ``Exception``."""
PROMPT = "Write a story about a lighthouse keeper."
TOKENS = 400
LATEST_ROUND = 120
WARM_UP = 20
"""Runs after which memory and threads are first read."""
IDLE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Kill:
    """One run that was ended, and what was left of it.

    Attributes:
        way: ``stop``, ``close`` or ``crash``.
        fault: the exception that was raised, if any.
        round: rounds of both lanes that were decoded when it was ended.
        rounds_after: rounds finished since the server knew of it.
        seconds_to_know: from the press, or the closing, until the server knew of it.
        seconds_to_idle: from then until the models' thread was free.
        told: the page's last message; None for a closed tab.
        runners: models' caches that were still alive, before any garbage was collected.
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
        self.rounds = 0
        self.runners: WeakSet[Runner] = WeakSet()
        self.known: tuple[float, int] | None = None
        self._fault: type[BaseException] | None = None

    def arm(self, fault: type[BaseException]) -> None:
        """Raise this at the next forward of any model."""
        self._fault = fault

    def note(self) -> None:
        """The server knows that the run shall end."""
        if self.known is None:
            self.known = time.perf_counter(), self.rounds

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look on, for as long as the context is open."""
        init, forward, stop, forget = Runner.__init__, Runner.forward, Stops.stop, Stops.forget
        step = Race.__next__

        def counted(racing: Race) -> tuple[int, Round]:
            item = step(racing)
            self.rounds += 1
            return item

        def made(runner: Runner, *arguments: Any) -> None:
            init(runner, *arguments)
            self.runners.add(runner)

        def crashing(runner: Runner, *arguments: Any, **options: Any) -> Any:
            fault, self._fault = self._fault, None
            if fault is not None:
                self.note()
                raise fault("raised by the bench")
            return forward(runner, *arguments, **options)

        def stopped(stops: Stops, session: str) -> None:
            stop(stops, session)
            self.note()

        def left(stops: Stops, session: str) -> None:
            forget(stops, session)
            self.note()

        with (
            patch.object(Race, "__next__", counted),
            patch.multiple(Runner, __init__=made, forward=crashing),
            patch.multiple(Stops, stop=stopped, forget=left),
        ):
            yield


class Bench:
    """The app in this process, and visitors who end their runs."""

    def __init__(self, url: str, store: PairStore, probe: Probe) -> None:
        self._url, self._store, self._probe = url, store, probe
        self._config = httpx.get(f"{url}/config", timeout=60).raise_for_status().json()
        self._process = psutil.Process()

    def machine(self) -> dict[str, Any]:
        """What the figures depend on."""
        with self._store.using(request_pair("builtin")) as load:
            return machine_of(load.future.result().device)

    def whole(self, tokens: int) -> dict[str, Any]:
        """A run that nobody ends; its last view."""
        with Tab(self._url, self._config) as tab:
            tab.press("run", panel(tokens))
            *_, last = tab.start("run", panel(tokens))
        return last

    def kill(self, way: str, fault: type[BaseException] | None, at: int) -> Kill:
        """Start a run, end it after ``at`` rounds, and wait until the models' thread is free."""
        with Tab(self._url, self._config) as tab:
            tab.press("run", panel(TOKENS))
            before = self._probe.rounds
            updates = tab.start("run", panel(TOKENS))
            self._await_round(before + at)
            at, pressed, last = self._probe.rounds - before, time.perf_counter(), None
            self._probe.known = None
            if way == "crash":
                self._probe.arm(fault)
            elif way == "stop":
                tab.press("stop", panel(TOKENS)[:7])
            if way == "close":
                tab.close()
                self._await_known()
            else:
                *_, last = updates
            # Jobs of that thread are done in turn, so this one waits for whatever is left of the run.
            self._store.thread.submit(int).result(IDLE_SECONDS)
            idle = time.perf_counter()
            since, rounds = self._probe.known
            runners, decoded = self._await_freed(), self._probe.rounds - rounds
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

    def _await_round(self, number: int) -> None:
        _until(lambda: self._probe.rounds >= number, "the round to be killed in was not reached")

    def _await_known(self) -> None:
        _until(lambda: self._probe.known is not None, "the closed tab was not noticed")

    def _await_freed(self) -> int:
        """Caches that are left once the server's own threads had a moment to let go of them."""
        until = time.perf_counter() + 1
        while self._probe.runners and time.perf_counter() < until:
            time.sleep(0.01)
        return len(self._probe.runners)


def _until(true: Any, failed: str) -> None:
    until = time.perf_counter() + IDLE_SECONDS
    while not true():
        if time.perf_counter() > until:
            raise TimeoutError(failed)
        time.sleep(0.001)


def panel(tokens: int) -> list[Any]:
    """A plain lane and one with the draft model, as the panel's controls stand."""
    options = [4, False, "exact", 10, 3, 0]
    lanes = [value for method in ("plain", "draft", "none", "none") for value in (method, *options)]
    return ["builtin", "", "", "none", "none", "auto", "best", PROMPT, 0, 0, 1, 0, True, "auto", tokens, *lanes]


@contextmanager
def running() -> Iterator[Bench]:
    """The app on a free port, with the builtin pair in memory."""
    store, probe = PairStore(), Probe()
    demo = build(store)
    # Gradio keeps something of every visitor who left, up to so many; more have come when memory is first read.
    options = {**launch_options(), "state_session_capacity": WARM_UP // 2}
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **options)
    with store.using(request_pair("builtin")) as load:
        load.future.result()
    try:
        with probe.watching():
            yield Bench(url.rstrip("/"), store, probe)
    finally:
        demo.close()


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    args = parser.parse_args()
    kills: list[Kill] = []
    with running() as bench:
        bench.whole(24)
        for way, fault, at in plan(args.kills, args.seed):
            kills.append(bench.kill(way, fault, at))
            print(kills[-1], flush=True)
        gc.collect()
        last = bench.whole(24)
        machine = bench.machine()
    found = {"machine": machine, **summary(kills), "last_run": last["phase"]}
    print(json.dumps(found, indent=1))
    if args.json:
        rows = [asdict(kill) for kill in kills]
        args.json.write_text(json.dumps({**found, "all": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
