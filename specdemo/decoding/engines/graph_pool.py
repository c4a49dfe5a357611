"""The workspaces of a model: a lane that decodes by CUDA graphs leases one and leaves it to the next lane.

A capture takes tenths of a second, a lane often less. So workspaces are kept when their lanes end, a few for each
model and not too large ones, and go with the model.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary, finalize

from specdemo.decoding.engines import graph_capture
from specdemo.decoding.engines.graph_workspace import Failure, GraphWorkspace
from specdemo.decoding.engines.llama import LlamaModel
from specdemo.decoding.engines.llama_check import unsupported_reason
from specdemo.models.pair import device_of
from specdemo.models.request import is_zero_gpu
from specdemo.models.types import PreTrainedModel

MOST_IDLE = 4
"""Workspaces that wait for a lane: as many as a race may have lanes on one target."""
MOST_IDLE_BYTES = 512_000_000
"""Of the keys and values of a model's idle workspaces, together."""
CAPACITY_STEP = 256
"""Capacities are multiples of it, so that the next prompt, a little longer, finds one that fits."""


class Graphs:
    """The workspaces of one model, and what could not be captured of it; lanes of several threads may share it."""

    def __init__(self) -> None:
        self.failure: Failure | None = None  # that is for good
        self._model: LlamaModel | None = None
        self._weights: tuple[Any, ...] = ()
        self._idle: list[GraphWorkspace] = []
        # Reentrant: the garbage collector may end a lane, and so call give_back, in the midst of any call here.
        self._lock = threading.RLock()

    def take(self, model: PreTrainedModel, capacity: int) -> WorkspaceLease:
        """A workspace for ``capacity`` tokens, idle again when nobody holds the lease."""
        capacity = -(-capacity // CAPACITY_STEP) * CAPACITY_STEP
        weights = tuple((p.data_ptr(), p.shape, p.dtype) for p in model.parameters())
        with self._lock:
            if self._model is None or weights != self._weights:
                # Graphs read the memory that the weights were in when they were captured.
                self._model, self._weights, self._idle = LlamaModel(model), weights, []
            llama = self._model
            fitting = [workspace for workspace in self._idle if workspace.capacity >= capacity]
            if fitting:
                taken = min(fitting, key=lambda workspace: workspace.capacity)
                self._idle = [workspace for workspace in self._idle if workspace is not taken]
                return WorkspaceLease(self, taken)
        capture = graph_capture.capture_on(llama.device)
        return WorkspaceLease(self, GraphWorkspace(llama, capacity, capture))

    def give_back(self, workspace: GraphWorkspace) -> None:
        """Keep a workspace for the next lane, unless one failed; the workspaces that waited longest go first."""
        with self._lock:
            if workspace.model is not self._model or self.failure or workspace.failure:
                return
            idle = [*self._idle, workspace]
            while len(idle) > MOST_IDLE or sum(w.states.nbytes for w in idle) > MOST_IDLE_BYTES:
                idle.pop(0)
            self._idle = idle

    def fail(self, failure: Failure) -> None:
        """From now on this model decodes without graphs, if that is a reason for good."""
        with self._lock:
            if failure.lasting:
                self.failure, self._idle = failure, []


class WorkspaceLease:
    """Holds a workspace for one lane; several runners may hold one lease."""

    def __init__(self, graphs: Graphs, workspace: GraphWorkspace) -> None:
        self.graphs, self.workspace = graphs, workspace
        finalize(self, graphs.give_back, workspace).atexit = False


_of_models: WeakKeyDictionary[PreTrainedModel, Graphs] = WeakKeyDictionary()


def graphs_of(model: PreTrainedModel) -> Graphs:
    """A model's workspaces; they live as long as it does."""
    return _of_models.setdefault(model, Graphs())


def no_graphs_reason(model: PreTrainedModel) -> str | None:
    """Why ``model`` does not decode by CUDA graphs, in a few words; None if it does, as far as is known."""
    device = device_of(model)
    if not graph_capture.can_capture(device):
        return "graphs need a CUDA device"
    if is_zero_gpu():
        return "workers on ZeroGPU end too soon to capture graphs"
    known = _of_models.get(model)
    if known is not None and known.failure is not None:
        return str(known.failure)
    return unsupported_reason(model, device.type)
