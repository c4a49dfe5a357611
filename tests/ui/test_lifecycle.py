"""Runs that end in every way but the planned one, and the end of the app itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil
import pytest
import torch
from kills import FAULTS, PROMPT, Killer, plan, running
from tab import Page, Tab, under_way

from specdemo.decoding.engines.eager_forward import Forward
from specdemo.decoding.engines.llama import DirectForward
from specdemo.errors import PairError
from specdemo.models.request import request_pair
from specdemo.runs.store import PairStore
from specdemo.settings import Settings
from specdemo.ui.jobs.batch import BatchJob
from specdemo.ui.jobs.job import Job, LaneRequest
from specdemo.ui.jobs.limits import PRIVATE
from specdemo.ui.jobs.losslessness import CheckJob
from specdemo.ui.jobs.measuring import MeasureJob
from specdemo.ui.jobs.queue import JobQueue, Visitor
from specdemo.ui.jobs.race import RaceJob
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.jobs.stops import Stop
from specdemo.ui.jobs.worker import WorkerCrash, gathered, in_thread

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS, QUIT_SECONDS = 180, 10
SETTINGS = Settings(max_new_tokens=8)


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with running() as app:
        app.whole(8)
        yield app


@pytest.fixture(scope="module")
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as models:
        yield models


@pytest.fixture(scope="module")
def runner() -> JobRunner:
    return JobRunner(PairStore(), JobQueue(PRIVATE, shared=True))


# --- runs that are killed -------------------------------------------------------------------------------------


def test_a_killed_run_frees_its_lane_within_a_round(killer: Killer) -> None:
    """Stop, a closed tab and crashes by turns."""
    kills = [killer.kill(way, fault, at) for way, fault, at in plan(12, seed=1)]
    assert [k for k in kills if k.rounds_after > 1] == []
    assert [k for k in kills if k.runners] == []
    assert kills[-1].threads <= max(k.threads for k in kills[:4]) + 1
    told = {k.fault: k.told for k in kills if k.way == "crash"}
    assert told.keys() == {fault.__name__ for fault in FAULTS}
    assert told["MemoryError"].startswith("Memory ran out.")
    for name in ("RuntimeError", "SystemExit", "KeyboardInterrupt"):
        assert told[name] == f"The run failed: {name}. Press Run to try again."
    assert all(k.told.startswith("Stopped.") for k in kills if k.way == "stop")


def test_the_app_goes_on_after_crashes(killer: Killer) -> None:
    """Guards the server, which ``SystemExit`` from a worker would end, and the models' thread."""
    for fault in FAULTS:
        killer.kill("crash", fault, 5)
    last = killer.whole(16)
    assert last["phase"] == "done"
    assert last["verdict"]["kind"] == "identical"


BUILTIN = request_pair("builtin")
JOBS = [
    RaceJob(PROMPT, (LaneRequest(SETTINGS, BUILTIN),)),
    BatchJob(BUILTIN, [PROMPT], 2, SETTINGS),
    MeasureJob([PROMPT], LaneRequest(SETTINGS, BUILTIN), gammas=(2,)),
    CheckJob(BUILTIN, PROMPT, SETTINGS, 1, 2),
]


def ended(runner: JobRunner, job: Job) -> tuple[str, str]:
    """Phase and message of the last state."""
    *_, last = runner.run(job, Visitor("test"), Stop())
    return last.phase, last.message


def crashing(call: Callable[..., Any], calls: list[None], fault: type[BaseException]) -> Callable[..., Any]:
    """A forward whose fourth call, of all that share ``calls``, raises ``fault``."""

    def forward(*arguments: Any, **options: Any) -> torch.Tensor:
        calls.append(None)
        if len(calls) == 4:
            raise fault("raised by the test")
        return call(*arguments, **options)

    return forward


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.kind)
def test_every_job_tells_of_a_crash_and_the_next_one_works(
    job: Job, runner: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a crash that ends the visitor's thread, and with it the server, instead of the run."""
    assert ended(runner, job)[0] == "done"  # the models were tried for what they can do
    for fault in FAULTS:
        calls: list[None] = []
        with monkeypatch.context() as patch:
            for engine in (Forward, DirectForward):  # batches use the one, lanes the other
                patch.setattr(engine, "__call__", crashing(engine.__call__, calls, fault))
            phase, message = ended(runner, job)
        assert phase == "error", fault
        assert ("ran out" if fault is MemoryError else fault.__name__) in message
        assert ended(runner, job)[0] == "done", fault


def test_a_crash_does_not_keep_the_locals_of_its_frames(thread: ThreadPoolExecutor) -> None:
    """Guards the caches of a crashed run: on a GPU they would stay until Python happens to collect garbage."""
    import weakref

    class Cache:
        pass

    made: list[weakref.ref] = []

    def crash() -> None:
        cache = Cache()
        made.append(weakref.ref(cache))
        raise RuntimeError("in the middle of a round")

    with pytest.raises(RuntimeError) as caught:
        in_thread(thread, crash)
    assert caught.value is not None
    assert made[0]() is None


def test_an_ended_generator_is_told_to_the_visitor(thread: ThreadPoolExecutor) -> None:
    def values() -> Iterator[int]:
        yield 1
        raise SystemExit(3)

    with pytest.raises(WorkerCrash, match="SystemExit: 3"):
        list(gathered(thread, values, Event()))
    assert in_thread(thread, int) == 0, "the thread goes on"


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


# --- the end of the app ---------------------------------------------------------------------------------------


def started() -> tuple[subprocess.Popen, str]:
    """``python app.py`` on a free port, once it has a page."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    while time.monotonic() < until and app.poll() is None:
        try:
            httpx.get(f"{url}/config", timeout=5).raise_for_status()
            return app, url
        except httpx.TransportError:
            time.sleep(0.2)
    app.kill()
    raise AssertionError(f"the app gave no page: {app.communicate()[0]}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_app_ends_cleanly_in_the_middle_of_a_run(number: signal.Signals) -> None:
    """Ctrl-C, and the signal by which Spaces and containers stop a program; a long run must not hold it up."""
    app, url = started()
    try:
        with Tab(Page(url)) as tab:
            for view in tab.run(prompt=PROMPT, max__tokens=1000, ignore__eos=True):
                if under_way(view):
                    break
            children = psutil.Process(app.pid).children(recursive=True)
            app.send_signal(number)
            output, _ = app.communicate(timeout=QUIT_SECONDS)
    finally:
        app.kill()
    assert app.returncode == 0, output
    assert "Traceback" not in output
    assert psutil.wait_procs(children, timeout=5)[1] == []
