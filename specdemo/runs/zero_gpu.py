"""Pairs on ZeroGPU, where this program has no GPU and the workers forked from it have one for a while."""

from __future__ import annotations

from specdemo.models.loading import assemble
from specdemo.models.pair import ModelPair
from specdemo.models.preflight import Preflight
from specdemo.models.request import PairRequest
from specdemo.runs.store import Load, PairStore

_before_launch: dict[PairRequest, ModelPair] = {}
"""Pairs that forked workers inherit; a plain dict, since a lock could be held while a worker is forked."""


class ZeroGpuStore(PairStore):
    """Loads the pairs requested before the launch, and only downloads those requested later.

    ZeroGPU emulates CUDA in the thread that imported ``spaces``: it keeps what is put on ``cuda`` there until the
    launch, and gives it to every worker. This process cannot compute with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._here: Load | None = None

    def preload(self, request: PairRequest) -> Load:
        """Load a pair in the calling thread, which must be the one that imported ``spaces``."""
        load = Load(request)
        with self._lock:
            self._loads[request] = load
        self._here = load
        self._load(load)
        load.future.result()
        return load

    def _finish(self, load: Load, report: Preflight) -> None:
        if load is self._here:
            pair = assemble(report, load.progress)
            _before_launch[load.request] = pair
            load.finish(pair)
        else:
            load.weights = {model.role: model.weights for model in report.models}
            load.place = "Fetched for the next run on the GPU"
            load.future.set_result(None)


def worker_store() -> PairStore:
    """A worker's own store: it holds the pairs loaded before the launch, and loads others when needed."""
    store = PairStore()
    for request, pair in _before_launch.items():
        store.adopt(request, pair)
    return store
