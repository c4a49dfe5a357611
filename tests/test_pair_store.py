"""Pairs shared by visitors: loaded once, and all models in one thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from specdemo.decoding.runner import Runner
from specdemo.settings import Settings
from specdemo.ui.job import race_updates
from specdemo.ui.pairs import PairStore


def test_every_forward_of_every_visitor_runs_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two OpenMP teams would make small models two to three times slower, and nothing else would fail."""
    threads: set[int] = set()
    forward = Runner.forward

    def watched(self: Runner, *args: object, **kwargs: object) -> object:
        threads.add(threading.get_ident())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "forward", watched)
    store = PairStore()

    def visit(prompt: str) -> dict:
        lanes = [Settings(strategy="autoregressive", max_new_tokens=6), Settings(max_new_tokens=6)]
        updates = race_updates(store.thread, lambda: store.prefetch("builtin").result(), prompt, lanes, Event())
        return list(updates)[-1]

    with ThreadPoolExecutor(2) as visitors:
        ends = list(visitors.map(visit, ["Hello there.", "Tell me a story."]))
    assert [end["phase"] for end in ends] == ["done", "done"]
    assert threads == {store.thread.submit(threading.get_ident).result()}


def test_two_visitors_share_one_load() -> None:
    """A second load would double the memory and the wait."""
    store = PairStore()
    assert store.prefetch("builtin") is store.prefetch("builtin")
    assert store.prefetch("builtin").result() is store.prefetch("builtin").result()


def test_a_failed_load_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair that could not be loaded once must not stay broken until a restart."""
    calls = []

    def broken(name: str) -> None:
        calls.append(name)
        raise OSError("disk")

    monkeypatch.setattr("specdemo.ui.pairs.load_pair", broken)
    store = PairStore()
    for _ in range(2):
        with pytest.raises(OSError, match="disk"):
            store.prefetch("builtin").result()
    assert calls == ["builtin", "builtin"]
