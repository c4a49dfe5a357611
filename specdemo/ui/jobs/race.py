"""One race, in the models' thread or beside it: decoding never waits for the browser."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from threading import Event
from typing import Any

from specdemo.errors import SpecDemoError
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.recording import Recording
from specdemo.runs.encode import encode, pieces
from specdemo.runs.race import Race, race
from specdemo.runs.record import record
from specdemo.runs.store import Load
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.ui.jobs.gpu_time import decode_seconds
from specdemo.ui.jobs.stops import reason_of
from specdemo.ui.jobs.worker import gathered, named
from specdemo.ui.jobs.zero_gpu import on_gpu
from specdemo.view.lane_headers import lane_headers
from specdemo.view.progress_text import await_load
from specdemo.view.race_value import RaceView

STOPPED = "Stopped. Press Run to start again."
BROKEN_OFF = "An answer broke off; what came until then is kept, and its lane says why. Press Run to try again."
BUSY = "The run could not begin: too many are waiting, or a value is not valid. Check the panel, then try again."
MEMORY = "Memory ran out. Choose fewer lanes, a shorter length, a smaller pair or a quantisation, and press Run."
_log = logging.getLogger(__name__)


def waiting(lanes: list[dict[str, Any]]) -> dict[str, Any]:
    """The view of a run that waits for its turn."""
    return RaceView(lanes, phase="loading", message="Waiting for a turn…").value()


def wait_updates(lanes: list[dict[str, Any]], told: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The view of the same run while it is told what it waits for."""
    view = RaceView(lanes, phase="loading")
    for view.message in told:
        yield view.value()


def failed(message: str) -> dict[str, Any]:
    """The view of a run that could not begin."""
    return RaceView([], phase="error", message=message).value()


@on_gpu(lambda prompt, lanes: sum(map(decode_seconds, lanes)))
def race_updates(
    thread: Executor,
    loads: Sequence[Load | None],
    prompt: str,
    lanes: list[Settings],
    stop: Event,
    keep: Callable[[Recording], object] = lambda recording: None,
) -> Iterator[dict[str, Any]]:
    """Run a race in ``thread`` and yield view values about ten times a second, the last one final.

    Args:
        thread: where models run; for servers alone any other (:func:`specdemo.ui.jobs.server_jobs.place_of`).
        loads: the pair of each lane, there or on its way; None for a lane on a server.
        prompt: for all lanes.
        lanes: the settings of each.
        stop: ends the run, the wait for the pairs included.
        keep: is handed the recording of a run in which every lane got somewhere, before the last value.

    Errors a person can cause, and any other, end as a message in the view. Setting ``stop`` or closing the
    generator ends decoding within one round, and breaks off what servers still send.
    """
    view = RaceView(lane_headers(lanes, [load and load.request.target_quantization for load in loads]))
    try:
        yield from _wait(view, list(filter(None, loads)), stop)
        pairs = [load and load.future.result() for load in loads]
        job = _Job(pairs, prompt, lanes, stop)
        job.show_prompt(view)
        view.phase, view.message = "running", None
        yield from job.updates(view, thread)
        if view.figures:
            keep(record(job.here, prompt, job.traces))
    except SpecDemoError as error:
        view.phase, view.message = "error", str(error)
    except Exception as error:
        if out_of_memory(error):
            view.phase, view.message = "error", MEMORY
            yield view.value()
            return
        _log.exception("a race failed")
        view.phase, view.message = "error", f"The run failed: {named(error)}. Press Run to try again."
    if view.phase != "running":
        yield view.value()


def _wait(view: RaceView, loads: Sequence[Load], stop: Event) -> Iterator[dict[str, Any]]:
    """The page says how far the load is instead of standing still.

    Raises:
        LoadCancelled: stopped meanwhile; the load goes on if others wait for it.
    """
    view.phase = "loading"
    for load in dict.fromkeys(loads):
        for view.message in await_load(load, stop):
            yield view.value()


class _Job:
    """A race under way, and what it gave so far."""

    def __init__(self, pairs: list[ModelPair | None], prompt: str, lanes: list[Settings], stop: Event) -> None:
        self._pairs, self._prompt, self._lanes, self._stop = pairs, prompt, lanes, stop
        self.here = next(filter(None, pairs), None)  # the first pair that runs here
        self._race: Race | None = None
        self.traces: list[Trace] = []  # once it is over

    def show_prompt(self, view: RaceView) -> None:
        """
        Raises:
            PromptError: a lane here cannot decode it.
        """
        if self.here is not None:
            ids = encode(self.here, self._prompt, self._lanes[0].chat)  # the panel has one switch for all lanes
            view.show_prompt(self._lanes, pieces(self.here, ids))

    def updates(self, view: RaceView, thread: Executor) -> Iterator[dict[str, Any]]:
        """Decode in ``thread``; yields ``view`` as it fills, but for its last state, which has the verdict."""
        with closing(gathered(thread, self._begin, self._stop)) as updates:
            try:
                for news in updates:
                    view.add(news)
                    yield view.value()
            except GeneratorExit:  # nobody looks on, and the thread may be waiting for a server
                self._stop.set()
                raise
        self._conclude(view)

    def _begin(self) -> Race:
        # As text: a server has a tokenizer and a chat template of its own.
        self._race = race(self._pairs, self._prompt, self._lanes, self._stop)
        return self._race

    def _conclude(self, view: RaceView) -> None:
        self.traces = self._race.traces()
        view.settle(self.traces)
        broken = any(t.server and t.server.incomplete for t in self.traces)
        if all(t.complete for t in self.traces):
            view.phase, view.message = "done", None
        elif broken and not self._stop.is_set():
            view.phase, view.message = "stopped", BROKEN_OFF
        else:
            view.phase, view.message = "stopped", reason_of(self._stop, STOPPED)
        if all(t.rounds for t in self.traces):
            view.conclude(self.traces)
