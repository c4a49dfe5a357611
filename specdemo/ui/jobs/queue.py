"""The queues in which jobs wait for the models: whose turn it is, who waits, and for how long."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Event, RLock, Timer
from time import monotonic
from typing import Any

from specdemo.errors import SpecDemoError
from specdemo.ui.jobs.job import Job
from specdemo.ui.jobs.limits import Limits, network_of
from specdemo.ui.jobs.stops import Stop

STATUS_SECONDS = 1.0
STOP_SECONDS = 0.1
"""How often somebody who waits is told where they stand, and how soon their Stop is noticed."""
REMEMBERED = 8
"""Jobs of a kind by whose length the wait is estimated."""
SURE = 0.05
"""How far a job must be for its own pace to say when it ends."""
AT_ONCE = 2
"""Jobs other than races that have their turn at the same time, where each kind has its own queue."""


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


class Ticket:
    """One job's way through a queue: it waits, then it has its turn until it leaves.

    Attributes:
        visitor: whose job it is.
        kind: of the job; jobs of a kind are taken to be alike long.
        progress: how far the job says it is, from 0 to 1.
        ready: whether its turn may come; until then it keeps its place in the line and others pass.
        called: set when its turn has come.
        began: when that was, in seconds; None before.
        alarm: ends the turn when its time is over, where there is a limit.
    """

    def __init__(self, queue: JobQueue, visitor: Visitor, kind: str = "") -> None:
        self._queue, self.visitor, self.kind = queue, visitor, kind
        self.progress = 0.0
        self.ready = True
        self.called = Event()
        self.began: float | None = None
        self.alarm: Timer | None = None

    def __enter__(self) -> Ticket:
        self._queue.admit(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.leave(self)

    def wait(self, stop: Stop) -> Iterator[str]:
        """Status texts until the turn has come; from then on ``stop`` is set when the job's time is over.

        Raises:
            StoppedInQueue: ``stop`` was set meanwhile.
        """
        self._queue.enter(self)
        yield from self.until(self.called.is_set, stop)
        self._queue.limit(self, stop)

    def wait_after(self, other: Ticket, stop: Stop) -> Iterator[str]:
        """The same for two turns: the other's is taken as soon as this one is the next, and not before.

        So nobody has this turn while waiting for the other, and the other only for the rest of one job.
        """
        self.ready = False
        self._queue.enter(self)
        yield from self.until(lambda: self._queue.is_next(self), stop)
        yield from other.wait(stop)
        self.ready = True
        yield from self.wait(stop)

    def until(self, true: Callable[[], bool], stop: Stop) -> Iterator[str]:
        """Status texts until something is true of this ticket."""
        while not true():
            yield self._queue.status_text(self)
            until = monotonic() + STATUS_SECONDS
            while not true() and monotonic() < until and not stop.is_set():
                self.called.wait(STOP_SECONDS)
            if stop.is_set():
                raise StoppedInQueue


class JobQueue:
    """A queue of jobs that take turns: first come first served, by turns of the addresses they come from.

    Args:
        limits: how long the queue and each job may be, and how many places one visitor may take.
        at_once: jobs that have their turn at the same time.
    """

    def __init__(self, limits: Limits, at_once: int = 1) -> None:
        self._limits, self._at_once = limits, at_once
        self._admitted: list[Ticket] = []  # in line, or about to be: their pairs are loaded first
        self._tickets: list[Ticket] = []  # in line
        self._lengths: dict[str, deque[float]] = {}
        self._lock = RLock()

    def ticket(self, visitor: Visitor, kind: str = "") -> Ticket:
        """A ticket that is not yet in the queue, for a job of a kind; to be entered as a context."""
        return Ticket(self, visitor, kind)

    def admit(self, ticket: Ticket) -> None:
        """Count the job from now on, whatever it does before it is in line.

        Raises:
            QueueFull: the queue is full, or this visitor has as many jobs as one may have.
        """
        with self._lock:
            self._check(ticket.visitor)
            self._admitted.append(ticket)

    def enter(self, ticket: Ticket) -> None:
        """Go to the end of the line, but before those of whose addresses more are ahead: each has its turn."""
        with self._lock:
            if ticket not in self._tickets:
                ahead = Counter(t.visitor.address for t in self._tickets)
                mine, place = ahead[ticket.visitor.address], len(self._tickets)
                for other in reversed(self._tickets):
                    ahead[other.visitor.address] -= 1
                    if other.called.is_set() or ahead[other.visitor.address] <= mine:
                        break
                    place -= 1
                self._tickets.insert(place, ticket)
            self._call()

    def leave(self, ticket: Ticket) -> None:
        """The job is over, or given up; the next one has its turn."""
        with self._lock:
            if ticket in self._admitted:
                self._admitted.remove(ticket)
            if ticket not in self._tickets:
                return
            self._tickets.remove(ticket)
            if ticket.alarm is not None:
                ticket.alarm.cancel()
            if ticket.began is not None:
                lengths = self._lengths.setdefault(ticket.kind, deque(maxlen=REMEMBERED))
                lengths.append(monotonic() - ticket.began)
            self._call()

    def is_next(self, ticket: Ticket) -> bool:
        """Whether all before it have their turn."""
        with self._lock:
            return ticket is next((t for t in self._tickets if not t.called.is_set()), None)

    def status_text(self, ticket: Ticket) -> str:
        """Where in the queue this is, and about how long it takes until its turn, where that can be known."""
        with self._lock:
            if ticket.called.is_set():
                return "Your turn…"
            before = [t for t in self._tickets[: self._tickets.index(ticket)] if not t.called.is_set()]
            running = [self._left(t) for t in self._tickets if t.called.is_set()]
            ahead = [self._length(t.kind) for t in before]
            known = running and None not in running and None not in ahead
            seconds = min(running) + sum(ahead) / self._at_once if known else None
            return f"Waiting for a turn: number {len(before) + 1} in line{about(seconds)}…"

    def running_text(self) -> str | None:
        """When the first of the jobs that run here ends, if any runs and that can be known."""
        with self._lock:
            running = [self._left(t) for t in self._tickets if t.called.is_set()]
            known = [seconds for seconds in running if seconds is not None]
            return None if not running else about(min(known) if known else None)

    def limit(self, ticket: Ticket, stop: Stop) -> None:
        """From now on the job's time runs."""
        most = self._limits.seconds
        if most is None:
            return
        ticket.alarm = Timer(most, stop.end, [f"The {most:.0f} seconds of one job on this public page are over."])
        ticket.alarm.daemon = True
        ticket.alarm.start()

    def __len__(self) -> int:
        return len(self._tickets)

    def _length(self, kind: str) -> float | None:
        """Seconds that jobs of a kind took; None where none has ended here."""
        lengths = self._lengths.get(kind)
        return sum(lengths) / len(lengths) if lengths else None

    def _left(self, ticket: Ticket) -> float | None:
        """Seconds that a running job still takes: by its own pace, else by others of its kind; None if unknown.

        One that has outlasted the others says nothing any more.
        """
        elapsed, usual = monotonic() - ticket.began, self._length(ticket.kind)
        if ticket.progress >= SURE:
            return elapsed * (1 - ticket.progress) / ticket.progress
        return usual - elapsed if usual is not None and usual > elapsed else None

    def _call(self) -> None:
        free = self._at_once - sum(ticket.called.is_set() for ticket in self._tickets)
        waiting = [ticket for ticket in self._tickets if ticket.ready and not ticket.called.is_set()]
        for ticket in waiting[:free]:
            ticket.began = monotonic()
            ticket.called.set()

    def _check(self, visitor: Visitor) -> None:
        most = self._limits
        mine = sum(t.visitor.session == visitor.session for t in self._admitted)
        if mine >= most.visitor:
            raise QueueFull(f"You have {mine} jobs here already. Stop one or wait for its end, then run again.")
        near = sum(t.visitor.address == visitor.address for t in self._admitted)
        if near >= most.address:
            raise QueueFull(f"{near} jobs from your network are waiting here already. Run again in a minute.")
        if len(self._admitted) >= self._at_once + most.waiting:
            raise QueueFull(f"Too many runs are waiting here ({most.waiting}). Run again in a minute.")


class JobQueues:
    """The queues of an app: one for everything where strangers share it, else one for each kind of job.

    Args:
        limits: of every queue.
        shared: whether there is only one, so that one job at a time has the models.
    """

    def __init__(self, limits: Limits, *, shared: bool) -> None:
        self._limits, self._shared = limits, shared
        self._queues: dict[str, JobQueue] = {}

    def of(self, kind: str) -> JobQueue:
        """The queue of a kind of job, made at its first mention."""
        if self._shared:
            return self._queues.setdefault("all", JobQueue(self._limits))
        # A race has the models' thread to itself until it ends.
        return self._queues.setdefault(kind, JobQueue(self._limits, 1 if kind == "race" else AT_ONCE))

    def of_servers(self) -> JobQueue:
        """The queue of jobs that run on servers alone, which never wait for those that have the models.

        On one's own machine one program may take all of its turns.
        """
        most = self._server_limits()
        return self._queues.setdefault("servers", JobQueue(most, most.servers))

    def of_servers_here(self) -> JobQueue:
        """The queue of jobs on servers of this machine, which would take computing time from each other.

        It sets no time: a job that has its turn here waits for another one, and its time runs from that.
        """
        return self._queues.setdefault("servers here", JobQueue(replace(self._server_limits(), seconds=None)))

    def needed_by(self, job: Job) -> list[JobQueue]:
        """Where a job waits: for the models or for servers, and second, if any of those are here, for these.

        The second turn is taken first (:meth:`Ticket.wait_after`), so no two jobs wait for each other.
        """
        work = self.of(job.kind) if any(job.pairs) else self.of_servers()
        return [work, self.of_servers_here()] if job.on_server_here else [work]

    def _server_limits(self) -> Limits:
        most = self._limits
        if self._shared:
            return most
        places = most.servers + most.waiting
        return replace(most, visitor=max(most.visitor, places), address=max(most.address, places))

    def race_text(self) -> str:
        """Who has the models, for a job that has its turn and must wait for them all the same."""
        race = self._queues.get("race")
        seconds = race.running_text() if race is not None else None
        return f"Waiting for the models: {'another job' if seconds is None else 'a race'} has them{seconds or ''}…"

    def busy(self) -> int:
        """Jobs that run or wait; one that needs two turns counts twice."""
        return sum(len(queue) for queue in self._queues.values())


def about(seconds: float | None) -> str:
    """``, about 12 s``; empty where it is not known."""
    return "" if seconds is None else f", about {max(1, math.ceil(seconds))}\u00a0s"


def visitor_of(request: Any) -> Visitor:
    """Who sends a Gradio request."""
    address = network_of((request.client.host if request.client is not None else "") or "")
    if is_agent(request):
        # Calls of all agents come in the session of one client that Gradio keeps for them.
        return Visitor(f"mcp {address}", address)
    return Visitor(request.session_hash or "", address)


def is_agent(request: Any) -> bool:
    """Whether a call came over the Model Context Protocol."""
    return (request.headers or {}).get("x-gradio-user") == "mcp"
