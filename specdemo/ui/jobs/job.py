"""What a job is: the one contract behind race, sweep, batch and losslessness test; and how long its runs take."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from threading import Event, Lock
from time import monotonic
from typing import Any

from specdemo.drafters import only_copies
from specdemo.errors import SpecDemoError
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.models.request import PairRequest
from specdemo.runs.store import PairStore
from specdemo.servers.catalog import shares_machine
from specdemo.settings import LLAMA_CPP, Settings
from specdemo.trace import Trace
from specdemo.ui.jobs.worker import named
from specdemo.view.progress_text import await_load

WAITING = "Waiting for a turn…"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaneRequest:
    """One lane of a run: its settings, and the pair that decodes it; None on a server."""

    settings: Settings
    pair: PairRequest | None


@dataclass(frozen=True, slots=True)
class JobState:
    """How far a job is."""

    phase: str  # ``loading``, ``running``, ``done``, ``stopped`` or ``error``; the last three end the job
    message: str = ""  # a line for people, may be empty
    fraction: float = 0.0  # from 0 to 1
    result: Any = None  # what is known so far, of the job's own kind; None where nothing new is known

    @property
    def ended(self) -> bool:
        return self.phase not in ("loading", "running")


class Job(ABC):
    """What a visitor asks for. It can be pickled, since on ZeroGPU another process runs it."""

    kind: str  # names the queue in which it waits
    noun: str  # what people call it, for messages
    lane: LaneRequest  # what it measures; a race has several, and says its pairs itself
    pace = 0.0  # seconds at least between two of its states while it runs

    @property
    def first(self) -> Any:
        """The result that is shown before it runs."""
        return None

    @property
    def on_server_here(self) -> bool:
        """Whether a server that computes on this machine decodes any of it."""
        by_llama = any(pair.is_gguf for pair in self.pairs if pair)
        by_llama = by_llama or any(each.settings.engine == LLAMA_CPP for each in self.work)
        return by_llama or any(shares_machine(each.settings) for each in self.work)

    @property
    def pairs(self) -> Sequence[PairRequest | None]:
        """The pairs that it runs on; None where a server decodes. Without any it needs no models here."""
        return [self.lane.pair]

    @property
    @abstractmethod
    def work(self) -> Sequence[Work]:
        """The runs that it makes at most, for what they will take."""

    @property
    def gpu_seconds(self) -> float:
        """Seconds that it takes on a large GPU, roughly; rows of a batch take no longer than one."""
        return sum(each.times * decode_seconds(each.settings) for each in self.work)

    @abstractmethod
    def states(self, pairs: Sequence[ModelPair | None], thread: Executor, stop: Event) -> Generator[JobState]:
        """Run it: its states, the last one final. It ends within one round once ``stop`` is set.

        The models, in ``pairs``, run in ``thread``, while the calling thread waits.
        """


def load_pairs(
    job: Job, store: PairStore, stop: Event, stack: ExitStack
) -> Generator[JobState, None, list[ModelPair | None]]:
    """Wait for a job's pairs, which stay in memory until ``stack`` is left; raises what ended a load."""
    requests = dict.fromkeys(filter(None, job.pairs))
    loads = {request: stack.enter_context(store.using(request)) for request in requests}
    for load in loads.values():
        for text in await_load(load, stop):
            yield JobState("loading", text)
    return [loads[request].future.result() if request else None for request in job.pairs]


def until_the_end(job: Job, states: Generator[JobState], stop: Event) -> Generator[JobState]:
    """The states of a job, at its pace; an error ends them with one that has its message and the last result.

    Closing this iterator, as happens when the visitor leaves, sets ``stop``.
    """
    state, told = JobState("loading", WAITING), -math.inf
    with closing(states):
        try:
            state = replace(state, result=job.first)
            for new in states:
                state = new if new.result is not None else replace(new, result=state.result)
                if new.phase == "running":
                    if monotonic() - told < job.pace:
                        continue
                    told = monotonic()
                yield state
            return
        except GeneratorExit:
            stop.set()  # before ``states`` is closed: its thread may be waiting for a server
            raise
        except SpecDemoError as error:
            message = str(error)
        except Exception as error:
            message = (
                "Memory ran out. Choose fewer lanes or tokens, a smaller pair or a quantisation, and run it again."
            )
            if not out_of_memory(error):
                _log.exception("a %s failed", job.noun)
                message = f"The {job.noun} failed: {named(error)}. Run it again."
    yield replace(state, phase="error", message=message)


STEP_SECONDS = 0.03  # a forward of a model of 4 to 8 billion parameters in 16 bit, without a compiler
DRAFT_SHARE = 0.5  # of that, a step of its draft
TOKENS_A_ROUND = 2
"""What drafting gives at least where it is worth a try; who drafts worse takes longer than was asked for."""
LOAD_SECONDS = 10  # for the weights on their way to the GPU, and the first, slow forward
SHORTEST, LONGEST = 15, 120
"""Bounds of what is asked for. A visitor without an account has two minutes of ZeroGPU a day, with a free account
three and a half, and what is asked for must be left of it."""
PREFILL = 3  # what the prefill of a run takes, in tokens; roughly
ROW_COST = 0.15  # what one more row adds to a step of a batch, in steps of one row; roughly


@dataclass(frozen=True, slots=True)
class Work:
    """Runs of one kind: their settings, how often they are made, and the rows that each decodes together."""

    settings: Settings
    times: int = 1
    rows: int = 1


def decode_seconds(settings: Settings) -> float:
    """Seconds of one run on a large GPU, roughly and rather too long than too short; none of one on a server."""
    if settings.engine == "server":
        return 0.0
    if settings.strategy == "autoregressive":
        return settings.max_new_tokens * STEP_SECONDS
    steps = 0 if only_copies(settings.drafter) else settings.gamma  # copying takes no time on a GPU
    return settings.max_new_tokens / TOKENS_A_ROUND * STEP_SECONDS * (1 + DRAFT_SHARE * steps)


def gpu_seconds(work: float) -> int:
    """What to ask for, for so many seconds of decoding."""
    return min(max(math.ceil(LOAD_SECONDS + work), SHORTEST), LONGEST)


class Paces:
    """Seconds a token by pair, plain and drafted, as the last race of anyone on this app measured them."""

    def __init__(self) -> None:
        self._paces: dict[tuple[str, bool], float] = {}
        self._lock = Lock()

    def learn(self, pair: str, seconds: float, *, drafted: bool) -> None:
        with self._lock:
            self._paces[pair, drafted] = seconds

    def learn_race(self, traces: tuple[Trace, ...]) -> None:
        """Remember what the lanes of a race that ran here took, their prefills included."""
        for trace in traces:
            if trace.server is None and trace.output:
                drafted = trace.settings.strategy != "autoregressive"
                self.learn(trace.pair, trace.rounds[-1].seconds / len(trace.output), drafted=drafted)

    def seconds(self, pair: str, work: Iterable[Work]) -> float | None:
        """What these runs take at most, roughly; None where the pair has not run yet.

        Where only plain or only drafted ones ran before, they stand for both.
        """
        with self._lock:
            slow, fast = (self._paces.get((pair, kind)) for kind in (False, True))
        slow, fast = slow or fast, fast or slow
        if slow is None or fast is None:
            return None
        found = 0.0
        for each in work:
            pace = slow if each.settings.strategy == "autoregressive" else fast
            tokens = each.settings.max_new_tokens + PREFILL
            found += pace * each.times * tokens * (1 + (each.rows - 1) * ROW_COST)
        return found
