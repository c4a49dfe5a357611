"""What all tests of the page have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from apps import launched
from gradio_client import Client

from specdemo.models.pair import ModelPair
from specdemo.runs.store import PairStore
from specdemo.ui.jobs.limits import PRIVATE
from specdemo.ui.jobs.queue import JobQueue


@pytest.fixture(autouse=True)
def true_ends(monkeypatch: pytest.MonkeyPatch) -> object:
    """What a pair's end tokens are, for tests that want them back.

    In all others runs last as long as their length says, whatever the builtin target has to answer to a prompt.
    """
    kept = ModelPair.eos_ids
    monkeypatch.setattr(ModelPair, "eos_ids", frozenset())
    return kept


@pytest.fixture(scope="module")
def store() -> PairStore:
    return PairStore()


@pytest.fixture(scope="module")
def queues() -> JobQueue:
    return JobQueue(PRIVATE, shared=True)


@pytest.fixture(scope="module")
def url(store: PairStore, queues: JobQueue) -> Iterator[str]:
    """An app of the module's own, whose models' thread and queue tests can look at."""
    with launched(store, queues) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Client:
    return Client(url, verbose=False, analytics_enabled=False)
