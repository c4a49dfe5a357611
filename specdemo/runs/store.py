"""Pairs in memory, shared by all visitors: each is loaded once, the least recently used one makes room."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import RLock, Semaphore, Thread

import torch

from specdemo.errors import PairError
from specdemo.models.loading import check, fetch
from specdemo.models.memory import Footprint, free_memory
from specdemo.models.pair import ModelPair
from specdemo.models.preflight import Examined, Preflight, examine, gigabytes
from specdemo.models.progress import Progress
from specdemo.models.request import BUDGET, PairRequest
from specdemo.runs.load import assemble_warm
from specdemo.runs.threads import quickest_threads

DOWNLOADS = 4
"""Pairs that may be looked at or fetched at the same time."""


@dataclass(eq=False, slots=True)
class Load:
    """A pair on its way into memory, or there.

    Attributes:
        request: what was asked for.
        future: the pair (None where only workers on ZeroGPU hold it), or what went wrong.
        progress: what is being done.
        report: the preflight, once it was made.
        notes: what happened on the way, such as which pair had to go.
        weights: what target and draft take, once they are there.
        place: where that is, for people.
        bytes: of this program's memory.
    """

    request: PairRequest
    future: Future[ModelPair] = field(default_factory=Future)
    progress: Progress = field(default_factory=Progress)
    report: Preflight | None = None
    notes: list[str] = field(default_factory=list)
    weights: dict[str, Footprint] = field(default_factory=dict)
    place: str = "In memory"
    bytes: int = 0
    users: int = 0

    def finish(self, pair: ModelPair) -> None:
        """The pair is in memory: tell those who wait."""
        self.weights = pair.footprints()
        self.bytes = sum(f.held for f in self.weights.values())
        self.future.set_result(pair)

    @property
    def ready(self) -> bool:
        """Whether the pair is in memory."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None


class PairStore:
    """Hands out pairs; two visitors asking for one pair wait for one load.

    Args:
        budget: bytes that all pairs together may take; None means ``SPECDEMO_MEMORY_GB``, or else whatever the
            device has free when a pair is loaded.
        threads: of the CPU that pairs run with; None means the quickest number for each.

    Attributes:
        thread: the one thread that runs and loads models. OpenMP keeps a team of cores for every thread that
            ever computed; as soon as there are two teams, they have more threads than the machine has cores and
            sleep at every barrier, which makes a small model two to three times slower.
    """

    def __init__(self, budget: int | None = None, threads: int | None = None) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="models")
        self._threads = threads
        self._downloads = Semaphore(DOWNLOADS)
        self._budget = _budget() if budget is None else budget
        self._loads: OrderedDict[PairRequest, Load] = OrderedDict()  # the least recently used first
        self._lock = RLock()

    @contextmanager
    def using(self, request: PairRequest) -> Iterator[Load]:
        """A pair to wait for and to run; it is not put out of memory meanwhile.

        A load that everybody left before it was done is cancelled.
        """
        load = self._join(request)
        try:
            yield load
        finally:
            self._leave(load)

    def preload(self, request: PairRequest) -> Load:
        """Begin to load a pair that somebody will want."""
        return self.want(request)[0]

    def want(self, request: PairRequest) -> tuple[Load, Callable[[], None]]:
        """The same, and how to say that one no longer wants it."""
        load = self._join(request)
        held = [load]  # emptied, since whoever keeps ``leave`` must not keep the models in memory with it

        def leave(_: object = None) -> None:
            with self._lock:
                if held:
                    self._leave(held.pop())

        load.future.add_done_callback(leave)
        return load, leave

    def adopt(self, request: PairRequest, pair: ModelPair) -> None:
        """Take over a pair that is in memory already."""
        load = Load(request)
        load.finish(pair)
        with self._lock:
            self._loads[request] = load

    def find(self, request: PairRequest) -> Load | None:
        """The pair if it is in memory or on its way."""
        with self._lock:
            return self._loads.get(request)

    def resident(self) -> list[Load]:
        """What is in memory, the least recently used first."""
        with self._lock:
            return [load for load in self._loads.values() if load.ready]

    def look(self, request: PairRequest) -> Preflight:
        """The preflight, as this store would load the pair: counting what idle pairs would leave."""
        return examine(request, Progress(), partial(self._possible_room, request))[0]

    def _join(self, request: PairRequest) -> Load:
        with self._lock:
            load = self._loads.get(request)
            if load is None or load.progress.cancelled:
                load = self._loads[request] = Load(request)
                # A daemon, since a download should not keep the program from ending.
                Thread(target=self._bring, args=(load,), name="load", daemon=True).start()
            self._loads.move_to_end(request)
            load.users += 1
            return load

    def _leave(self, load: Load) -> None:
        with self._lock:
            load.users -= 1
            if not load.users and not load.future.done():
                load.progress.cancel()
                self._drop(load)

    def _bring(self, load: Load) -> None:
        """Look, fetch and load; a failure is told to those who wait and forgotten, so that a next try is new."""
        try:
            with self._downloads:
                report, found = examine(load.request, load.progress, partial(self._possible_room, load.request))
                load.report = report
                check(report)
                fetch(found, load.progress)
            self._bring_in(load, found)
        except BaseException as error:
            with self._lock:
                self._drop(load)
            load.future.set_exception(error if isinstance(error, Exception) else _ended(load, error))

    def _bring_in(self, load: Load, found: list[Examined]) -> None:
        """From what was fetched to a pair that can run."""
        load.progress.begin("Waiting for a run to end")
        self.thread.submit(self._assemble, load, load.report, found).result()

    def _assemble(self, load: Load, report: Preflight, found: list[Examined]) -> None:
        load.progress.check()  # before other pairs make room for one that nobody wants any more
        self._make_room(load, report)
        pair = assemble_warm(report, found, load.progress)
        load.progress.begin("Finding out how many threads run it the fastest")
        pair.threads = self._threads or quickest_threads(pair)
        load.finish(pair)  # here, so that the next load in this thread counts it

    def _make_room(self, load: Load, report: Preflight) -> None:
        """Put pairs out of memory that nobody uses, the least recently used first, until this one fits.

        Raises:
            PairError: it does not fit all the same.
        """
        while (room := self._room(report.device)) < report.memory:
            with self._lock:
                idle = [other for other in self._in_the_way(report) if not other.users]
                if idle:
                    self._drop(idle[0])
            if not idle:
                raise PairError(
                    f"memory: the pair needs {gigabytes(report.memory)} and {gigabytes(max(room, 0))} are left, "
                    "with other pairs in use; wait for those runs, choose a smaller pair or a quantisation"
                    + ("." if self._budget is None else f", or raise {BUDGET}.")
                )
            load.notes.append(f"{idle[0].request.name} was put out of memory to make room.")
            del idle
            _collect()

    def _in_the_way(self, report: Preflight) -> list[Load]:
        """Pairs that take what this one lacks: any where it is the budget, else those on the same device."""
        lacks_memory = free_memory(report.device) < report.memory
        return _on(report.device, self.resident()) if lacks_memory else self.resident()

    def _room(self, device: str) -> int:
        """Bytes that a new pair could take now."""
        return self._within_budget(free_memory(device), self.resident())

    def _possible_room(self, request: PairRequest, device: str) -> int:
        """Bytes that it could take if all idle pairs had to go; what it has already is its own."""
        pairs = self.resident()
        kept = [load for load in pairs if load.users and load.request != request]
        given = sum(load.bytes for load in _on(device, pairs) if load not in kept)
        return self._within_budget(free_memory(device) + given, kept)

    def _within_budget(self, free: int, kept: list[Load]) -> int:
        return free if self._budget is None else min(free, self._budget - sum(load.bytes for load in kept))

    def _drop(self, load: Load) -> None:
        if self._loads.get(load.request) is load:
            del self._loads[load.request]


def _ended(load: Load, error: BaseException) -> PairError:
    """What is no ``Exception``, such as ``SystemExit`` inside a library, would end the server that waits here."""
    told = PairError(f"{load.request.name}: loading was ended by {type(error).__name__}; load it again.")
    told.__cause__ = error
    return told


def _on(device: str, loads: list[Load]) -> list[Load]:
    """Those that share a device; a pair that is spread shares all."""
    return [load for load in loads if load.request.device == device or "auto" in (load.request.device, device)]


def _budget() -> int | None:
    asked = os.environ.get(BUDGET)
    try:
        return None if not asked else int(float(asked) * 1e9)
    except ValueError as error:
        raise PairError(f"{BUDGET}: {asked!r} is no number; give gigabytes, such as 8.") from error


def _collect() -> None:
    """Give freed memory back: models are cyclic, and torch keeps a GPU's blocks for itself."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
