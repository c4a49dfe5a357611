"""One losslessness check for one visitor: its runs take turns in the models' thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event

from specdemo.errors import LoadCancelled, SpecDemoError
from specdemo.losslessness.certificate import Certificate
from specdemo.losslessness.certify import Certifier, check_greedy
from specdemo.losslessness.greedy_check import GreedyCheck
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.single import stream
from specdemo.runs.store import Load
from specdemo.settings import Settings
from specdemo.ui.jobs.gpu_time import decode_seconds
from specdemo.ui.jobs.stops import reason_of
from specdemo.ui.jobs.worker import in_thread, named
from specdemo.ui.jobs.zero_gpu import on_gpu
from specdemo.view.progress_text import await_load

UPDATE_SECONDS = 0.5
MEMORY = "Memory ran out. Choose fewer tokens, a smaller pair or a quantisation, and check again."
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a visitor wants checked; ``runs`` and ``tokens`` are those of :func:`specdemo.certify`."""

    prompt: str
    settings: Settings
    runs: int
    tokens: int

    @property
    def seconds(self) -> float:
        """What it takes on a large GPU, roughly."""
        if self.settings.greedy:
            return decode_seconds(self.settings)
        settings = replace(self.settings, max_new_tokens=self.tokens)
        plain = replace(settings, strategy="autoregressive")
        return self.runs * (decode_seconds(plain) + decode_seconds(settings))


@dataclass(frozen=True, slots=True)
class CheckState:
    """Where a check stands.

    Attributes:
        phase: ``loading``, ``running``, ``done``, ``stopped`` or ``error``; the last three end it.
        message: a line for people, where there is no result to show or it is not whole.
        result: what is known so far.
    """

    phase: str
    message: str = ""
    result: Certificate | GreedyCheck | None = None


@on_gpu(lambda plan: plan.seconds)
def check_states(thread: Executor, load: Load, plan: Plan, stop: Event) -> Iterator[CheckState]:
    """Check in ``thread``, a pair of runs or a round a job, so that other visitors' runs come in between.

    Errors a person can cause, and any other, end as a message, with what is known until then. Setting ``stop`` or
    closing the generator ends decoding within one job.
    """
    state = CheckState("loading")
    try:
        for text in await_load(load, stop):
            yield CheckState("loading", text)
        states = _greedy if plan.settings.greedy else _certificate
        for state in states(thread, load.future.result(), plan, stop):
            yield state
        return
    except SpecDemoError as error:
        message = str(error)
    except Exception as error:
        message = f"The check failed: {named(error)}. Press Check to try again."
        if out_of_memory(error):
            message = MEMORY
        else:
            _log.exception("a losslessness check failed")
    yield CheckState("error", message, state.result)


def _certificate(thread: Executor, pair: ModelPair, plan: Plan, stop: Event) -> Iterator[CheckState]:
    yield CheckState("running", "Waiting for a turn…")
    # In the models' thread, since the models may be tried for what they can do.
    certifier = in_thread(thread, Certifier, pair, plan.prompt, plan.settings, plan.runs, plan.tokens)
    told = 0.0
    while not certifier.done and not stop.is_set():
        in_thread(thread, certifier.step)
        if time.monotonic() - told >= UPDATE_SECONDS and not certifier.done:
            told = time.monotonic()
            yield CheckState("running", result=certifier.certificate())
    yield _ended(certifier.done, certifier.certificate(), stop)


def _greedy(thread: Executor, pair: ModelPair, plan: Plan, stop: Event) -> Iterator[CheckState]:
    ids = encode(pair, plan.prompt, plan.settings.chat)
    emitted = 0
    yield CheckState("running", "Decoding…")
    with closing(in_thread(thread, stream, pair, ids, plan.settings)) as decoding:
        told = time.monotonic()
        while not stop.is_set():
            round_ = in_thread(thread, next, decoding, None)
            if round_ is None:
                break
            emitted += len(round_.emitted)
            if time.monotonic() - told >= UPDATE_SECONDS:
                told = time.monotonic()
                yield CheckState("running", f"Decoding: {emitted} of {plan.settings.max_new_tokens} tokens…")
    if not emitted:
        raise LoadCancelled("Stopped before the first token. Press Check to start again.")
    # Dropped caches are freed here; the check reads the finished text in one forward.
    trace = decoding.trace()
    result = in_thread(thread, check_greedy, pair, trace)
    yield _ended(trace.complete, result, stop)


def _ended(whole: bool, result: Certificate | GreedyCheck, stop: Event) -> CheckState:
    return CheckState("done" if whole else "stopped", "" if whole else reason_of(stop, "Stopped."), result)
