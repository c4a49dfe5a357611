"""The seats of a model: who decodes by CUDA graphs takes one, and leaves it to the next lane.

A capture takes tenths of a second, a lane often less. So seats are kept when their lanes end, a few for each model
and not too large ones, and go with the model.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, finalize

from specdemo.decoding.engines import graph_capture
from specdemo.decoding.engines.graph_model import StaticModel
from specdemo.decoding.engines.graph_workspace import Seat
from specdemo.decoding.engines.llama_check import obstacle
from specdemo.models.request import is_zero_gpu

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_IDLE = 4
"""Seats that wait for a lane: as many as a race may have lanes on one target."""
MOST_IDLE_BYTES = 512_000_000
"""Of the keys and values of a model's waiting seats, together."""
ROOM_STEP = 256
"""Rooms are whole multiples of it, so that the next prompt, a little longer, finds one that fits."""
WORKER = "workers on ZeroGPU end too soon to capture graphs"


class Graphs:
    """The seats of one model, and what could not be captured of it.

    Attributes:
        failure: why the model's forwards could not be captured; None while nothing failed.
        stepwise: why drafts of several steps could not, by the chooser's recipe.
    """

    def __init__(self) -> None:
        self.failure: str | None = None
        self.stepwise: dict[Hashable, str] = {}
        self._model: StaticModel | None = None
        self._weights: tuple[Any, ...] = ()
        self._idle: list[Seat] = []
        # A lane may end wherever its last reference goes, in the midst of this too.
        self._lock = threading.RLock()

    def take(self, model: PreTrainedModel, room: int) -> Lease:
        """A seat for ``room`` tokens, free again when nobody holds the lease."""
        room = -(-room // ROOM_STEP) * ROOM_STEP
        weights = tuple((p.data_ptr(), p.shape, p.dtype) for p in model.parameters())
        if self._model is None or weights != self._weights:
            # Graphs read the memory that the weights were in when they were captured.
            self._model, self._weights, self._idle = StaticModel(model), weights, []
        with self._lock:
            fitting = sorted((s for s in self._idle if s.room >= room), key=lambda s: s.room)
            if fitting:
                self._idle.remove(fitting[0])
                return Lease(self, fitting[0])
        made = graph_capture.capture_on(self._model.device)
        if made is None:
            raise ValueError(f"nothing can be captured on {self._model.device}")
        return Lease(self, Seat(self._model, room, made))

    def give_back(self, seat: Seat) -> None:
        """Keep a seat for the next lane, if there is room; the ones that waited longest go first."""
        if seat.failure is not None:
            self.fail(seat.failure)
        if seat.model is not self._model or self.failure is not None:
            return
        with self._lock:
            self._idle.append(seat)
            while len(self._idle) > MOST_IDLE or sum(s.slots.held for s in self._idle) > MOST_IDLE_BYTES:
                self._idle.pop(0)

    def fail(self, reason: str) -> None:
        """From now on this model decodes without graphs."""
        self.failure = f"a graph could not be captured ({reason})"
        self._idle = []


class Lease:
    """Holds a seat for one lane; several runners may hold one lease."""

    def __init__(self, graphs: Graphs, seat: Seat) -> None:
        self.graphs, self.seat = graphs, seat
        finalize(self, graphs.give_back, seat).atexit = False


_of_models: WeakKeyDictionary[PreTrainedModel, Graphs] = WeakKeyDictionary()


def graphs_of(model: PreTrainedModel) -> Graphs:
    """A model's seats; they live as long as it does."""
    return _of_models.setdefault(model, Graphs())


def graphs_obstacle(model: PreTrainedModel) -> str | None:
    """Why ``model`` does not decode by CUDA graphs, in a few words; None if it does, as far as is known."""
    device = model.get_input_embeddings().weight.device
    if not graph_capture.can_capture(device):
        return "graphs need a CUDA device"
    if is_zero_gpu():
        return WORKER
    known = _of_models.get(model)
    if known is not None and known.failure is not None:
        return known.failure
    return obstacle(model, device.type)
