"""The queues in front of the models."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from specdemo.errors import PairError
from specdemo.models.progress import STOPPED
from specdemo.models.request import PairRequest, request_pair
from specdemo.runs.store import Load
from specdemo.servers.catalog import FILE
from specdemo.settings import Settings
from specdemo.ui.jobs.job import JobState, LaneRequest
from specdemo.ui.jobs.limits import PRIVATE, PUBLIC
from specdemo.ui.jobs.measuring import SERVERS_OWN, SweepJob
from specdemo.ui.jobs.queue import JobQueue, JobQueues, QueueFull, StoppedInQueue, Visitor, visitor_of
from specdemo.ui.jobs.race import RaceJob
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.jobs.stops import Stop, StopSignals


def visitor(number: int, address: str | None = None) -> Visitor:
    return Visitor(f"s{number}", address or f"192.0.2.{number}")


def begin(waiting: Iterator[str]) -> str | None:
    """The first thing told; None where the turn came at once."""
    return next(waiting, None)


def test_the_first_has_its_turn_at_once_and_others_in_the_order_they_came() -> None:
    """Each leaves, and exactly the next one is called."""
    queue = JobQueue(PRIVATE)
    order = []
    with ExitStack() as stack:
        tickets = [stack.enter_context(queue.ticket(visitor(n))) for n in range(4)]
        waits = [ticket.wait(Stop()) for ticket in tickets]
        told = [begin(wait) for wait in waits]
        assert told[0] is None
        assert [text.split("number ")[1][0] for text in told[1:]] == ["1", "2", "3"]
        for n, ticket in enumerate(tickets):
            assert [p.called.is_set() for p in tickets] == [i <= n for i in range(4)]
            assert not list(waits[n])
            order.append(n)
            ticket.__exit__()
    assert order == [0, 1, 2, 3]
    assert len(queue) == 0


def test_who_waits_is_told_a_time_once_a_job_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """From what runs: as long as others of its kind took, or by its own pace; else no number of seconds."""
    now = [0.0]
    monkeypatch.setattr("specdemo.ui.jobs.queue.monotonic", lambda: now[0])
    queue = JobQueue(PRIVATE)
    with queue.ticket(visitor(1), "run") as first:
        assert begin(first.wait(Stop())) is None
        now[0] = 10.0
    with ExitStack() as stack:
        kinds = ("run", "run", "run", "sweep", "run")
        jobs = [stack.enter_context(queue.ticket(visitor(n), kind)) for n, kind in enumerate(kinds)]
        told = [begin(job.wait(Stop())) for job in jobs]
        assert told[0] is None
        assert told[1].endswith("number 1 in line, about 10\u00a0s…")
        assert told[2].endswith("number 2 in line, about 20\u00a0s…")
        assert told[4].endswith("number 4 in line…"), "nobody knows how long the sweep takes"
        now[0] = 30.0  # it has run for 20 seconds, longer than the first did
        assert queue.status_text(jobs[1]).endswith("number 1 in line…")
        jobs[0].progress = 0.25
        assert queue.status_text(jobs[1]).endswith("about 60\u00a0s…")
        assert queue.status_text(jobs[2]).endswith("about 70\u00a0s…")


def test_a_sweep_behind_a_race_says_that_it_waits_for_the_models_and_hears_stop() -> None:
    """Guards “Warming up…” over a minute in which another job had the models' thread."""
    queues, stop, over = JobQueues(PRIVATE, shared=False), Stop(), Event()
    with ThreadPoolExecutor(1) as thread, queues.of("race").ticket(visitor(1), "run") as racing:
        assert begin(racing.wait(Stop())) is None
        racing.began, racing.progress = time.monotonic() - 10, 0.5
        held = thread.submit(over.wait)
        waiting = JobRunner(SimpleNamespace(thread=thread), queues)._models_free(stop)
        assert next(waiting).message.startswith("Waiting for the models: a race has them, about 1")
        stop.set()
        with pytest.raises(StoppedInQueue):
            list(waiting)
        over.set()
        held.result()
        assert list(JobRunner(SimpleNamespace(thread=thread), queues)._models_free(Stop())) == []


def test_stop_is_heard_while_waiting_and_frees_the_place() -> None:
    """Within a fraction of a second, not at the turn."""
    queue = JobQueue(PRIVATE)
    stop = Stop()
    with queue.ticket(visitor(1)) as first:
        assert begin(first.wait(Stop())) is None
        with queue.ticket(visitor(2)) as second:
            wait = second.wait(stop)
            assert begin(wait)
            stop.set()
            began = time.monotonic()
            with pytest.raises(StoppedInQueue):
                next(wait)
            assert time.monotonic() - began < 0.5
        assert len(queue) == 1


@pytest.mark.parametrize(
    ("limits", "visitors", "message"),
    [
        (replace(PUBLIC, visitor=2), [visitor(1)] * 3, "2 jobs here already"),
        (replace(PUBLIC, address=2), [visitor(n, "192.0.2.9") for n in range(3)], "from your network"),
        (replace(PUBLIC, waiting=1), [visitor(n) for n in range(3)], "Too many runs"),
    ],
)
def test_too_many_are_refused_with_a_reason(limits: object, visitors: list[Visitor], message: str) -> None:
    """Who is refused takes no place, and a place that is left can be taken again."""
    queue = JobQueue(limits)
    with ExitStack() as stack:
        tickets = [stack.enter_context(queue.ticket(v)) for v in visitors[:-1]]
        begin(tickets[0].wait(Stop()))  # the others may still be loading
        last = queue.ticket(visitors[-1])
        with pytest.raises(QueueFull, match=message):
            last.__enter__()
        tickets[0].__exit__()
        begin(stack.enter_context(last).wait(Stop()))
        assert len(queue) == 1


def test_a_job_has_its_time_and_no_more() -> None:
    """The time runs from the turn on, not while waiting; what ends in time is not ended again."""
    queue = JobQueue(replace(PUBLIC, seconds=0.2))
    stop, later = Stop(), Stop()
    with queue.ticket(visitor(1)) as ticket:
        assert begin(ticket.wait(stop)) is None
        assert stop.wait(2)
        assert "0 seconds" in stop.reason
    with queue.ticket(visitor(2)) as ticket:
        assert begin(ticket.wait(later)) is None
    time.sleep(0.4)
    assert not later.is_set()


class Loads:
    """A store of pairs whose loads the test finishes."""

    thread = None

    def __init__(self) -> None:
        self.loads: dict[PairRequest, Load] = {}
        self.asked = 0

    @contextmanager
    def using(self, request: PairRequest) -> Iterator[Load]:
        self.asked += 1
        yield self.loads.setdefault(request, Load(request))


def test_a_download_is_waited_for_outside_the_queue() -> None:
    """Others go on meanwhile; a pair that cannot be had needs no turn, and Stop ends the wait."""
    store, queues, request = Loads(), JobQueues(PRIVATE, shared=False), request_pair()
    runner, job = JobRunner(store, queues), RaceJob("prompt", (LaneRequest(Settings(), request),))
    slow = runner.run(job, visitor(1), Stop())
    assert next(slow).phase == "loading"
    assert queues.busy() == 0
    with queues.of("race").ticket(visitor(2)) as quick:
        assert begin(quick.wait(Stop())) is None
        store.loads[request].future.set_exception(PairError("no such pair"))
        (last,) = slow
        assert (last.phase, last.message) == ("error", "no such pair")
        assert queues.busy() == 1
    store.loads.clear()
    stop = Stop()
    stop.set()
    *_, last = runner.run(job, visitor(3), stop)
    assert (last.phase, last.message) == ("error", STOPPED)


def test_who_floods_a_pair_that_loads_is_refused_before_it_is_looked_up() -> None:
    """Guards the page's places: a job counts from its start, not from the end of its load."""
    store, queues, request = Loads(), JobQueues(PUBLIC, shared=True), request_pair()
    runner, job = JobRunner(store, queues), RaceJob("prompt", (LaneRequest(Settings(), request),))
    with ExitStack() as stack:
        calls = [runner.run(job, visitor(n, "192.0.2.9"), Stop()) for n in range(PUBLIC.address + 1)]
        told = [next(stack.enter_context(closing(call))) for call in calls]
        assert [state.phase for state in told] == ["loading"] * PUBLIC.address + ["error"]
        assert "from your network" in told[-1].message
        assert store.asked == PUBLIC.address
        assert next(stack.enter_context(closing(runner.run(job, visitor(99), Stop())))).phase == "loading"


def test_addresses_have_turns_one_after_another() -> None:
    """Whoever comes with many jobs lets others in between; those of one address keep their order."""
    queue, order = JobQueue(PUBLIC), []
    came = [visitor(n, "192.0.2.9") for n in range(4)] + [visitor(4), visitor(5), visitor(6, "192.0.2.9")]
    came += [visitor(7, "192.0.2.4")]
    with ExitStack() as stack:
        tickets = [stack.enter_context(queue.ticket(v)) for v in came]
        for ticket in tickets:
            begin(ticket.wait(Stop()))
        while len(queue):
            order.append(next(t for t in tickets if t.called.is_set() and t in queue._tickets))
            order[-1].__exit__()
    assert [int(t.visitor.session[1:]) for t in order] == [0, 4, 5, 1, 7, 2, 3, 6]


def test_strangers_share_one_queue_and_at_home_each_kind_has_its_own() -> None:
    """One job at a time in public; a race at home need not wait for a sweep."""
    public, private = JobQueues(PUBLIC, shared=True), JobQueues(PRIVATE, shared=False)
    assert public.of("race") is public.of("sweep")
    assert private.of("race") is not private.of("sweep")
    with ExitStack() as stack:
        tickets = [stack.enter_context(private.of("sweep").ticket(visitor(n))) for n in range(3)]
        assert [begin(p.wait(Stop())) is None for p in tickets] == [True, True, False]
        assert private.busy() == 3
        called = [stack.enter_context(public.of(kind).ticket(visitor(n))) for n, kind in enumerate(("a", "b"))]
        assert [begin(p.wait(Stop())) is None for p in called] == [True, False]


def test_many_threads_never_have_more_turns_than_there_are() -> None:
    """200 jobs, two at a time."""
    queue, running, most = JobQueue(replace(PRIVATE, waiting=200, address=200, visitor=200), at_once=2), [], []

    def job(number: int) -> None:
        with queue.ticket(visitor(number)) as ticket:
            list(ticket.wait(Stop()))
            running.append(number)
            most.append(len(running))
            time.sleep(0.001)
            running.remove(number)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(job, range(200)))
    assert max(most) == 2
    assert len(queue) == 0


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


def test_a_stop_keeps_its_first_reason() -> None:
    """A visitor's Stop is not blamed on the clock."""
    stop = Stop()
    stop.set()
    stop.end("time is over")
    assert stop.reason is None
    stops = StopSignals()
    stops.arm("a", "race")
    stops.signal("a", "race").end("time is over")
    assert stops.signal("a", "race").reason == "time is over"


def test_jobs_on_servers_have_a_queue_of_their_own() -> None:
    """Many at a time even in public, where a visitor's share still holds; at home one may take them all."""
    public, private = JobQueues(PUBLIC, shared=True), JobQueues(PRIVATE, shared=False)
    assert public.of_servers() is public.of_servers()
    assert public.of_servers() is not public.of("race")
    with ExitStack() as stack:
        begin(stack.enter_context(public.of("race").ticket(visitor(0))).wait(Stop()))
        queue = public.of_servers()
        tickets = [stack.enter_context(queue.ticket(visitor(n))) for n in range(PUBLIC.servers + 1)]
        told = [begin(p.wait(Stop())) for p in tickets]
        assert told[:-1] == [None] * PUBLIC.servers
        assert "number 1 in line" in told[-1]
    with ExitStack() as stack:
        mine = [public.of_servers().ticket(visitor(1)) for _ in range(PUBLIC.visitor + 1)]
        for ticket in mine[:-1]:
            stack.enter_context(ticket)
        with pytest.raises(QueueFull, match="2 jobs here already"):
            mine[-1].__enter__()
    with ExitStack() as stack:
        tickets = [stack.enter_context(private.of_servers().ticket(visitor(1))) for _ in range(PRIVATE.servers)]
        assert [begin(p.wait(Stop())) for p in tickets] == [None] * PRIVATE.servers


@dataclass(frozen=True, slots=True)
class HeldRace(RaceJob):
    """A race that has its turn from its first state until its iterator is closed."""

    def states(self, *_: object) -> Iterator[JobState]:
        yield JobState("running")


def lane_on(server: str | None) -> LaneRequest:
    """A plain lane on a configured server; here without one."""
    plain = Settings(strategy="autoregressive", engine="server" if server else "auto", server=server)
    return LaneRequest(plain, None if server else request_pair())


@pytest.fixture
def near_and_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configured servers that are never asked; of the last, only the plain deployment is on this machine."""
    file = tmp_path / "servers.toml"
    file.write_text(
        '[[server]]\nid = "near"\nmodel = "toy"\nbaseline_url = "http://127.0.0.1:9"\n'
        '[[server]]\nid = "far"\nmodel = "toy"\nbaseline_url = "http://192.0.2.7:9"\n'
        '[[server]]\nid = "half"\nmodel = "toy"\nbaseline_url = "http://127.0.0.1:9"\n'
        'speculative_url = "http://192.0.2.7:9"\n'
    )
    monkeypatch.setenv(FILE, str(file))


@pytest.mark.usefixtures("near_and_far")
@pytest.mark.parametrize("shared", [False, True])
def test_races_on_servers_of_this_machine_take_turns_among_themselves(shared: bool) -> None:
    """Others are not held up, and one that also decodes here has both turns or keeps nobody from the models."""
    store = Loads()
    with ThreadPoolExecutor(1) as store.thread, ExitStack() as stack:
        store.loads[request_pair()] = Load(request_pair())
        store.loads[request_pair()].future.set_result(None)
        runner = JobRunner(store, JobQueues(PRIVATE, shared=shared))

        def race(number: int, *servers: str | None) -> Iterator[JobState]:
            job = HeldRace("prompt", tuple(map(lane_on, servers)))
            return stack.enter_context(closing(runner.run(job, visitor(number), Stop())))

        def is_first(racing: Iterator[JobState]) -> bool:
            return next(racing).phase == "running"

        near, next_near, both = race(1, "near"), race(2, "near", "far"), race(3, None, "near")
        assert [is_first(racing) for racing in (near, next_near, both)] == [True, False, False]
        local = race(4, None)
        assert [is_first(racing) for racing in (race(5, "far"), race(6, "far"), local)] == [True] * 3
        near.close()
        assert is_first(next_near)
        next_near.close()
        last_near = race(7, "near")
        assert [is_first(racing) for racing in (both, last_near)] == [False, False], "it waits for the models"
        local.close()
        assert is_first(both)
        both.close()
        assert is_first(last_near)


@pytest.mark.usefixtures("near_and_far")
def test_a_mixed_race_that_is_not_the_next_for_the_models_keeps_nobody_from_the_servers() -> None:
    """Guards the servers of this machine, which would stand still while models decode for others."""
    store = Loads()
    with ThreadPoolExecutor(1) as store.thread, ExitStack() as stack:
        store.loads[request_pair()] = Load(request_pair())
        store.loads[request_pair()].future.set_result(None)
        runner = JobRunner(store, JobQueues(PRIVATE, shared=True))

        def race(number: int, *servers: str | None) -> Iterator[JobState]:
            job = HeldRace("prompt", tuple(map(lane_on, servers)))
            return stack.enter_context(closing(runner.run(job, visitor(number), Stop())))

        first, second, both = race(1, None), race(2, None), race(3, None, "near")
        assert [next(r).phase for r in (first, second, both)] == ["running", "loading", "loading"]
        near = race(4, "near")
        assert next(near).phase == "running"
        first.close()
        assert next(second).phase == "running"
        assert next(both).phase == "loading"  # the next, for whom the server is kept
        near.close()
        assert next(both).phase == "loading"
        assert next(race(5, "near")).phase == "loading"
        second.close()
        assert next(both).phase == "running"


@pytest.mark.usefixtures("near_and_far")
def test_a_measurement_has_a_server_here_if_one_of_its_deployments_is() -> None:
    """Its plain runs are those of the other deployment."""
    lanes = [LaneRequest(Settings(engine="server", server=name), None) for name in ("half", "far")]
    assert [SweepJob(["prompt"], lane, 1, SERVERS_OWN).on_server_here for lane in lanes] == [True, False]


def test_the_time_of_a_job_does_not_run_while_it_has_one_turn_of_two() -> None:
    """It would be over before the job began."""
    with JobQueues(PUBLIC, shared=True).of_servers_here().ticket(visitor(1)) as ticket:
        assert begin(ticket.wait(Stop())) is None
        assert ticket.alarm is None
