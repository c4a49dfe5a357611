"""A lane that runs here: its rounds one at a time, and at any time its trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import torch

from specdemo.decoding.assisted import assisted
from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.drafters.registry import aux_layers_for, check_drafter, open_drafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.open import open_target
from specdemo.decoding.lane import Lane, RawRound, new_lane
from specdemo.decoding.recorder import Recorder
from specdemo.decoding.speculative import autoregressive, speculative
from specdemo.models.memory import peak_memory
from specdemo.models.pair import ModelPair
from specdemo.rounds import Round
from specdemo.runs.threads import decoding_threads
from specdemo.runs.warm_up import warm_up
from specdemo.settings import Settings
from specdemo.trace import Trace

OWN_DECODING = "transformers decodes this lane itself"


class LaneRecord:
    """What a lane has given so far; rows of a batch are such lanes too.

    Args:
        pair: the models.
        ids: of the prompt.
        settings: of the lane.
    """

    def __init__(self, pair: ModelPair, ids: Sequence[int], settings: Settings) -> None:
        self.pair, self.ids, self.settings = pair, tuple(ids), settings
        self.rounds: list[Round] = []
        self._threads: int | None = None
        self._recorder = Recorder(Detokenizer(pair.tokenizer, ids))

    def add(self, raw: RawRound) -> Round:
        """Write down a round, in the thread that decoded it."""
        self._threads = torch.get_num_threads()
        self.rounds.append(self._recorder.record(raw))
        return self.rounds[-1]

    def trace(self, engine: str) -> Trace:
        """The record of the rounds until now; ``engine``: what ran them."""
        return Trace(
            self.settings,
            self.ids,
            tuple(self.rounds),
            pair=self.pair.name,
            dtype=self.pair.dtype,
            quantization=self.pair.quantization,
            peak_memory=peak_memory(self.pair.device),
            engine=engine,
            threads=self._threads,
        )


class LocalLane(Iterator[Round]):
    """One prompt decoded by a pair in memory.

    Args:
        pair: the models.
        ids: of the prompt.
        settings: of the lane.
        stop: ends transformers' own decoding, which cannot be left between two rounds.

    Raises:
        SettingsError: the settings ask for what this pair does not have.
    """

    def __init__(self, pair: ModelPair, ids: Sequence[int], settings: Settings, stop: Event | None = None) -> None:
        if settings.strategy != "autoregressive":
            check_drafter(pair, settings)
        self._record = LaneRecord(pair, ids, settings)
        self._running: tuple[Runner, Drafter | None] | None = None
        self._engine = ""
        with decoding_threads(pair):
            warm_up(pair, settings.engine)
            self._steps: Any = self._open(pair, new_lane(pair, ids, settings), stop)

    @property
    def ids(self) -> tuple[int, ...]:
        """Of the prompt."""
        return self._record.ids

    def __next__(self) -> Round:
        with decoding_threads(self._record.pair):
            try:
                return self._record.add(next(self._steps))
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Free the caches."""
        self._engine, self._running = self._engine_now(), None
        self._steps.close()

    def trace(self) -> Trace:
        """What it did so far."""
        return self._record.trace(self._engine_now())

    def _open(self, pair: ModelPair, lane: Lane, stop: Event | None) -> Iterator[RawRound]:
        settings = lane.settings
        if settings.strategy == "assisted":
            self._engine = f"eager: {OWN_DECODING}" if settings.engine == "graphs" else "eager"
            draft = pair.draft if settings.needs == "draft" else None
            return assisted(lane, pair.target, draft, stop)
        target = open_target(pair.target, lane, aux_layers_for(pair, settings))
        if settings.strategy == "autoregressive":
            self._running = target, None
            return autoregressive(lane, target)
        drafter = open_drafter(pair, target, lane)
        self._running = target, drafter
        return speculative(lane, target, drafter)

    def _engine_now(self) -> str:
        """What runs it, told by the runners themselves; once it has ended, what ran it."""
        if self._running is None:
            return self._engine
        target, drafter = self._running
        if drafter is None or drafter.engine in (None, target.engine):
            return target.engine
        # The target's own first layers run as it does, but for how their drafts could be captured.
        if drafter.engine.startswith(f"{target.engine}:"):
            return drafter.engine
        return f"target {target.engine}, draft {drafter.engine}"
