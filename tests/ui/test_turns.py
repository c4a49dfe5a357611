"""The line in front of the models."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest

from specdemo.errors import LoadCancelled, PairError
from specdemo.models.request import request_pair
from specdemo.runs.store import Load
from specdemo.ui.jobs.limits import PRIVATE, PUBLIC
from specdemo.ui.jobs.queue import Crowded, GaveUp, Lines, Turns, Visitor, visitor_of
from specdemo.ui.jobs.stops import Stop, Stops


def visitor(number: int, address: str | None = None) -> Visitor:
    return Visitor(f"s{number}", address or f"192.0.2.{number}")


def begin(waiting: Iterator[str]) -> str | None:
    """The first thing told; None where the turn came at once."""
    return next(waiting, None)


def test_the_first_has_its_turn_at_once_and_others_in_the_order_they_came() -> None:
    """Each leaves, and exactly the next one is called."""
    line = Turns(PRIVATE)
    order = []
    with ExitStack() as stack:
        places = [stack.enter_context(line.place(visitor(n))) for n in range(4)]
        waits = [place.wait(Stop()) for place in places]
        told = [begin(wait) for wait in waits]
        assert told[0] is None
        assert [text.split("number ")[1][0] for text in told[1:]] == ["1", "2", "3"]
        for n, place in enumerate(places):
            assert [p.called.is_set() for p in places] == [i <= n for i in range(4)]
            assert not list(waits[n])
            order.append(n)
            place.__exit__()
    assert order == [0, 1, 2, 3]
    assert len(line) == 0


def test_who_waits_is_told_a_time_once_a_job_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two before, ten seconds each, the running one half done: 10 · 1.5 seconds."""
    now = [0.0]
    monkeypatch.setattr("specdemo.ui.jobs.queue.monotonic", lambda: now[0])
    line = Turns(PRIVATE)
    with line.place(visitor(1)) as first:
        assert begin(first.wait(Stop())) is None
        now[0] = 10.0
    with line.place(visitor(2)) as second, line.place(visitor(3)) as third, line.place(visitor(4)) as fourth:
        assert begin(second.wait(Stop())) is None
        assert "number 1 in line, about 5\u00a0s" in begin(third.wait(Stop()))
        assert "number 2 in line, about 15\u00a0s" in begin(fourth.wait(Stop()))


def test_stop_is_heard_while_waiting_and_frees_the_place() -> None:
    """Within a fraction of a second, not at the turn."""
    line = Turns(PRIVATE)
    stop = Stop()
    with line.place(visitor(1)) as first:
        assert begin(first.wait(Stop())) is None
        with line.place(visitor(2)) as second:
            wait = second.wait(stop)
            assert begin(wait)
            stop.set()
            began = time.monotonic()
            with pytest.raises(GaveUp):
                next(wait)
            assert time.monotonic() - began < 0.5
        assert len(line) == 1


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
    line = Turns(limits)
    with ExitStack() as stack:
        places = [stack.enter_context(line.place(v)) for v in visitors]
        for place in places[:-1]:
            begin(place.wait(Stop()))
        with pytest.raises(Crowded, match=message):
            begin(places[-1].wait(Stop()))
        assert len(line) == len(visitors) - 1
        places[0].__exit__()
        begin(places[-1].wait(Stop()))
        assert len(line) == len(visitors) - 1


def test_a_job_has_its_time_and_no_more() -> None:
    """The time runs from the turn on, not while waiting; what ends in time is not ended again."""
    line = Turns(replace(PUBLIC, seconds=0.2))
    stop, later = Stop(), Stop()
    with line.place(visitor(1)) as place:
        assert begin(place.wait(stop)) is None
        assert stop.wait(2)
        assert "0 seconds" in stop.reason
    with line.place(visitor(2)) as place:
        assert begin(place.wait(later)) is None
    time.sleep(0.4)
    assert not later.is_set()


def test_a_download_is_waited_for_outside_the_line() -> None:
    """Others go on meanwhile; a pair that cannot be had needs no turn."""
    line, load = Turns(PRIVATE), Load(request_pair())
    with line.place(visitor(1)) as slow, line.place(visitor(2)) as quick:
        wait = slow.wait(Stop(), [load])
        assert begin(wait)
        assert len(line) == 0
        assert begin(quick.wait(Stop())) is None
        load.future.set_exception(PairError("no such pair"))
        assert list(wait) == []
        assert len(line) == 1
    stop = Stop()
    stop.set()
    with line.place(visitor(3)) as place, pytest.raises(LoadCancelled):
        list(place.wait(stop, [Load(request_pair())]))


def test_strangers_share_one_line_and_at_home_each_kind_has_its_own() -> None:
    """One job at a time in public; a race at home need not wait for a sweep."""
    public, private = Lines(PUBLIC, shared=True), Lines(PRIVATE, shared=False)
    assert public.of("race") is public.of("sweep", 2)
    assert private.of("race") is not private.of("sweep", 2)
    with ExitStack() as stack:
        places = [stack.enter_context(private.of("sweep", 2).place(visitor(n))) for n in range(3)]
        assert [begin(p.wait(Stop())) is None for p in places] == [True, True, False]
        assert private.busy() == 3
        called = [stack.enter_context(public.of(kind, 2).place(visitor(n))) for n, kind in enumerate(("a", "b"))]
        assert [begin(p.wait(Stop())) is None for p in called] == [True, False]


def test_many_threads_never_have_more_turns_than_there_are() -> None:
    """200 jobs, two at a time."""
    line, running, most = Turns(replace(PRIVATE, waiting=200, address=200, visitor=200), at_once=2), [], []

    def job(number: int) -> None:
        with line.place(visitor(number)) as place:
            list(place.wait(Stop()))
            running.append(number)
            most.append(len(running))
            time.sleep(0.001)
            running.remove(number)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(job, range(200)))
    assert max(most) == 2
    assert len(line) == 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, Visitor("abc", "10.0.0.1")),
        ({"x-forwarded-for": "198.51.100.7, 10.0.0.1"}, Visitor("abc", "198.51.100.7")),
        ({"x-gradio-user": "mcp", "x-forwarded-for": "198.51.100.7"}, Visitor("mcp 198.51.100.7", "198.51.100.7")),
    ],
)
def test_a_visitor_is_a_page_and_an_address(headers: dict[str, str], expected: Visitor) -> None:
    """Behind a proxy the address is the one it names; agents are told apart by theirs."""
    request = SimpleNamespace(session_hash="abc", headers=headers, client=SimpleNamespace(host="10.0.0.1"))
    assert visitor_of(request) == expected


def test_a_stop_keeps_its_first_reason() -> None:
    """A visitor's Stop is not blamed on the clock."""
    stop = Stop()
    stop.set()
    stop.end("time is over")
    assert stop.reason is None
    stops = Stops()
    stops.arm("a")
    stops.signal("a").end("time is over")
    assert stops.signal("a").reason == "time is over"


def test_jobs_on_servers_have_a_line_of_their_own() -> None:
    """Many at a time even in public, where a visitor's share still holds; at home one may take them all."""
    public, private = Lines(PUBLIC, shared=True), Lines(PRIVATE, shared=False)
    assert public.of_servers() is public.of_servers()
    assert public.of_servers() is not public.of("race")
    with ExitStack() as stack:
        begin(stack.enter_context(public.of("race").place(visitor(0))).wait(Stop()))
        line = public.of_servers()
        places = [stack.enter_context(line.place(visitor(n))) for n in range(PUBLIC.servers + 1)]
        told = [begin(p.wait(Stop())) for p in places]
        assert told[:-1] == [None] * PUBLIC.servers
        assert "number 1 in line" in told[-1]
    with ExitStack() as stack:
        mine = [stack.enter_context(public.of_servers().place(visitor(1))) for _ in range(PUBLIC.visitor + 1)]
        for place in mine[:-1]:
            begin(place.wait(Stop()))
        with pytest.raises(Crowded, match="2 jobs here already"):
            begin(mine[-1].wait(Stop()))
    with ExitStack() as stack:
        places = [stack.enter_context(private.of_servers().place(visitor(1))) for _ in range(PRIVATE.servers)]
        assert [begin(p.wait(Stop())) for p in places] == [None] * PRIVATE.servers
