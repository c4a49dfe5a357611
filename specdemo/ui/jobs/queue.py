"""The queues in which jobs wait for the models: whose turn it is, who waits, and for how long."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Event, RLock, Timer
from time import monotonic
from typing import Any

from specdemo.errors import SpecDemoError
from specdemo.ui.jobs.limits import Limits
from specdemo.ui.jobs.stops import Stop

STATUS_SECONDS = 1.0
STOP_SECONDS = 0.1
"""How often somebody who waits is told where they stand, and how soon their Stop is noticed."""
REMEMBERED = 8
"""Jobs by whose length the wait is estimated."""
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
        called: set when its turn has come.
        began: when that was, in seconds; None before.
        alarm: ends the turn when its time is over, where there is a limit.
    """

    def __init__(self, queue: JobQueue, visitor: Visitor) -> None:
        self._queue, self.visitor = queue, visitor
        self.called = Event()
        self.began: float | None = None
        self.alarm: Timer | None = None

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.leave(self)

    def wait(self, stop: Stop) -> Iterator[str]:
        """Status texts until the turn has come; from then on ``stop`` is set when the job's time is over.

        Raises:
            QueueFull: the queue is full, or this visitor has as many jobs as one may have.
            StoppedInQueue: ``stop`` was set meanwhile.
        """
        self._queue.enter(self)
        while not self.called.is_set():
            yield self._queue.status_text(self)
            until = monotonic() + STATUS_SECONDS
            while not self.called.wait(STOP_SECONDS) and monotonic() < until and not stop.is_set():
                pass
            if stop.is_set():
                raise StoppedInQueue
        self._queue.limit(self, stop)


class JobQueue:
    """A queue of jobs that take turns, first come first served.

    Args:
        limits: how long the queue and each job may be, and how many places one visitor may take.
        at_once: jobs that have their turn at the same time.
    """

    def __init__(self, limits: Limits, at_once: int = 1) -> None:
        self._limits, self._at_once = limits, at_once
        self._tickets: list[Ticket] = []  # those that have their turn first
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)
        self._lock = RLock()

    def ticket(self, visitor: Visitor) -> Ticket:
        """A ticket that is not yet in the queue."""
        return Ticket(self, visitor)

    def enter(self, ticket: Ticket) -> None:
        """Go to the end of the queue.

        Raises:
            QueueFull: the queue is full, or this visitor has as many jobs as one may have.
        """
        with self._lock:
            self._check(ticket.visitor)
            self._tickets.append(ticket)
            self._call()

    def leave(self, ticket: Ticket) -> None:
        """The job is over, or given up; the next one has its turn."""
        with self._lock:
            if ticket not in self._tickets:
                return
            self._tickets.remove(ticket)
            if ticket.alarm is not None:
                ticket.alarm.cancel()
            if ticket.began is not None:
                self._lengths.append(monotonic() - ticket.began)
            self._call()

    def status_text(self, ticket: Ticket) -> str:
        """Where in the queue this is, and about how long it takes until its turn."""
        with self._lock:
            if ticket.called.is_set():
                return "Your turn…"
            before = self._tickets.index(ticket) - self._at_once
            text = f"Waiting for a turn: number {before + 1} in line"
            if not self._lengths:
                return f"{text}…"
            mean = sum(self._lengths) / len(self._lengths)
            # Those that run are half done on average.
            seconds = mean * (before / self._at_once + 0.5)
            return f"{text}, about {max(1, math.ceil(seconds))}\u00a0s…"

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

    def _call(self) -> None:
        for ticket in self._tickets[: self._at_once]:
            if not ticket.called.is_set():
                ticket.began = monotonic()
                ticket.called.set()

    def _check(self, visitor: Visitor) -> None:
        most = self._limits
        mine = sum(t.visitor.session == visitor.session for t in self._tickets)
        if mine >= most.visitor:
            raise QueueFull(f"You have {mine} jobs here already. Stop one or wait for its end, then run again.")
        near = sum(t.visitor.address == visitor.address for t in self._tickets)
        if near >= most.address:
            raise QueueFull(f"{near} jobs from your network are waiting here already. Run again in a minute.")
        if len(self._tickets) >= self._at_once + most.waiting:
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
        most = self._limits
        if not self._shared:
            places = most.servers + most.waiting
            most = replace(most, visitor=max(most.visitor, places), address=max(most.address, places))
        return self._queues.setdefault("servers", JobQueue(most, most.servers))

    def busy(self) -> int:
        """Jobs that run or wait."""
        return sum(len(queue) for queue in self._queues.values())


def visitor_of(request: Any) -> Visitor:
    """Who sends a Gradio request."""
    address = (request.client.host if request.client is not None else "") or ""
    if is_agent(request):
        # Calls of all agents come in the session of one client that Gradio keeps for them.
        return Visitor(f"mcp {address}", address)
    return Visitor(request.session_hash or "", address)


def is_agent(request: Any) -> bool:
    """Whether a call came over the Model Context Protocol."""
    return (request.headers or {}).get("x-gradio-user") == "mcp"
