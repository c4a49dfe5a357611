"""Servers through the public API: by name, many at once beside the models' thread, and never with their keys."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from apps import launched
from fake_vllm import FakeVLLM
from gradio_client import Client
from gradio_client.exceptions import AppError
from toys import BYTE_VOCABULARY, build, byte_tokenizer, perturbed

from specdemo import ModelPair, Round, Settings
from specdemo.models.request import catalog
from specdemo.runs.single import LaneRecord
from specdemo.runs.store import PairStore
from specdemo.servers.catalog import FILE
from specdemo.ui import page as ui
from specdemo.ui.jobs.limits import PRIVATE
from specdemo.ui.jobs.queue import JobQueue

KEY = "sk-very-secret-0123456789"
PROMPT = "Book a table for two."
AT_ONCE = 32


class Gathering(FakeVLLM):
    """A deployment that begins to decode only when so many requests wait for it at the same time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.barrier: threading.Barrier | None = None

    def decode(self, record: LaneRecord, steps: list[tuple[int, int]]) -> Iterator[Round]:
        if self.barrier is not None:
            try:
                self.barrier.wait(60)
            except threading.BrokenBarrierError:
                raise ConnectionAbortedError("the test is over, and whoever asked has left") from None
        return super().decode(record, steps)


@pytest.fixture(scope="module")
def deployments() -> Iterator[tuple[Gathering, Gathering]]:
    target = build("llama", vocabulary=BYTE_VOCABULARY, eos=None)
    pair = ModelPair(target, perturbed(target), byte_tokenizer())
    with (
        Gathering(pair, model="toy", key=KEY) as base,
        Gathering(pair, Settings(gamma=4), model="toy", key=KEY) as spec,
    ):
        yield base, spec


@pytest.fixture(scope="module")
def queues() -> JobQueue:
    return JobQueue(PRIVATE, shared=False)


@pytest.fixture(scope="module")
def url(
    store: PairStore,
    queues: JobQueue,
    deployments: tuple[Gathering, Gathering],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    base, spec = deployments
    file = tmp_path_factory.mktemp("servers") / "servers.toml"
    file.write_text(
        f'[[server]]\nid = "toy"\nlabel = "The toy"\nmodel = "toy"\napi_key_env = "TOY_KEY"\n'
        f'baseline_url = "{base.url}"\nspeculative_url = "{spec.url}"\nown_hardware = true\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FILE, str(file))
        patch.setenv("TOY_KEY", KEY)
        with launched(store, queues) as url:
            yield url


def call(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """One run over plain HTTP, as in the README."""
    api = f"{url}gradio_api/call"
    event = httpx.post(f"{api}/v2/run", json=body, timeout=60).json()["event_id"]
    last = None
    with httpx.stream("GET", f"{api}/run/{event}", timeout=120) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: error"):
                raise AssertionError(list(answer.iter_lines()))
            if line.startswith("data: ["):
                last = json.loads(line.removeprefix("data: "))
    assert last is not None
    return last[0]


def test_thirty_two_lanes_at_once_through_one_app_lose_and_cross_nothing(
    url: str, store: PairStore, deployments: tuple[Gathering, Gathering]
) -> None:
    """All of them reach the server before any is answered, while the models' thread is busy elsewhere."""
    _, spec = deployments
    spec.barrier = threading.Barrier(AT_ONCE)
    over, running = threading.Event(), threading.Event()
    store.thread.submit(lambda: (running.set(), over.wait(120)))
    assert running.wait(120)
    shared = {"server": "toy", "temperature": 1.0, "acceptance": "sampling", "max_new_tokens": 24}
    bodies = [{"prompt": f"{PROMPT} {n}", "settings": {**shared, "seed": n}} for n in range(AT_ONCE)]
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda body: call(url, body), bodies))
    finally:
        over.set()
        spec.barrier = None
    for seed, answer in enumerate(answers):
        own = spec.traces[seed]
        assert answer["token_ids"] == own.token_ids
        assert answer["output"] == own.text
        assert answer["metrics"]["accepted"] == own.metrics().accepted
        assert answer["server"]["level"] == "detailed"
    assert len({tuple(a["token_ids"]) for a in answers}) == AT_ONCE


def test_a_server_is_a_pair_by_its_name_and_its_key_and_address_stay_here(
    client: Client, deployments: tuple[Gathering, Gathering]
) -> None:
    """Listed, raced and swept; nothing that is answered holds the key or where the deployments are."""
    listed = client.predict(api_name="/pairs")
    assert [pair["id"] for pair in listed] == [*catalog(), "server:toy"]
    assert listed[-1]["strategies"] == ["autoregressive", "speculative"]
    lanes = [{"strategy": "autoregressive", "max_new_tokens": 16}, {"max_new_tokens": 16}]
    race = client.predict(PROMPT, lanes, "server:toy", True, api_name="/race")
    assert race["verdict"]["kind"] == "identical"
    assert [lane["server"]["name"] for lane in race["lanes"]] == ["The toy"] * 2
    assert race["hardware"] is None
    sweep = client.predict([PROMPT], [2], 1, {"max_new_tokens": 12}, "server:toy", api_name="/sweep")
    assert [row["gamma"] for row in sweep["rows"]] == [4]
    everything = json.dumps([listed, race, sweep])
    assert KEY not in everything
    assert all(fake.url.removesuffix("/v1") not in everything for fake in deployments)


@pytest.mark.parametrize("endpoint", ["run", "sweep"])
def test_a_call_whose_client_left_ends_while_its_lane_is_silent(
    url: str, queues: JobQueue, deployments: tuple[Gathering, Gathering], endpoint: str
) -> None:
    """Guards a turn that nobody waits for any more against a server that says nothing for long."""
    barrier = threading.Barrier(2)  # nobody else comes
    for each in deployments:
        each.barrier = barrier
    api, lane = f"{url}gradio_api/call", {"server": "toy", "max_new_tokens": 8}
    data = {"run": [PROMPT, lane], "sweep": [[PROMPT], [4], 1, lane]}[endpoint]
    try:
        event = httpx.post(f"{api}/{endpoint}", json={"data": data}, timeout=60).json()["event_id"]
        with httpx.stream("GET", f"{api}/{endpoint}/{event}", timeout=60) as answer:
            next(answer.iter_lines())
            while not barrier.n_waiting:
                time.sleep(0.05)
            assert queues.busy()
        left = time.monotonic()
        while queues.busy() and time.monotonic() < left + 30:
            time.sleep(0.05)
        assert not queues.busy()
    finally:
        barrier.abort()
        for each in deployments:
            each.barrier = None


@pytest.mark.parametrize(
    ("settings", "pair", "message"),
    [
        ({"server": "none"}, "builtin", "'none' is not configured; choose one of 'toy'"),
        ({}, "server:none", "'none' is not configured"),
        ({"drafter": "early_exit"}, "server:toy", "drafter: a server drafts as it was started"),
        ({"server": "http://127.0.0.1:1/v1"}, "builtin", "is not configured"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    client: Client, settings: dict[str, Any], pair: str, message: str
) -> None:
    """Only configured servers are asked, whatever a program names."""
    with pytest.raises(AppError, match=message):
        client.predict(PROMPT, settings, pair, api_name="/run")


def test_a_file_that_cannot_be_read_is_said_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the start: one sentence, not a page without its servers."""
    monkeypatch.setenv(FILE, str(tmp_path / "none.toml"))
    with pytest.raises(Exception, match=r"^server: none\.toml cannot be read"):
        ui.build(PairStore())
