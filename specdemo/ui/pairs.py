"""Loaded pairs, shared by all visitors; each is loaded once, in the background, where it will also decode."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from specdemo.models.loading import load_pair
from specdemo.models.pair import ModelPair


class PairStore:
    """Hands out pairs by name; two visitors asking for one pair wait for one load.

    Attributes:
        thread: the one thread that runs models. OpenMP keeps a team of cores for every thread that ever
            computed; as soon as there are two teams, they have more threads than the machine has cores and
            sleep at every barrier, which makes a small model two to three times slower.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="models")
        self._pairs: dict[str, Future[ModelPair]] = {}
        self._lock = Lock()

    def prefetch(self, name: str) -> Future[ModelPair]:
        """Start loading, or join the load under way. A load that failed is tried again."""
        with self._lock:
            known = self._pairs.get(name)
            if known is None or (known.done() and known.exception() is not None):
                self._pairs[name] = self.thread.submit(_load_warm, name)
            return self._pairs[name]


def _load_warm(name: str) -> ModelPair:
    pair = load_pair(name)
    pair.warm_up()
    return pair
