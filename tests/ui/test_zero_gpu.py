"""ZeroGPU: jobs in forked workers of the real ``spaces`` package, with a stand-in for the platform's service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from scripted import Exchange, ScriptedServer

import specdemo
from specdemo.settings import Settings
from specdemo.ui.jobs.job import LONGEST, SHORTEST, decode_seconds, gpu_seconds

TESTS = Path(__file__).parents[1]
PROMPT = "Book a table for two near the harbour."


class Service(ScriptedServer):
    """Gives out one GPU, and remembers who asked for how long and gave it back."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, dict[str, str]]] = []

    def answer(self, exchange: Exchange) -> None:
        where = urlsplit(exchange.path)
        self.calls.append((where.path.strip("/"), dict(parse_qsl(where.query))))
        gpu = {"idle": True, "nvidiaIndex": 0, "nvidiaUUID": "GPU-0", "allowToken": "token"}
        exchange.reply(gpu if where.path.endswith("schedule") else {})


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as server:
        yield server


@pytest.fixture(scope="module")
def found(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the jobs gave in the program on ZeroGPU."""
    environment = {
        **os.environ,
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": service.url,
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYTHONPATH": str(TESTS.parent),
        "HF_HUB_OFFLINE": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
    }
    done = subprocess.run(
        [sys.executable, str(TESTS / "zero_gpu_space.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert done.returncode == 0, done.stderr[-4000:]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[-1].removeprefix("FOUND "))


@pytest.fixture(scope="module")
def expected() -> list[int]:
    trace = specdemo.run(specdemo.load_pair(), PROMPT, Settings(max_new_tokens=24, gamma=4))
    return list(trace.token_ids)


def test_every_job_runs_in_a_worker_and_gives_what_it_gives_elsewhere(
    found: dict[str, Any], expected: list[int]
) -> None:
    """Guards against arguments or values that cannot be pickled, and models used where there is no GPU."""
    assert found["ready_before_launch"] == ["builtin"], "later it would not reach the workers"
    assert found["race"] == ["done", expected, expected]
    assert found["kept"] == [expected, expected], "the recording comes back to the program"
    phase, message, runs = found["sweep"]
    assert (phase, message[:5]) == ("done", "Done:")
    assert sorted(gamma for gamma, _ in runs) == [0, 2, 3]
    assert found["batch"] == ["done", expected]
    assert found["check"] == ["done", "identical"]
    assert found["page"][0] == "done", found["page"]


def test_a_job_ends_at_stop_and_before_its_time_on_the_gpu_does(found: dict[str, Any]) -> None:
    """Guards what was decoded: a worker that the platform aborts takes it along."""
    assert found["stopped"] == ["stopped", True]
    assert found["over"][:2] == ["stopped", True]
    assert "as long as a run may" in found["over"][2]


def test_a_pair_that_came_after_the_launch_is_loaded_by_the_worker(
    found: dict[str, Any], expected: list[int]
) -> None:
    """Guards workers that were forked before somebody chose another pair."""
    phase, tokens, place = found["other"]
    assert (phase, tokens) == ("done", expected)
    assert place.startswith("Fetched")


def test_time_on_the_gpu_is_asked_for_within_bounds_and_given_back(
    found: dict[str, Any], service: Service
) -> None:
    asked = [int(query["durationSeconds"]) for name, query in service.calls if name == "schedule"]
    released = [query for name, query in service.calls if name == "release"]
    assert ("startup-report", {}) in service.calls, "Spaces end a program that decorates nothing"
    assert len(asked) == len(released) == 9
    assert [query["fail"] for query in released] == ["false"] * 9
    assert {name for name, _ in service.calls} == {"startup-report", "schedule", "allow", "release"}
    assert min(asked) > 0
    assert max(asked) <= LONGEST


def test_the_time_asked_for_grows_with_tokens_and_gamma() -> None:
    short, long, wide = (
        decode_seconds(Settings(max_new_tokens=n, gamma=gamma)) for n, gamma in ((64, 4), (256, 4), (64, 8))
    )
    assert short < wide < long
    assert gpu_seconds(0) == SHORTEST
    assert gpu_seconds(1e6) == LONGEST
