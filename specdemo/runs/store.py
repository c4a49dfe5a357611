"""Pairs in memory, shared by all visitors: each is loaded once, and the least recently used one is evicted."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import RLock, Semaphore, Thread
from typing import Any

from specdemo.errors import PairError
from specdemo.models.loading import fetch
from specdemo.models.memory import Footprint, best_device, free_memory, release_memory
from specdemo.models.pair import ModelPair, checked_threads
from specdemo.models.preflight import Preflight, examine, gigabytes
from specdemo.models.progress import LoadProgress
from specdemo.models.request import BUDGET, PairRequest
from specdemo.runs.load import assemble_warm
from specdemo.runs.threads import quickest_threads
from specdemo.servers.gguf import GgufPair

DOWNLOADS = 4
"""Pairs that may be examined or downloaded at the same time."""


@dataclass(eq=False, slots=True)
class Load:
    """A pair on its way into memory, or there.

    Attributes:
        future: the pair (None where only workers on ZeroGPU hold it), or the error that ended the load.
        report: the preflight; None until it was made.
        notes: remarks for the user, such as which pair was evicted.
        weights: bytes of target and draft, once they are loaded.
        place: where the weights are, for the user.
        users: visitors who wait for the pair or run it.
        thread: that loads it; None of a pair that was in memory already.
    """

    request: PairRequest
    future: Future[Any] = field(default_factory=Future)
    progress: LoadProgress = field(default_factory=LoadProgress)
    report: Preflight | None = None
    notes: list[str] = field(default_factory=list)
    weights: dict[str, Footprint] = field(default_factory=dict)
    place: str = "In memory"
    users: int = 0
    thread: Thread | None = None

    def finish(self, pair: ModelPair | GgufPair) -> None:
        """The pair is in memory: wake those who wait for it."""
        self.weights = pair.footprints()
        self.notes += pair.refused.values() if isinstance(pair, ModelPair) else ()
        self.future.set_result(pair)

    @property
    def ready(self) -> bool:
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None

    @property
    def nbytes(self) -> int:
        """Bytes of its weights, and of those that lanes in llama.cpp beside it share."""
        beside = getattr(self.future.result(), "gguf", None) if self.ready else None
        every = (self.weights, beside.footprints() if isinstance(beside, GgufPair) else {})
        return sum(f.nbytes for weights in every for f in weights.values())


class PairStore:
    """Hands out pairs; two visitors asking for one pair wait for one load.

    Args:
        budget: bytes that all pairs together may take; None means ``SPECDEMO_MEMORY_GB``, or else whatever the
            device has free when a pair is loaded.
        threads: of the CPU that pairs run with; None means the quickest number for each.

    Raises:
        SettingsError: more threads than the machine has processors.

    Attributes:
        thread: the one thread that runs and loads models. OpenMP keeps a team of cores for every thread that
            ever computed; as soon as there are two teams, they have more threads than the machine has cores and
            sleep at every barrier, which makes a small model two to three times slower.
    """

    def __init__(self, budget: int | None = None, threads: int | None = None) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="models")
        self._threads = None if threads is None else checked_threads(threads)
        self._downloads = Semaphore(DOWNLOADS)
        self._budget = _budget() if budget is None else budget
        self._loads: OrderedDict[PairRequest, Load] = OrderedDict()  # the least recently used first
        self._lock = RLock()

    @contextmanager
    def using(self, request: PairRequest) -> Iterator[Load]:
        """A pair to wait for and to run; it is not evicted meanwhile.

        A load is cancelled when its last user leaves before it is done.
        """
        load = self._join(request)
        try:
            yield load
        finally:
            self._leave(load)
            if load.thread and load.future.done():  # else it might be freeing models as the program ends: an abort
                load.thread.join()

    def preload(self, request: PairRequest) -> Load:
        """Start to load a pair before anybody waits for it."""
        return self.want(request)[0]

    def want(self, request: PairRequest) -> tuple[Load, Callable[[], None]]:
        """Start to load a pair; returns the load, and a function that cancels it for this user."""
        load = self._join(request)
        held = [load]  # emptied by ``leave``, so that a caller who keeps ``leave`` does not keep the models

        def leave(_: object = None) -> None:
            with self._lock:
                if held:
                    self._leave(held.pop())

        load.future.add_done_callback(leave)
        return load, leave

    def adopt(self, request: PairRequest, pair: ModelPair) -> None:
        load = Load(request)
        load.finish(pair)
        with self._lock:
            self._loads[request] = load

    def find(self, request: PairRequest) -> Load | None:
        """The pair if it is in memory or being loaded."""
        with self._lock:
            return self._loads.get(request)

    def resident(self) -> list[Load]:
        """The pairs in memory, the least recently used first."""
        with self._lock:
            return [load for load in self._loads.values() if load.ready]

    def look(self, request: PairRequest) -> Preflight:
        """The preflight of loading the pair into this store, where idle pairs can be evicted."""
        return examine(request, LoadProgress(), partial(self._possible_memory, request))

    def _join(self, request: PairRequest) -> Load:
        with self._lock:
            load = self._loads.get(request)
            if load is None or load.progress.cancelled:
                load = self._loads[request] = Load(request)
                # A daemon, since a download should not keep the program from ending.
                load.thread = Thread(target=self._load, args=(load,), name="load", daemon=True)
                load.thread.start()
            self._loads.move_to_end(request)
            load.users += 1
            return load

    def _leave(self, load: Load) -> None:
        with self._lock:
            load.users -= 1
            if not load.users and not load.future.done():
                load.progress.cancel()
                self._drop(load)

    def _load(self, load: Load) -> None:
        """Examine, download and load; a failed load is removed, so that the next request tries again."""
        try:
            with self._downloads:
                free = partial(self._possible_memory, load.request)
                load.report = report = examine(load.request, load.progress, free)
                fetch(report, load.progress)
            self._finish(load, report)
        except BaseException as error:
            with self._lock:
                self._drop(load)
            if not isinstance(error, Exception):  # such as SystemExit, which would end the waiting server
                named = f"{load.request.name}: loading was ended by {type(error).__name__}; load it again."
                error, error.__cause__ = PairError(named), error
            load.future.set_exception(error)

    def _finish(self, load: Load, report: Preflight) -> None:
        """Load the downloaded weights in the models' thread."""
        load.progress.begin("Waiting for a run to end")
        self.thread.submit(self._assemble, load, report).result()

    def _assemble(self, load: Load, report: Preflight) -> None:
        load.progress.check()  # before other pairs are evicted for one that nobody wants any more
        self._evict_until_it_fits(load, report)
        pair = assemble_warm(report, load.progress, self._threads)
        if isinstance(pair, ModelPair):
            load.progress.begin("Finding out how many threads run it the fastest")
            pair.threads = self._threads or quickest_threads(pair)
        load.finish(pair)  # in this thread, so that the next load counts its memory

    def _evict_until_it_fits(self, load: Load, report: Preflight) -> None:
        """Evict unused pairs, the least recently used first, until there is memory for this one."""
        while (free := self._within_budget(free_memory(report.device), self.resident())) < report.memory:
            with self._lock:
                # Of the same device if its memory is short, of any if the budget is.
                lacks_memory = free_memory(report.device) < report.memory
                pairs = _on(report.device, self.resident()) if lacks_memory else self.resident()
                idle = [other for other in pairs if not other.users]
                if idle:
                    self._drop(idle[0])
            if not idle:
                raise PairError(
                    f"memory: the pair needs {gigabytes(report.memory)} and {gigabytes(max(free, 0))} are left, "
                    "with other pairs in use; wait for those runs, choose a smaller pair or a quantisation"
                    + ("." if self._budget is None else f", or raise {BUDGET}.")
                )
            load.notes.append(f"{idle[0].request.name} was put out of memory to make room.")
            del idle
            release_memory()

    def _possible_memory(self, request: PairRequest, device: str) -> int:
        """Bytes for this pair if all idle pairs were evicted; what it takes already counts as free."""
        pairs = self.resident()
        kept = [load for load in pairs if load.users and load.request != request]
        evictable = sum(load.nbytes for load in _on(device, pairs) if load not in kept)
        return self._within_budget(free_memory(device) + evictable, kept)

    def _within_budget(self, free: int, kept: list[Load]) -> int:
        return free if self._budget is None else min(free, self._budget - sum(load.nbytes for load in kept))

    def _drop(self, load: Load) -> None:
        if self._loads.get(load.request) is load:
            del self._loads[load.request]


def _on(device: str, loads: list[Load]) -> list[Load]:
    """Those that use this device; a pair spread over all devices (``auto``) uses each."""
    return [load for load in loads if load.request.device == device or "auto" in (load.request.device, device)]


def room() -> int:
    """Bytes that the best device has free for pairs, or the budget where that is less."""
    free, budget = free_memory(best_device()), _budget()
    return free if budget is None else min(free, budget)


def _budget() -> int | None:
    value = os.environ.get(BUDGET)
    try:
        return None if not value else int(float(value) * 1e9)
    except ValueError as error:
        raise PairError(f"{BUDGET}: {value!r} is no number; give gigabytes, such as 8.") from error
