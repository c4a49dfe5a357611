"""How many threads a pair runs with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from toys import endless_pair, prompt_ids

import specdemo
from specdemo.decoding.clock import LaneClock
from specdemo.models.request import request_pair
from specdemo.runs import store as store_module
from specdemo.runs import threads
from specdemo.runs.record import record
from specdemo.runs.store import PairStore
from specdemo.runs.threads import ENVIRONMENT


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the machine has."""
    before = torch.get_num_threads()
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(4)
    monkeypatch.setattr("specdemo.models.pair.MOST_THREADS", 4)
    yield
    torch.set_num_threads(before)


def timed(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float]) -> list[int]:
    """Rounds take what ``seconds`` says of a number of threads; returns the numbers that were tried."""
    tried: list[int] = []

    def take(_: object) -> float:
        tried.append(torch.get_num_threads())
        return seconds(tried[-1])

    monkeypatch.setattr(threads, "_round_seconds", take)
    return tried


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        ({1: 10, 2: 18, 4: 30}, 1),
        ({1: 10, 2: 6, 4: 9}, 2),
        ({1: 10, 2: 6, 4: 4}, 4),
        ({1: 10, 2: 9.8, 4: 9.7}, 1),  # hardly quicker is not worth a core
    ],
)
def test_the_quickest_number_is_found_and_torch_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, milliseconds: dict[int, float], expected: int
) -> None:
    tried = timed(monkeypatch, lambda count: milliseconds[count] / 1000)
    assert specdemo.quickest_threads(endless_pair("llama")) == expected
    assert set(tried) == {1, 2, 4}
    assert torch.get_num_threads() == 4


def test_large_models_and_a_number_from_outside_need_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying out a model of billions on one core would take minutes."""
    tried = timed(monkeypatch, lambda count: count)
    assert specdemo.quickest_threads(endless_pair("llama")) == 1
    tried.clear()
    with monkeypatch.context() as patch:
        patch.setattr(threads, "LARGE_BYTES", 1000)
        assert specdemo.quickest_threads(endless_pair("llama")) == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert specdemo.quickest_threads(endless_pair("llama")) == 4
    assert tried == []


@pytest.mark.parametrize("asked", [None, 3])
def test_a_store_s_pair_decodes_with_its_number_in_any_thread(
    monkeypatch: pytest.MonkeyPatch, asked: int | None
) -> None:
    """Torch counts its threads for each thread of the program, and a recording is made in another one."""
    monkeypatch.setattr(store_module, "quickest_threads", lambda pair: 2)
    with PairStore(threads=asked).using(request_pair("builtin")) as load:
        pair = load.future.result()
    with ThreadPoolExecutor(1) as thread:
        trace = thread.submit(specdemo.run, pair, "Book a table.", specdemo.Settings(max_new_tokens=4)).result()
    assert trace.threads == (asked or 2)
    assert record(pair, None, [trace]).hardware.threads == (asked or 2)


@pytest.mark.parametrize("number", [99999, 0, 2.5, True])
def test_more_threads_than_processors_are_refused(number: object) -> None:
    """Guards the process: OpenMP ends it where it cannot start as many."""
    with pytest.raises(specdemo.SettingsError, match="threads: must be a whole number from 1 to 4, not"):
        PairStore(threads=number)
    pair = endless_pair("llama")
    told = specdemo.ModelPair(pair.target, pair.draft, threads=number)
    with pytest.raises(specdemo.SettingsError, match="threads: must be a whole number from 1 to 4, not"):
        specdemo.run(told, prompt_ids(4), specdemo.Settings(max_new_tokens=4))


def test_every_lane_of_a_race_runs_with_the_threads_of_its_own_pair_and_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards equal outputs of equal seeds: sums of other numbers of threads differ in their last digits."""
    models, used = endless_pair("llama"), set()
    pairs = [specdemo.ModelPair(models.target, models.draft, threads=number) for number in (1, None, 2)]
    original = LaneClock.lap

    def noting(self: LaneClock, phase: str) -> None:
        used.add((id(self), torch.get_num_threads()))
        original(self, phase)

    monkeypatch.setattr(LaneClock, "lap", noting)
    lanes = [
        specdemo.Settings(strategy=s, max_new_tokens=12) for s in ("autoregressive", "speculative", "assisted")
    ]
    racing = specdemo.race(pairs, prompt_ids(4), lanes)
    assert [trace.threads for trace in racing.traces()] == [None] * 3
    for _ in racing:
        assert torch.get_num_threads() == 4
    traces = racing.traces()
    assert [trace.threads for trace in traces] == [1, 4, 2]
    assert sorted(number for _, number in used) == [1, 2, 4]
    assert specdemo.Trace.from_json(traces[2].to_json()).threads == 2
    (row,) = specdemo.run_batch(pairs[2], [prompt_ids(4)], specdemo.Settings(max_new_tokens=4))
    assert (row.threads, torch.get_num_threads()) == (2, 4)
