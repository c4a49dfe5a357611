"""Loaded pairs, shared by all visitors; each is loaded once, in the background."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from specdemo.models.loading import load_pair
from specdemo.models.pair import ModelPair


class PairStore:
    """Hands out pairs by name; two visitors asking for one pair wait for one load."""

    def __init__(self) -> None:
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="load-pair")
        self._pairs: dict[str, Future[ModelPair]] = {}
        self._lock = Lock()

    def prefetch(self, name: str) -> Future[ModelPair]:
        """Start loading, or join the load under way. A load that failed is tried again."""
        with self._lock:
            known = self._pairs.get(name)
            if known is None or (known.done() and known.exception() is not None):
                self._pairs[name] = self._loader.submit(_load_warm, name)
            return self._pairs[name]


def _load_warm(name: str) -> ModelPair:
    pair = load_pair(name)
    pair.warm_up()
    return pair
