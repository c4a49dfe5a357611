"""The queue in front of the models and of servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from specdemo.errors import PairError
from specdemo.models.progress import STOPPED
from specdemo.models.request import PairRequest, request_pair
from specdemo.runs.store import Load
from specdemo.servers.catalog import FILE
from specdemo.settings import Settings
from specdemo.ui.jobs.job import JobState, LaneRequest
from specdemo.ui.jobs.limits import PRIVATE, PUBLIC
from specdemo.ui.jobs.queue import JobQueue, JobRunner, QueueFull, StoppedInQueue, Ticket, Visitor, visitor_of
from specdemo.ui.jobs.race import RaceJob
from specdemo.ui.jobs.worker import Stop


def visitor(number: int, address: str | None = None) -> Visitor:
    return Visitor(f"s{number}", address or f"192.0.2.{number}")


def job(kind: str = "race", models: bool = True) -> Any:
    """What the queue looks at: on models, or on servers elsewhere."""
    return SimpleNamespace(kind=kind, noun=kind, pairs=[models or None], on_server_here=False)


@dataclass
class Line:
    """A queue with jobs in it, each of a visitor of their own unless said otherwise."""

    queue: JobQueue = field(default_factory=lambda: JobQueue(PRIVATE, shared=True))
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    leaving: dict[int, ExitStack] = field(default_factory=dict)

    def join(self, what: Any = None, who: Visitor | None = None, stop: Stop | None = None) -> Ticket:
        """One more, which is in line, or has its turn."""
        stack = ExitStack()
        ticket = stack.enter_context(self.queue.admitted(who or visitor(next(self.numbers)), what or job()))
        self.leaving[id(ticket)] = stack
        next(self.queue.wait(ticket, stop or Stop()), None)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        self.leaving.pop(id(ticket)).close()


def test_the_first_has_its_turn_at_once_and_others_in_the_order_they_came() -> None:
    """Each leaves, and exactly the next one is called."""
    line = Line()
    tickets = [line.join() for _ in range(4)]
    assert [line.queue.status_text(t).split("number ")[1][0] for t in tickets[1:]] == ["1", "2", "3"]
    for n, ticket in enumerate(tickets):
        assert [t.called.is_set() for t in tickets] == [i <= n for i in range(4)]
        line.leave(ticket)
    assert line.queue.busy() == 0


def test_who_waits_is_told_a_time_once_a_job_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """From what runs: as long as others of its kind took, or by its own pace; else no number of seconds."""
    now = [0.0]
    monkeypatch.setattr("specdemo.ui.jobs.queue.monotonic", lambda: now[0])
    line = Line()
    first = line.join(job("run"))
    now[0] = 10.0
    line.leave(first)
    jobs = [line.join(job(kind)) for kind in ("run", "run", "run", "sweep", "run")]
    told = [line.queue.status_text(ticket) for ticket in jobs]
    assert told[1].endswith("number 1 in line, about 10\u00a0s…")
    assert told[2].endswith("number 2 in line, about 20\u00a0s…")
    assert told[4].endswith("number 4 in line…"), "nobody knows how long the sweep takes"
    now[0] = 30.0  # it has run for 20 seconds, longer than the first did
    assert line.queue.status_text(jobs[1]).endswith("number 1 in line…")
    jobs[0].progress = 0.25
    assert line.queue.status_text(jobs[1]).endswith("about 60\u00a0s…")
    assert line.queue.status_text(jobs[2]).endswith("about 70\u00a0s…")


def test_a_sweep_behind_a_race_says_that_it_waits_for_the_models_and_hears_stop() -> None:
    """Guards “Warming up…” over a minute in which another job had the models' thread."""
    line, stop, over = Line(JobQueue(PRIVATE, shared=False)), Stop(), Event()
    with ThreadPoolExecutor(1) as thread:
        racing = line.join(job("race"))
        racing.began, racing.progress = time.monotonic() - 10, 0.5
        held = thread.submit(over.wait)
        waiting = JobRunner(SimpleNamespace(thread=thread), line.queue)._models_free(stop)
        assert next(waiting).message.startswith("Waiting for the models: a race has them, about 1")
        stop.set()
        with pytest.raises(StoppedInQueue):
            list(waiting)
        over.set()
        held.result()
        assert list(JobRunner(SimpleNamespace(thread=thread), line.queue)._models_free(Stop())) == []


def test_stop_is_heard_while_waiting_and_frees_the_place() -> None:
    """Within a fraction of a second, not at the turn."""
    line, stop = Line(), Stop()
    line.join()
    with line.queue.admitted(visitor(9), job()) as second:
        wait = line.queue.wait(second, stop)
        assert next(wait)
        stop.set()
        with pytest.raises(StoppedInQueue):
            next(wait)
    assert line.queue.busy() == 1


@pytest.mark.parametrize(
    ("limits", "visitors", "message"),
    [
        (replace(PUBLIC, visitor=2), [visitor(1)] * 3, "2 jobs here already"),
        (replace(PUBLIC, address=2), [visitor(n, "192.0.2.9") for n in range(3)], "from your network"),
        (replace(PUBLIC, waiting=1), [visitor(n) for n in range(3)], "Too many runs"),
    ],
)
def test_too_many_are_refused_with_a_reason(limits: Any, visitors: list[Visitor], message: str) -> None:
    """Who is refused takes no place, and a place that is left can be taken again."""
    line = Line(JobQueue(limits, shared=True))
    first, _ = (line.join(who=who) for who in visitors[:-1])
    with pytest.raises(QueueFull, match=message):
        line.join(who=visitors[-1])
    line.leave(first)
    line.join(who=visitors[-1])
    assert line.queue.busy() == 2


def test_a_job_has_its_time_and_no_more() -> None:
    """The time runs from the turn on, not while waiting; what ends in time is not ended again."""
    line, stop, later = Line(JobQueue(replace(PUBLIC, seconds=0.2), shared=True)), Stop(), Stop()
    line.leave(line.join(stop=later))
    line.join(stop=stop)
    assert stop.wait(2)
    assert "0 seconds" in stop.reason
    assert not later.is_set(), "its alarm would have rung before"


class Loads:
    """A store of pairs whose loads the test finishes."""

    thread: ThreadPoolExecutor | None = None

    def __init__(self) -> None:
        self.loads: dict[PairRequest, Load] = {}
        self.asked = 0

    @contextmanager
    def using(self, request: PairRequest) -> Iterator[Load]:
        self.asked += 1
        yield self.loads.setdefault(request, Load(request))


def test_a_download_is_waited_for_outside_the_queue() -> None:
    """Others go on meanwhile; a pair that cannot be had needs no turn, and Stop ends the wait."""
    store, line, request = Loads(), Line(), request_pair()
    runner, race = JobRunner(store, line.queue), RaceJob("prompt", (LaneRequest(Settings(), request),))
    slow = runner.run(race, visitor(1), Stop())
    assert next(slow).phase == "loading"
    assert line.queue.busy() == 0
    assert line.join().called.is_set()
    store.loads[request].future.set_exception(PairError("no such pair"))
    (last,) = slow
    assert (last.phase, last.message) == ("error", "no such pair")
    assert line.queue.busy() == 1
    store.loads.clear()
    stop = Stop()
    stop.set()
    *_, last = runner.run(race, visitor(3), stop)
    assert (last.phase, last.message) == ("error", STOPPED)


def test_who_floods_a_pair_that_loads_is_refused_before_it_is_looked_up() -> None:
    """Guards the page's places: a job counts from its start, not from the end of its load."""
    store, request = Loads(), request_pair()
    runner = JobRunner(store, JobQueue(PUBLIC, shared=True))
    race = RaceJob("prompt", (LaneRequest(Settings(), request),))
    with ExitStack() as stack:
        calls = [runner.run(race, visitor(n, "192.0.2.9"), Stop()) for n in range(PUBLIC.address + 1)]
        told = [next(stack.enter_context(closing(call))) for call in calls]
        assert [state.phase for state in told] == ["loading"] * PUBLIC.address + ["error"]
        assert "from your network" in told[-1].message
        assert store.asked == PUBLIC.address
        assert next(stack.enter_context(closing(runner.run(race, visitor(99), Stop())))).phase == "loading"


def test_addresses_have_turns_one_after_another() -> None:
    """Whoever comes with many jobs lets others in between; those of one address keep their order."""
    line, order = Line(JobQueue(PUBLIC, shared=True)), []
    came = [visitor(n, "192.0.2.9") for n in range(4)] + [visitor(4), visitor(5), visitor(6, "192.0.2.9")]
    came += [visitor(7, "192.0.2.4")]
    tickets = [line.join(who=who) for who in came]
    while line.queue.busy():
        order.append(next(t for t in tickets if t.called.is_set() and t not in order))
        line.leave(order[-1])
    assert [int(t.visitor.session[1:]) for t in order] == [0, 4, 5, 1, 7, 2, 3, 6]


def test_strangers_share_one_line_and_at_home_each_kind_has_its_own() -> None:
    """One job at a time in public; a race at home need not wait for a sweep."""
    public, private = Line(), Line(JobQueue(PRIVATE, shared=False))
    kinds = ("race", "race", "sweep", "sweep", "sweep")
    assert [public.join(job(kind)).called.is_set() for kind in kinds] == [True, False, False, False, False]
    assert [private.join(job(kind)).called.is_set() for kind in kinds] == [True, False, True, True, False]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, Visitor("abc", "10.0.0.1")),
        ({"x-forwarded-for": "198.51.100.7"}, Visitor("abc", "10.0.0.1")),
        ({"x-gradio-user": "mcp", "x-forwarded-for": "198.51.100.7"}, Visitor("mcp 10.0.0.1", "10.0.0.1")),
    ],
)
def test_a_visitor_is_a_page_and_an_address(headers: dict[str, str], expected: Visitor) -> None:
    """The address is the one that the server found, and no header; agents are told apart by theirs."""
    request = SimpleNamespace(session_hash="abc", headers=headers, client=SimpleNamespace(host="10.0.0.1"))
    assert visitor_of(request) == expected


def test_jobs_on_servers_have_a_line_of_their_own() -> None:
    """Many at a time even in public, where a visitor's share still holds; at home one may take them all."""
    public, private = Line(JobQueue(PUBLIC, shared=True)), Line(JobQueue(PRIVATE, shared=False))
    elsewhere = job(models=False)
    assert public.join().called.is_set()
    tickets = [public.join(elsewhere, visitor(n // PUBLIC.visitor)) for n in range(PUBLIC.servers + 1)]
    assert [t.called.is_set() for t in tickets] == [True] * PUBLIC.servers + [False]
    assert "number 1 in line" in public.queue.status_text(tickets[-1])
    with pytest.raises(QueueFull, match="2 jobs here already"):
        public.join(elsewhere, visitor(1))
    assert all(private.join(elsewhere, visitor(1)).called.is_set() for _ in range(PRIVATE.servers))


@dataclass(frozen=True, slots=True)
class HeldRace(RaceJob):
    """A race that has its turn from its first state until its iterator is closed."""

    def states(self, *_: object) -> Iterator[JobState]:
        yield JobState("running")


def lane_on(server: str | None) -> LaneRequest:
    """A plain lane on a configured server; here without one."""
    plain = Settings(strategy="autoregressive", engine="server" if server else "auto", server=server)
    return LaneRequest(plain, None if server else request_pair())


@pytest.fixture(params=[False, True])
def start(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Iterator[JobState]]]:
    """Starts a held race by the servers of its lanes, None for this machine; the builtin pair is in memory.

    The servers, which are never asked, are on this machine (near) and on another (far).
    """
    file = tmp_path / "servers.toml"
    hosts = {"near": "127.0.0.1", "far": "192.0.2.7"}
    named = (
        f'[[server]]\nid = "{name}"\nmodel = "toy"\nbaseline_url = "http://{hosts[name]}:9"\n' for name in hosts
    )
    file.write_text("".join(named))
    monkeypatch.setenv(FILE, str(file))
    store, numbers = Loads(), count(1)
    store.loads[request_pair()] = Load(request_pair())
    store.loads[request_pair()].future.set_result(None)
    with ThreadPoolExecutor(1) as store.thread, ExitStack() as stack:
        runner = JobRunner(store, JobQueue(PRIVATE, shared=request.param))

        def started(*servers: str | None) -> Iterator[JobState]:
            race = HeldRace("prompt", tuple(map(lane_on, servers)))
            return stack.enter_context(closing(runner.run(race, visitor(next(numbers)), Stop())))

        yield started


def runs(racing: Iterator[JobState]) -> bool:
    return next(racing).phase == "running"


def test_races_on_servers_of_this_machine_take_turns_among_themselves(start: Any) -> None:
    """Others are not held up, and one that also decodes here has both turns or keeps nobody from the models."""
    near, next_near, both = start("near"), start("near", "far"), start(None, "near")
    assert [runs(racing) for racing in (near, next_near, both)] == [True, False, False]
    local = start(None)
    assert [runs(racing) for racing in (start("far"), start("far"), local)] == [True] * 3
    near.close()
    assert runs(next_near)
    next_near.close()
    last_near = start("near")
    assert [runs(racing) for racing in (both, last_near)] == [False, False], "it waits for the models"
    local.close()
    assert runs(both)
    both.close()
    assert runs(last_near)


@pytest.mark.parametrize("start", [True], indirect=True)
def test_a_mixed_race_that_is_not_the_next_for_the_models_keeps_nobody_from_the_servers(start: Any) -> None:
    """Guards the servers of this machine, which would stand still while models decode for others."""
    first, second, both = start(None), start(None), start(None, "near")
    assert [runs(racing) for racing in (first, second, both)] == [True, False, False]
    near = start("near")
    assert runs(near)
    first.close()
    assert runs(second)
    assert not runs(both)  # the next, for whom the server is kept
    near.close()
    assert not runs(both)
    assert not runs(start("near"))
    second.close()
    assert runs(both)
