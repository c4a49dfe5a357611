"""The line in front of the models: whose turn it is, who waits, and for how long."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event, RLock, Timer
from time import monotonic
from typing import Any

from specdemo.errors import SpecDemoError
from specdemo.runs.store import Load
from specdemo.ui.jobs.limits import Limits
from specdemo.ui.jobs.stops import Stop
from specdemo.view.progress_text import await_load

TOLD_SECONDS = 1.0
HEARD_SECONDS = 0.1
REMEMBERED = 8
"""Jobs by whose length the wait is estimated."""


class Crowded(SpecDemoError):
    """There is no place in the line."""


class GaveUp(SpecDemoError):
    """Stopped while waiting."""

    def __init__(self) -> None:
        super().__init__("Stopped before its turn came. Press Run to start again.")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a page or a program, and where it is in the network."""

    session: str
    address: str = ""


class Place:
    """One job's way to the models: its pairs are loaded, it waits in line, it has its turn until it leaves.

    Attributes:
        visitor: whose job it is.
        called: set when its turn has come.
        began: when that was, in seconds; None before.
        alarm: ends the turn when its time is over, where there is a limit.
    """

    def __init__(self, line: Turns, visitor: Visitor) -> None:
        self._line, self.visitor = line, visitor
        self.called = Event()
        self.began: float | None = None
        self.alarm: Timer | None = None

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.leave(self)

    def wait(self, stop: Stop, loads: Sequence[Load | None] = ()) -> Iterator[str]:
        """What to tell until the turn has come; from then on ``stop`` is set when the job's time is over.

        A pair that could not be loaded ends the wait: the job will say so and needs no models.

        Raises:
            Crowded: the line is full, or this visitor has as many jobs as one may have.
            GaveUp, LoadCancelled: ``stop`` was set meanwhile.
        """
        for load in filter(None, dict.fromkeys(loads)):
            # Before there is a place in line: others need not wait for a download.
            yield from await_load(load, stop)
            if not load.ready:
                return
        self._line.enter(self)
        while not self.called.is_set():
            yield self._line.told(self)
            until = monotonic() + TOLD_SECONDS
            while not self.called.wait(HEARD_SECONDS) and monotonic() < until and not stop.is_set():
                pass
            if stop.is_set():
                raise GaveUp
        self._line.limit(self, stop)


class Turns:
    """A line of jobs that take turns, first come first served.

    Args:
        limits: how long the line and each job may be, and how many places one may take.
        at_once: jobs that have their turn at the same time.
    """

    def __init__(self, limits: Limits, at_once: int = 1) -> None:
        self._limits, self._at_once = limits, at_once
        self._places: list[Place] = []  # those that have their turn first
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)
        self._lock = RLock()

    def place(self, visitor: Visitor) -> Place:
        """A place that is not yet in the line."""
        return Place(self, visitor)

    def enter(self, place: Place) -> None:
        """Go to the end of the line.

        Raises:
            Crowded: the line is full, or this visitor has as many jobs as one may have.
        """
        with self._lock:
            self._check(place.visitor)
            self._places.append(place)
            self._call()

    def leave(self, place: Place) -> None:
        """The job is over, or given up; the next one has its turn."""
        with self._lock:
            if place not in self._places:
                return
            self._places.remove(place)
            if place.alarm is not None:
                place.alarm.cancel()
            if place.began is not None:
                self._lengths.append(monotonic() - place.began)
            self._call()

    def told(self, place: Place) -> str:
        """Where in the line this is, and about how long it takes until its turn."""
        with self._lock:
            if place.called.is_set():
                return "Your turn…"
            before = self._places.index(place) - self._at_once
            text = f"Waiting for a turn: number {before + 1} in line"
            if not self._lengths:
                return f"{text}…"
            mean = sum(self._lengths) / len(self._lengths)
            # Those that run are half done on average.
            seconds = mean * (before / self._at_once + 0.5)
            return f"{text}, about {max(1, math.ceil(seconds))}\u00a0s…"

    def limit(self, place: Place, stop: Stop) -> None:
        """From now on the job's time runs."""
        most = self._limits.seconds
        if most is None:
            return
        place.alarm = Timer(most, stop.end, [f"The {most:.0f} seconds of one job on this public page are over."])
        place.alarm.daemon = True
        place.alarm.start()

    def __len__(self) -> int:
        return len(self._places)

    def _call(self) -> None:
        for place in self._places[: self._at_once]:
            if not place.called.is_set():
                place.began = monotonic()
                place.called.set()

    def _check(self, visitor: Visitor) -> None:
        most = self._limits
        mine = sum(p.visitor.session == visitor.session for p in self._places)
        if mine >= most.visitor:
            raise Crowded(f"You have {mine} jobs here already. Stop one or wait for its end, then run again.")
        near = sum(p.visitor.address == visitor.address for p in self._places)
        if near >= most.address:
            raise Crowded(f"{near} jobs from your network are waiting here already. Run again in a minute.")
        if len(self._places) >= self._at_once + most.waiting:
            raise Crowded(f"Too many runs are waiting here ({most.waiting}). Run again in a minute.")


class Lines:
    """The lines of an app: one for everything where strangers share it, else one for each kind of job.

    Args:
        limits: of every line.
        shared: whether there is only one, so that one job at a time has the models.
    """

    def __init__(self, limits: Limits, *, shared: bool) -> None:
        self._limits, self._shared = limits, shared
        self._lines: dict[str, Turns] = {}

    def of(self, kind: str, at_once: int = 1) -> Turns:
        """The line of a kind of job, made at its first mention."""
        if self._shared:
            kind, at_once = "all", 1
        return self._lines.setdefault(kind, Turns(self._limits, at_once))

    def of_servers(self) -> Turns:
        """The line of jobs that run on servers alone, which never wait for those that have the models.

        On one's own machine one program may take all of its turns.
        """
        most = self._limits
        if not self._shared:
            places = most.servers + most.waiting
            most = replace(most, visitor=max(most.visitor, places), address=max(most.address, places))
        return self._lines.setdefault("servers", Turns(most, most.servers))

    def busy(self) -> int:
        """Jobs that run or wait."""
        return sum(len(line) for line in self._lines.values())


def visitor_of(request: Any) -> Visitor:
    """Who sends a Gradio request."""
    headers, client = request.headers or {}, request.client
    address = (client.host if client is not None else "") or ""
    # Behind a Space's proxy all come from one machine, which says for whom. Who forges it evades this limit alone.
    address = headers.get("x-forwarded-for", "").split(",")[0].strip() or address
    if is_agent(request):
        # Calls of all agents come in the session of one client that Gradio keeps for them.
        return Visitor(f"mcp {address}", address)
    return Visitor(request.session_hash or "", address)


def is_agent(request: Any) -> bool:
    """Whether a call came over the Model Context Protocol."""
    return (request.headers or {}).get("x-gradio-user") == "mcp"
