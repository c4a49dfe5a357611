"""Runs that end in every way but the planned one, and the start and end of the app itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import gradio as gr
import httpx
import psutil
import pytest
from apps import free_port, launched, wait_for_page
from gradio import http_server
from tab import Tab, under_way

from specdemo.decoding.assisted import AssistedObserver
from specdemo.decoding.engines.eager import EagerRunner, Forward
from specdemo.decoding.engines.llama import DirectForward
from specdemo.errors import PairError
from specdemo.models.request import request_pair
from specdemo.runs.race import Race
from specdemo.runs.store import PairStore
from specdemo.settings import Settings
from specdemo.ui import serving
from specdemo.ui.jobs.batch import BatchJob
from specdemo.ui.jobs.job import Job, LaneRequest
from specdemo.ui.jobs.limits import PRIVATE
from specdemo.ui.jobs.losslessness import CheckJob
from specdemo.ui.jobs.measuring import MeasureJob
from specdemo.ui.jobs.queue import JobQueue, JobRunner, Visitor
from specdemo.ui.jobs.race import RaceJob
from specdemo.ui.jobs.worker import Stop, StopSignals

PROMPT = "Write a story about a lighthouse keeper."
ROOT = Path(__file__).resolve().parents[2]
QUIT_SECONDS = 20
SETTINGS = Settings(max_new_tokens=8)


@pytest.fixture(scope="module")
def runner(store: PairStore) -> JobRunner:
    return JobRunner(store, JobQueue(PRIVATE, shared=True))


# --- runs that are killed -------------------------------------------------------------------------------------


class App:
    """The app in this process; its models' thread is watched.

    Attributes:
        rounds: finished so far, by lanes of ours, or by transformers' own where ``theirs`` is set.
        session: whose run is to be ended.
        known: how many rounds there were when the server knew of it.
        made: caches of lanes, and watched generations, that are alive.
    """

    def __init__(self) -> None:
        self.rounds, self.theirs, self.session, self.known = 0, False, "", 0
        self.made: WeakSet[Any] = WeakSet()
        self.store = PairStore()

    def __enter__(self) -> App:
        self._open = ExitStack()
        self.url = self._open.enter_context(launched(self.store))
        self._open.enter_context(self.store.using(request_pair("builtin"))).future.result()
        for kind, method, after in (
            (EagerRunner, "__init__", lambda runner, *_: self.made.add(runner)),
            (AssistedObserver, "__init__", lambda observer, *_: self.made.add(observer)),
            (Race, "__next__", lambda *_: self._count(theirs=False)),
            (AssistedObserver, "put", lambda *_: self._count(theirs=True)),
            (StopSignals, "stop", self._note),
            (StopSignals, "forget", self._note),
        ):
            self._open.enter_context(patch.object(kind, method, observed(getattr(kind, method), after)))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _count(self, *, theirs: bool) -> None:
        self.rounds += theirs is self.theirs

    def _note(self, _: object, session: str) -> None:
        if session == self.session:
            self.known = self.known or self.rounds


def observed(method: Callable[..., Any], after: Callable[..., object]) -> Callable[..., Any]:
    """The method, with what is called with its arguments once it returned."""

    def call(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        after(*arguments)
        return result

    return call


def until(true: Callable[[], object], seconds: float = 300.0) -> bool:
    """Wait for something to be true; whether it came to be."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return bool(true())


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App() as made:
        yield made


OWN = {"lane2__gamma": 4}
THEIRS = {"lane2__method": "assisted"}


@pytest.mark.parametrize("way", ["stop", "close"])
@pytest.mark.parametrize(("lane", "at"), [(OWN, 20), (THEIRS, 5)], ids=["own", "theirs"])
def test_a_killed_run_frees_its_lane_within_a_round(app: App, way: str, lane: dict[str, Any], at: int) -> None:
    """By Stop and by a closed tab."""
    with Tab(app.url) as tab:
        app.session, app.theirs, app.known, before = tab.session, lane is not OWN, 0, app.rounds
        updates = tab.run(prompt=PROMPT, **lane, max__tokens=400, ignore__eos=True)
        assert until(lambda: app.rounds >= before + at), "the round to be killed in was not reached"
        if way == "stop":
            tab.press("stop")
            *_, last = updates
            assert last["message"].startswith("Stopped.")
        else:
            tab.close()
            assert until(lambda: app.known), "the closed tab was not noticed"
        # Jobs of that thread are done in turn, so this one waits for whatever is left of the run.
        app.store.thread.submit(int).result(300)
        assert app.rounds - app.known <= 1
        assert until(lambda: not app.made, 1), "the caches are freed before any garbage is collected"


BUILTIN = request_pair("builtin")
DRAFTED, ASSISTED = (
    LaneRequest(SETTINGS, BUILTIN),
    LaneRequest(replace(SETTINGS, strategy="assisted", max_new_tokens=32), BUILTIN),
)
JOBS = [
    (RaceJob(PROMPT, (DRAFTED,)), MemoryError, "Memory ran out."),
    (RaceJob(PROMPT, (ASSISTED,)), RuntimeError, "The run failed: RuntimeError. Run it again."),
    (BatchJob([PROMPT], DRAFTED, 2), KeyboardInterrupt, "KeyboardInterrupt"),
    (MeasureJob([PROMPT], DRAFTED, gammas=(2,)), SystemExit, "SystemExit"),
    (CheckJob((PROMPT,), DRAFTED, 1, 2), SystemExit, "SystemExit"),
]


def ended(runner: JobRunner, job: Job) -> tuple[str, str]:
    """Phase and message of the last state."""
    *_, last = runner.run(job, Visitor("test"), Stop())
    return last.phase, last.message


def crashing(call: Callable[..., Any], calls: list[None], fault: type[BaseException]) -> Callable[..., Any]:
    """A method that fails at the fourth call of all that share ``calls``."""

    def failing(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        if len(calls) == 4:
            raise fault("raised by the test")
        return call(*arguments, **options)

    return failing


@pytest.mark.parametrize(("job", "fault", "said"), JOBS, ids=["race", "assisted", "batch", "measure", "check"])
def test_every_job_tells_of_a_crash_and_the_next_one_works(
    job: Job,
    fault: type[BaseException],
    said: str,
    runner: JobRunner,
    store: PairStore,
    runners: Callable[[], list],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of the faults are no ``Exception``, which would end the visitor's thread, and with it the server."""
    assert ended(runner, job)[0] == "done"  # the models were tried for what they can do
    calls: list[None] = []
    with monkeypatch.context() as patch:
        # Batches use the first, lanes the second, and transformers' own lanes the third.
        for kind, method in ((Forward, "__call__"), (DirectForward, "__call__"), (AssistedObserver, "put")):
            patch.setattr(kind, method, crashing(getattr(kind, method), calls, fault))
        phase, message = ended(runner, job)
    assert phase == "error"
    assert said in message
    store.thread.submit(int).result(60)
    assert until(lambda: not any(runners()), 1), "the caches are freed before any garbage is collected"
    assert ended(runner, job)[0] == "done"


def test_a_load_that_a_library_ends_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the server, in which visitors wait for a load."""

    def leave(*_: Any, **__: Any) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("specdemo.runs.store.assemble_warm", leave)
    with (
        PairStore().using(request_pair("builtin")) as wanted,
        pytest.raises(PairError, match="ended by SystemExit"),
    ):
        wanted.future.result(timeout=60)


# --- the app's own end ----------------------------------------------------------------------------------------


def started() -> tuple[subprocess.Popen[str], str]:
    """``python app.py`` on a free port, once it has a page."""
    port = free_port()
    app = subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**os.environ, "GRADIO_SERVER_PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever started the tests in the background has interrupts ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return app, wait_for_page(app, port)


def test_the_app_ends_cleanly_in_the_middle_of_a_run() -> None:
    """By Ctrl-C; a long run must not hold it up. ``test_space.py`` has the signal that Spaces send."""
    app, url = started()
    try:
        with Tab(url) as tab:
            for view in tab.run(prompt=PROMPT, max__tokens=1000, ignore__eos=True):
                if under_way(view):
                    break
            children = psutil.Process(app.pid).children(recursive=True)
            app.send_signal(signal.SIGINT)
            output, _ = app.communicate(timeout=QUIT_SECONDS)
    finally:
        app.kill()
    assert app.returncode == 0, output
    assert "Traceback" not in output
    assert psutil.wait_procs(children, timeout=5)[1] == []


# --- its start where ports are taken ---------------------------------------------------------------------------


@pytest.fixture
def page() -> Iterator[gr.Blocks]:
    """A small page; what is launched is all the same to its port."""
    with gr.Blocks(analytics_enabled=False) as made:
        gr.Markdown("here")
    yield made
    made.close(verbose=False)


def listening(port: int = 0) -> socket.socket:
    """What another program has."""
    return socket.create_server(("127.0.0.1", port))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # uvicorn's way to give up
def test_an_app_starts_although_another_takes_its_port_in_the_last_moment(
    page: gr.Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards two apps that are started at once: both look for a port before either of them has one."""
    with listening() as free:
        first = free.getsockname()[1]
    rivals: list[socket.socket] = []
    monkeypatch.delenv(serving.PORT, raising=False)
    monkeypatch.setattr(serving, "INITIAL_PORT_VALUE", first)
    begin = http_server.Server.run_in_thread

    def after_another(server: http_server.Server) -> None:
        if not rivals:  # Gradio has just seen that the port is free
            rivals.append(listening(first))
        begin(server)

    monkeypatch.setattr(http_server.Server, "run_in_thread", after_another)
    serving.launch(page)
    assert page.server_port > first
    assert httpx.get(page.local_url).status_code == 200
    assert httpx.get(f"{page.local_url}gradio_api/mcp/schema").status_code == 200
    rivals[0].close()


def test_a_stated_port_that_is_taken_is_told(page: gr.Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against an app at another address than the one that its owner gave to others."""
    with listening() as rival:
        port = rival.getsockname()[1]
        monkeypatch.setenv(serving.PORT, str(port))
        monkeypatch.setattr(serving, "INITIAL_PORT_VALUE", port)
        with pytest.raises(SystemExit, match=f"Port {port} is taken by another program; end it, or give another"):
            serving.launch(page)
