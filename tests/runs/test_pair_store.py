"""Pairs shared by visitors: loaded once, kept within a budget, cancelled by nobody else, all in one thread."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hub import Hub
from toys import living_models

import specdemo
from specdemo import LoadCancelled, PairError, Settings
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.models.request import PairRequest, request_pair
from specdemo.runs.store import Load, PairStore

Folders = Callable[[str], tuple[Path, Path]]

BUILTIN = request_pair("builtin", "cpu")
PATIENCE = 60


def asked(folders: tuple[Path, Path]) -> PairRequest:
    return request_pair(" + ".join(map(str, folders)), "cpu")


@pytest.fixture
def requests(folders: Folders, tmp_path: Path) -> list[PairRequest]:
    """Three pairs of one size."""
    copies = [tmp_path / name for name in ("first", "second", "third")]
    for copy in copies:
        shutil.copytree(folders("llama")[0].parent, copy)
    return [asked((copy / "target", copy / "draft")) for copy in copies]


def loaded(store: PairStore, request: PairRequest) -> Load:
    """Load a pair and leave it idle."""
    with store.using(request) as load:
        load.future.result(PATIENCE)
    return load


def names(store: PairStore) -> list[str]:
    return [load.request.name for load in store.resident()]


def budget_for(request: PairRequest, count: int) -> int:
    """Bytes for so many pairs of this size, the last of them loaded with room for its caches, and a bit more."""
    report = PairStore().look(request)
    weights = sum(model.weights.nbytes for model in report.models)
    return report.memory + (count - 1) * weights + weights // 2


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)


# --- sharing ----------------------------------------------------------------------------------------------


def test_every_forward_of_every_visitor_runs_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two OpenMP teams would make small models two to three times slower, and nothing else would fail."""
    threads: set[int] = set()
    forward = EagerRunner.forward

    def watched(self: EagerRunner, *args: object, **kwargs: object) -> object:
        threads.add(threading.get_ident())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(EagerRunner, "forward", watched)
    store = PairStore()
    lanes = [Settings(strategy="autoregressive", max_new_tokens=6), Settings(max_new_tokens=6)]

    def visit(prompt: str) -> int:
        with store.using(BUILTIN) as load:
            pair = load.future.result(PATIENCE)
            return len(store.thread.submit(lambda: list(specdemo.race(pair, prompt, lanes))).result(PATIENCE))

    with ThreadPoolExecutor(2) as visitors:
        assert all(visitors.map(visit, ["Hello there.", "Tell me a story."]))
    assert threads == {store.thread.submit(threading.get_ident).result()}


def test_two_visitors_share_one_load_and_one_download(hub: Hub, folders: Folders) -> None:
    """A second load would double the memory and the wait."""
    request = request_pair(hub.add_pair(folders("llama")), "cpu")
    hub.misbehave("org/target", delay=0.01)
    store, meet = PairStore(), threading.Barrier(2)

    def visit(_: int) -> specdemo.ModelPair:
        meet.wait()
        with store.using(request) as load:
            return load.future.result(PATIENCE)

    with ThreadPoolExecutor(2) as visitors:
        first, second = visitors.map(visit, range(2))
    assert first is second
    for repo_id in ("org/target", "org/draft"):
        assert len(hub.fetched(repo_id)) == len(set(hub.fetched(repo_id)))


# --- cancelling -------------------------------------------------------------------------------------------


@pytest.fixture
def slow(hub: Hub, folders: Folders) -> PairRequest:
    """A pair that takes five seconds to download."""
    request = request_pair(hub.add_pair(folders("llama")), "cpu")
    for repo_id in ("org/target", "org/draft"):
        hub.misbehave(repo_id, delay=0.1)
    return request


def under_way(load: Load) -> bool:
    return load.progress.step.in_bytes and load.progress.step.done > 0


def quicken(hub: Hub) -> None:
    for repo_id in ("org/target", "org/draft"):
        hub.behave(repo_id)


def test_a_visitor_who_leaves_does_not_end_anothers_load(hub: Hub, slow: PairRequest) -> None:
    store = PairStore()
    with store.using(slow) as load:
        with store.using(slow) as same:
            assert same is load
            until(lambda: under_way(load))
        assert not load.progress.cancelled
        quicken(hub)
        assert load.future.result(PATIENCE).name == slow.name
    assert store.find(slow) is load


def test_a_load_that_everybody_left_ends_soon_and_goes_on_later(
    hub: Hub, slow: PairRequest, tmp_path: Path
) -> None:
    """Guards the line and the memory: nothing is fetched for nobody, and what came is not fetched again."""
    store, before = PairStore(), living_models()
    with store.using(slow) as load, store.using(slow):
        until(lambda: under_way(load))
    assert store.find(slow) is None
    with pytest.raises(LoadCancelled, match="goes on with what was downloaded"):
        load.future.result(2)
    assert living_models() == before
    (part,) = (tmp_path / "cache").rglob("*.part")
    kept = part.stat().st_size
    assert kept > 0
    quicken(hub)
    hub.requests.clear()
    assert loaded(store, slow).ready
    assert hub.ranges("org/target") == [f"bytes={kept}-"]


def test_who_comes_back_at_once_gets_a_load_that_was_not_cancelled(hub: Hub, slow: PairRequest) -> None:
    """Guards a reload of the page: the old load may still be ending, with the file locked."""
    store = PairStore()
    with store.using(slow) as first:
        until(lambda: under_way(first))
    with store.using(slow) as second:
        quicken(hub)
        assert second.future.result(PATIENCE).name == slow.name
    assert isinstance(first.future.exception(), LoadCancelled)
    assert store.find(slow) is second


def test_a_load_that_was_left_before_its_turn_puts_no_pair_out(requests: list[PairRequest]) -> None:
    """Guards idle pairs: a load waits for a run to end, everybody leaves it, and its turn comes nevertheless."""
    store = PairStore(budget_for(requests[0], 1))
    loaded(store, requests[0])
    goes_on = threading.Event()
    run = store.thread.submit(goes_on.wait, PATIENCE)
    with store.using(requests[1]) as load:
        until(lambda: "Waiting" in load.progress.step.text and load.report is not None)
    goes_on.set()
    run.result()
    with pytest.raises(LoadCancelled):
        load.future.result(PATIENCE)
    assert names(store) == [requests[0].name]


# --- failing ----------------------------------------------------------------------------------------------


def test_a_failed_load_is_forgotten_and_tried_again(hub: Hub, folders: Folders) -> None:
    """A pair that could not be loaded once must not stay broken until a restart."""
    request, store = request_pair(hub.add_pair(folders("llama")), "cpu"), PairStore()
    hub.misbehave("org/draft", corrupt=True)
    before = living_models()
    for _ in range(2):
        with store.using(request) as load, pytest.raises(PairError, match="arrived damaged"):
            load.future.result(PATIENCE)
        assert not load.ready
        assert store.find(request) is None
    assert (store.resident(), living_models()) == ([], before)
    hub.behave("org/draft")
    assert loaded(store, request).ready


# --- the budget -------------------------------------------------------------------------------------------


def test_the_least_recently_used_pair_makes_room_and_it_is_said(requests: list[PairRequest]) -> None:
    """Guards the order, which is that of use and not of loading, and the note that names who had to go."""
    first, second, third = requests
    store = PairStore(budget_for(requests[0], 2))
    for request in (first, second, first):
        assert not loaded(store, request).notes
    assert names(store) == [second.name, first.name]
    load = loaded(store, third)
    assert names(store) == [first.name, third.name]
    assert load.notes == [f"{second.name} was put out of memory to make room."]
    assert loaded(store, second).notes == [f"{first.name} was put out of memory to make room."]


def test_a_pair_that_was_put_out_is_not_kept_by_who_once_wanted_it(requests: list[PairRequest]) -> None:
    """Guards memory against visitors who stay: the page keeps a way to say that they no longer wait."""
    before = living_models()
    store = PairStore(budget_for(requests[0], 1))
    load, leave = store.want(requests[0])
    load.future.result()
    one = living_models() - before
    del load
    loaded(store, requests[1])
    gc.collect()
    assert names(store) == [requests[1].name]
    assert living_models() - before == one
    leave()


def test_a_pair_in_use_is_never_put_out(requests: list[PairRequest]) -> None:
    """Guards a running race, also one that begins after the preflight; who comes second gets in afterwards."""
    first, second, _ = requests
    store, goes_on = PairStore(budget_for(requests[0], 1)), threading.Event()
    loaded(store, first)
    store.thread.submit(goes_on.wait, PATIENCE)
    with store.using(second) as load:
        until(lambda: "Waiting for a run" in load.progress.step.text)
        with store.using(first):
            assert "memory" in store.look(second).conclusion
            assert store.look(first).ok
            goes_on.set()
            with pytest.raises(PairError, match=r"other pairs in use; wait for those runs.*SPECDEMO_MEMORY_GB"):
                load.future.result(PATIENCE)
            assert names(store) == [first.name]
    assert store.look(second).ok
    assert loaded(store, second).ready
    assert names(store) == [second.name]


def test_two_loads_at_once_stay_within_the_budget(requests: list[PairRequest]) -> None:
    """Guards the second one's count: the first, just loaded, must be in it."""
    store = PairStore(budget_for(requests[0], 1))
    goes_on = threading.Event()
    store.thread.submit(goes_on.wait, PATIENCE)
    loads = [store.preload(request) for request in requests]
    until(lambda: all("Waiting for a run" in load.progress.step.text for load in loads))
    goes_on.set()
    for load in loads:
        load.future.result(PATIENCE)
    assert len(store.resident()) == 1
    assert sorted(len(load.notes) for load in loads) == [0, 1, 1]


def test_the_budget_may_come_from_the_environment(
    requests: list[PairRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards SPECDEMO_MEMORY_GB, in gigabytes."""
    for value, fits in (("0.001", False), ("8", True), ("", True)):
        monkeypatch.setenv("SPECDEMO_MEMORY_GB", value)
        assert PairStore().look(requests[0]).ok == fits
    monkeypatch.setenv("SPECDEMO_MEMORY_GB", "much")
    with pytest.raises(PairError, match="SPECDEMO_MEMORY_GB: 'much' is no number; give gigabytes"):
        PairStore()
