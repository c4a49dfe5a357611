"""Lanes side by side: each decodes as if it were alone, and the one whose clock is behind goes next."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from toys import endless_pair, prompt_ids, toy_pair

import specdemo
from specdemo import Settings, SettingsError
from specdemo.runs.race import _interleave

LANES = [
    Settings(strategy="autoregressive", max_new_tokens=30),
    Settings(gamma=3, max_new_tokens=30),
    Settings(gamma=5, max_new_tokens=20, acceptance="sampling", temperature=0.9, seed=4),
    Settings(strategy="autoregressive", max_new_tokens=20, temperature=0.9, seed=4),
]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_ids_in_a_race_are_those_of_each_lane_alone(family: str) -> None:
    """Guards against lanes that share a cache, a random generator or a model's mode."""
    pair = toy_pair(family)
    raced: list[list[int]] = [[] for _ in LANES]
    for lane, round_ in specdemo.race(pair, prompt_ids(6), LANES):
        raced[lane] += [t.id for t in round_.emitted]
    assert raced == [specdemo.run(pair, prompt_ids(6), settings).token_ids for settings in LANES]


class Scripted:
    """A lane whose clock is given, and that tells when it was closed."""

    def __init__(self, *clock: float, fails: bool = False) -> None:
        self.clock = list(clock)
        self.fails = fails
        self.closed = False

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return self

    def __next__(self) -> SimpleNamespace:
        if self.clock:
            return SimpleNamespace(seconds=self.clock.pop(0))
        if self.fails:
            raise RuntimeError("out of memory")
        raise StopIteration

    def close(self) -> None:
        self.closed = True


class Remote(Scripted):
    """A lane on a server: its rounds come by themselves, at their times on a clock that others move."""

    shares_machine = False

    def __init__(self, wall: list[float], *clock: float) -> None:
        super().__init__(*clock)
        self.wall, self.started = wall, False

    @property
    def elapsed(self) -> float:
        return self.wall[0]

    def start(self) -> None:
        self.started = True

    def wait(self, seconds: float) -> bool:
        self.wall[0] += seconds
        return not self.clock or self.clock[0] <= self.wall[0]


class Working(Scripted):
    """A lane here, whose work takes time that passes for everybody."""

    def __init__(self, wall: list[float], *clock: float) -> None:
        super().__init__(*clock)
        self.wall, self.done = wall, 0.0

    def __next__(self) -> SimpleNamespace:
        round_ = super().__next__()
        self.wall[0] += round_.seconds - self.done
        self.done = round_.seconds
        return round_


def test_a_servers_rounds_come_at_their_place_on_the_clock() -> None:
    """Guards mixed races: neither does a lane here stand still while a server thinks, nor is one held back."""
    wall = [0.0]
    here, there = Working(wall, *(0.06 * i for i in range(1, 9))), Remote(wall, 0.15, 0.31, 0.90)
    assert order(here, there) == [0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1]  # late by no more than a slice
    assert there.started
    assert wall[0] == pytest.approx(0.9, abs=0.03)  # waited for once nothing ran here any more


def order(*lanes: Scripted) -> list[int]:
    return [lane for lane, _ in _interleave(list(lanes))]


def test_the_lane_whose_clock_is_behind_goes_next() -> None:
    """Guards fairness with rounds longer than a slice: strictly by the clocks."""
    slow, fast = Scripted(1.0, 2.0, 3.0), Scripted(0.4, 0.8, 1.2, 1.6)
    assert order(slow, fast) == [0, 1, 1, 1, 0, 1, 0]


def test_a_lane_runs_for_a_slice_of_its_own_time() -> None:
    """Guards the slices of about a tenth of a second: short rounds go together, not a token each."""
    first = Scripted(*(0.03 * i for i in range(1, 9)))
    second = Scripted(*(0.03 * i for i in range(1, 9)))
    assert order(first, second) == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]


def test_a_lane_that_fails_closes_the_others() -> None:
    """Guards memory after an error in one lane, which reaches the caller as it is."""
    lanes = [Scripted(1.0, fails=True), Scripted(5.0, 6.0)]
    with pytest.raises(RuntimeError, match="out of memory"):
        list(_interleave(lanes))
    assert all(lane.closed for lane in lanes)


def test_closing_a_real_race_frees_all_caches(runners: Callable[[], list]) -> None:
    """Guards the same with real lanes: no runner may be alive afterwards."""
    race = specdemo.race(endless_pair("llama"), prompt_ids(6), LANES)
    for _ in range(3):
        next(race)
    assert len(runners()) == 6
    race.close()
    gc.collect()
    assert runners() == [None] * 6


@pytest.mark.parametrize("strategy", ["autoregressive", "speculative", "assisted"])
def test_a_lane_clock_stands_still_while_the_lane_is_suspended(strategy: str) -> None:
    """Guards every speed shown: the time a page takes to draw must not be booked on the lane."""
    rounds = specdemo.stream(endless_pair("llama"), prompt_ids(6), Settings(strategy=strategy, gamma=2))
    inside = clock = 0.0
    for _ in range(4):
        began = time.perf_counter()
        round_ = next(rounds)
        inside += time.perf_counter() - began
        assert round_.seconds <= inside + 1e-4, "the clock ran while the consumer slept"
        assert round_.draft_seconds + round_.verify_seconds + round_.other_seconds == pytest.approx(
            round_.seconds - clock, abs=1e-9
        )
        clock = round_.seconds
        time.sleep(0.2)
    rounds.close()
    assert clock > 0.0


def test_what_is_no_pair_no_settings_or_no_lane_gets_a_message() -> None:
    """Guards the likeliest slips: a pair's name, a dictionary of settings, an empty list of lanes."""
    pair = endless_pair("llama")
    with pytest.raises(specdemo.SpecDemoError, match=r"pair: must be a ModelPair, not str; get one with"):
        specdemo.run("builtin", "hi", Settings())
    with pytest.raises(SettingsError, match=r"settings: must be a specdemo\.Settings, not dict"):
        specdemo.run(pair, prompt_ids(6), {"gamma": 3})
    with pytest.raises(SettingsError, match="lanes: there are none"):
        specdemo.race(pair, prompt_ids(6), [])
    with pytest.raises(SettingsError, match="needs a draft model"):  # at once, not after the first lane has begun
        specdemo.race(
            specdemo.ModelPair(pair.target), prompt_ids(6), [Settings(strategy="autoregressive"), Settings()]
        )
