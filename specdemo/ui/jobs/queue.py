"""How jobs run: they are counted, load their pairs, wait for their turn, and end with a result or a message."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from threading import Event, RLock, Timer
from time import monotonic
from typing import Any

from specdemo.errors import SpecDemoError
from specdemo.models.request import is_zero_gpu
from specdemo.runs.store import PairStore
from specdemo.ui.jobs.job import Job, JobState, load_pairs, until_the_end
from specdemo.ui.jobs.limits import PRIVATE, Limits, network_of
from specdemo.ui.jobs.worker import Stop
from specdemo.ui.jobs.zero_gpu import states_from_gpu

STATUS_SECONDS = 1.0
STOP_SECONDS = 0.1  # how often somebody who waits is told where they stand, and how soon their Stop is noticed
SURE = 0.05  # how far a job must be for its own pace to say when it ends
MODELS, SERVERS, SERVERS_HERE = "models", "servers", "servers here"
"""What a job can need: the models of this process, any servers, and servers of this machine, which would take
computing time from each other. Where no strangers share the app, each kind of job has a line for the models."""
AT_ONCE = 2
"""Jobs other than races that have their turn at the same time, where each kind has its own line."""


class QueueFull(SpecDemoError):
    """There is no place in the queue."""


class StoppedInQueue(SpecDemoError):
    """Stopped while waiting."""

    def __init__(self) -> None:
        super().__init__("Stopped before its turn came. Press Run to start again.")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a page or a program, and where it is in the network."""

    session: str
    address: str = ""


@dataclass(eq=False, slots=True)
class Ticket:
    """One job's place: it waits, then it has its turn until it leaves."""

    visitor: Visitor  # whose job it is
    noun: str  # what people call the job; jobs of one name are taken to be alike long
    needs: tuple[str, ...]  # the models or servers, and second, where a server is on this machine, those
    progress: float = 0.0  # how far the job says it is, from 0 to 1
    called: Event = field(default_factory=Event)  # set when its turn has come
    began: float = 0.0  # when that was, in seconds
    alarm: Timer | None = None  # ends the turn when its time is over, where there is a limit


class JobQueue:
    """Jobs take turns: first come first served, by turns of the addresses they come from.

    Where the app is ``shared`` with strangers one job at a time has the models.
    """

    def __init__(self, limits: Limits, *, shared: bool) -> None:
        self._limits, self._shared = limits, shared
        self._admitted: list[Ticket] = []  # in line, or about to be: their pairs are loaded first
        self._line: list[Ticket] = []
        self._lengths: dict[str, float] = {}  # seconds of the last job of each name
        self._lock = RLock()

    @contextmanager
    def admitted(self, visitor: Visitor, job: Job) -> Iterator[Ticket]:
        """A ticket for a job, which counts from now to its end, in line or not yet; or raises QueueFull."""
        models = MODELS if self._shared else job.kind
        work = models if any(job.pairs) else SERVERS
        ticket = Ticket(visitor, job.noun, (work, SERVERS_HERE) if job.on_server_here else (work,))
        with self._lock:
            self._check(ticket)
            self._admitted.append(ticket)
        try:
            yield ticket
        finally:
            self._leave(ticket)

    def wait(self, ticket: Ticket, stop: Stop) -> Iterator[str]:
        """Status texts until the turn has come, or StoppedInQueue; then ``stop`` is set when time is over."""
        with self._lock:
            self._enter(ticket)
            self._call()
        while not ticket.called.is_set():
            yield self.status_text(ticket)
            until = monotonic() + STATUS_SECONDS
            while monotonic() < until and not stop.is_set() and not ticket.called.wait(STOP_SECONDS):
                pass
            if stop.is_set():
                raise StoppedInQueue
        if (seconds := self._limits.seconds) is not None:
            said = f"The {seconds:.0f} seconds of one job on this public page are over."
            ticket.alarm = Timer(seconds, stop.end, [said])
            ticket.alarm.daemon = True
            ticket.alarm.start()

    def status_text(self, ticket: Ticket) -> str:
        """Where in the queue this is, and about how long it takes until its turn, where that can be known."""
        with self._lock:
            if ticket.called.is_set():
                return "Your turn…"
            rivals = [t for t in self._line if set(t.needs) & set(ticket.needs)]
            before = [t for t in rivals[: rivals.index(ticket)] if not t.called.is_set()]
            running = [self._left(t) for t in rivals if t.called.is_set()]
            ahead = [self._left(t) for t in before]
        place = f"Waiting for a turn: number {len(before) + 1} in line"
        known, lengths = _known(running), _known(ahead)
        if not running or len(known) < len(running) or len(lengths) < len(ahead):
            return f"{place}…"
        return f"{place}{about(min(known) + sum(lengths) / self._places(ticket.needs[0]))}…"

    def race_text(self) -> str:
        """Who has the models, for a job that has its turn and must wait for them all the same."""
        with self._lock:
            races = [self._left(t) for t in self._line if t.called.is_set() and t.needs[0] == "race"]
        who, known = "a race" if races else "another job", _known(races)
        return f"Waiting for the models: {who} has them{about(min(known)) if known else ''}…"

    def busy(self) -> int:
        """Jobs that run or wait."""
        return len(self._line)

    def _places(self, need: str) -> int:
        """How many jobs may have it at the same time; a race has the models' thread to itself until it ends."""
        return {SERVERS: self._limits.servers, SERVERS_HERE: 1, MODELS: 1, "race": 1}.get(need, AT_ONCE)

    def _check(self, ticket: Ticket) -> None:
        most, visitor, work = self._limits, ticket.visitor, ticket.needs[0]
        alike = [t for t in self._admitted if t.needs[0] == work]
        own = sum(t.visitor.session == visitor.session for t in alike)
        near = sum(t.visitor.address == visitor.address for t in alike)
        all_servers = work == SERVERS and not self._shared  # at home one program may take all of their turns
        if own >= most.visitor and not all_servers:
            raise QueueFull(f"You have {own} jobs here already. Stop one or wait for its end, then run again.")
        if near >= most.address and not all_servers:
            raise QueueFull(f"{near} jobs from your network are waiting here already. Run again in a minute.")
        if len(alike) >= self._places(work) + most.waiting:
            raise QueueFull(f"Too many runs are waiting here ({most.waiting}). Run again in a minute.")

    def _enter(self, ticket: Ticket) -> None:
        """Go to the end of the line, but before those of whose addresses more are ahead: each has its turn."""
        alike = [t for t in self._line if t.needs[0] == ticket.needs[0]]
        ahead = Counter(t.visitor.address for t in alike)
        own, place = ahead[ticket.visitor.address], len(self._line)
        for other in reversed(alike):
            ahead[other.visitor.address] -= 1
            if other.called.is_set() or ahead[other.visitor.address] <= own:
                break
            place = self._line.index(other)
        self._line.insert(place, ticket)

    def _leave(self, ticket: Ticket) -> None:
        """The job is over, or given up; the next one has its turn."""
        with self._lock:
            self._admitted.remove(ticket)
            if ticket.alarm is not None:
                ticket.alarm.cancel()
            if ticket.called.is_set():
                self._lengths[ticket.noun] = monotonic() - ticket.began
            if ticket in self._line:
                self._line.remove(ticket)
                self._call()

    def _call(self) -> None:
        """Give each its turn that can have all it needs and passes nobody who waits for the same.

        One that needs two things takes what servers of this machine have to give first, and is then passed by
        nobody; until then it keeps the models from no one, and while it is not the next for the models, nothing.
        """
        taken = Counter(need for t in self._line if t.called.is_set() for need in t.needs)
        kept: set[str] = set()
        for ticket in self._line:
            work = ticket.needs[0]
            if ticket.called.is_set() or work in kept:
                continue
            lacks = next((n for n in reversed(ticket.needs) if n in kept or taken[n] >= self._places(n)), None)
            if lacks is None:
                taken.update(ticket.needs)
                ticket.began = monotonic()
                ticket.called.set()
            else:
                kept.update(ticket.needs if lacks == work else (lacks,))

    def _left(self, ticket: Ticket) -> float | None:
        """Seconds that a job still takes: by its own pace, else by the last of its name; None if unknown.

        One that has outlasted that says nothing any more.
        """
        elapsed = monotonic() - ticket.began if ticket.called.is_set() else 0.0
        if ticket.progress >= SURE:
            return elapsed * (1 - ticket.progress) / ticket.progress
        usual = self._lengths.get(ticket.noun, 0.0)
        return usual - elapsed if usual > elapsed else None


def _known(seconds: list[float | None]) -> list[float]:
    return [each for each in seconds if each is not None]


def about(seconds: float) -> str:
    """``, about 12 s``."""
    return f", about {max(1, math.ceil(seconds))}\u00a0s"


def visitor_of(request: Any) -> Visitor:
    address = network_of((request.client.host if request.client is not None else "") or "")
    if is_agent(request):
        # Calls of all agents come in the session of one client that Gradio keeps for them.
        return Visitor(f"mcp {address}", address)
    return Visitor(request.session_hash or "", address)


def is_agent(request: Any) -> bool:
    """Whether a call came over the Model Context Protocol."""
    return (request.headers or {}).get("x-gradio-user") == "mcp"


SERVER_THREADS = ThreadPoolExecutor(PRIVATE.servers, "servers")
"""Where jobs run for which servers do all the work: they wait for the network and compute next to nothing."""


class JobRunner:
    """Runs the jobs of all tabs and endpoints."""

    def __init__(self, store: PairStore, queue: JobQueue) -> None:
        self._store, self._queue = store, queue

    def run(self, job: Job, visitor: Visitor, stop: Stop) -> Generator[JobState]:
        """The states of a job, about ten a second at most; the last one has ended, whatever happened.

        Setting ``stop`` or closing the iterator ends the job within one round.
        """
        return until_the_end(job, self._states(job, visitor, stop), stop)

    def _states(self, job: Job, visitor: Visitor, stop: Stop) -> Generator[JobState]:
        needs_models = any(job.pairs)
        with ExitStack() as stack:
            ticket = stack.enter_context(self._queue.admitted(visitor, job))
            # Admitted, but not yet in line, so that nobody waits for another one's download.
            pairs = yield from load_pairs(job, self._store, stop, stack)
            for text in self._queue.wait(ticket, stop):
                yield JobState("loading", text)
            if needs_models and is_zero_gpu():
                states = states_from_gpu(job, stop)
            else:
                if needs_models:
                    yield from self._models_free(stop)
                states = job.states(pairs, self._store.thread if needs_models else SERVER_THREADS, stop)
            with closing(states):
                for state in states:
                    ticket.progress = state.fraction
                    yield state

    def _models_free(self, stop: Stop) -> Iterator[JobState]:
        """Wait for the models' thread, which a race keeps to its end, whatever the line of another kind says."""
        free = self._store.thread.submit(lambda: None)
        try:
            while not wait([free], timeout=STOP_SECONDS).done:
                if stop.is_set():
                    raise StoppedInQueue
                yield JobState("loading", self._queue.race_text())
        finally:
            free.cancel()
