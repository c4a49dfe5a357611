"""One lane from a prompt to its trace: ``stream`` gives it a round at a time, ``run`` whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

import torch

from specdemo.decoding.assisted import assisted
from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.drafters.registry import aux_layers_for, check_drafter, open_drafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.open import open_target
from specdemo.decoding.lane import Lane, RawRound, Texts, new_lane
from specdemo.decoding.recorder import Recorder
from specdemo.decoding.speculative import autoregressive, speculative
from specdemo.errors import SettingsError
from specdemo.models.memory import peak_memory
from specdemo.models.pair import ModelPair
from specdemo.rounds import Round
from specdemo.runs.encode import check_earlier, encode, models_here
from specdemo.runs.load import warm_up
from specdemo.runs.threads import decoding_threads
from specdemo.servers.pair import ServedPair, on_server
from specdemo.settings import LLAMA_CPP, Settings
from specdemo.trace import Trace

if TYPE_CHECKING:
    from specdemo.servers.lane import ServerLane

Prompt = str | Sequence[int]
OWN_DECODING = "transformers decodes this lane itself"


def run(
    pair: ModelPair | ServedPair | None, prompt: Prompt, settings: Settings | None = None, earlier: Texts = ()
) -> Trace:
    """Decode one prompt to the end.

    Args:
        pair: the models; or their deployments, or None if the settings name a configured server.
        prompt: text, or token ids taken as they are.
        settings: of the lane.
        earlier: token ids of earlier outputs, such as those of the turns before, which suffix decoding copies from
            too, and all others refuse; nothing is remembered between runs but what is given here.

    Raises:
        PromptError: the prompt is empty, too long or outside the vocabulary.
        SettingsError: the settings ask for what this pair does not have.
        ServerError: a server cannot be asked, or fails before its first token. What arrives before a later
            failure is kept: the trace is not complete, and ``trace.server.incomplete`` says why.
    """
    with closing(stream(pair, prompt, settings, earlier=earlier)) as lane:
        for _ in lane:
            pass
        return lane.trace()


def stream(
    pair: ModelPair | ServedPair | None,
    prompt: Prompt,
    settings: Settings | None = None,
    stop: Event | None = None,
    earlier: Texts = (),
) -> LocalLane | ServerLane:
    """The same run a round at a time. Closing the iterator frees its caches, or breaks off a server's answer.

    What ``run`` raises is raised here at once, not at the first round, but for what a server says to the request
    itself. A server's rounds are its chunks, their kinds unknown. The lane that is returned has its record so far
    in ``trace()``; of a server's, after the last round, what the rounds really were. ``stop`` ends a lane of
    transformers' own within one round; all others end when nobody asks them for more.
    """
    settings = checked(settings)
    if settings.engine == LLAMA_CPP:
        from specdemo.runs.beside import in_engine

        pair = in_engine(pair, settings)
    check_earlier(pair, settings, earlier)
    if on_server(pair, settings):
        from specdemo.servers.lane import ServerLane  # with the libraries that only servers need

        return ServerLane(pair, prompt, settings, stop)
    pair = models_here(pair)
    return LocalLane(pair, encode(pair, prompt, settings.chat, [settings]), settings, stop, earlier)


def checked(settings: Settings | None) -> Settings:
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError("settings", f"must be a specdemo.Settings, not {type(settings).__name__}.")
    return settings or Settings()


class LaneRecord:
    """What a lane, or a row of a batch, has given so far."""

    def __init__(self, pair: ModelPair, ids: Sequence[int], settings: Settings, residuals: bool = True) -> None:
        self.pair, self.ids, self.settings = pair, tuple(ids), settings
        self.rounds: list[Round] = []
        self._threads: int | None = None
        self._recorder = Recorder(Detokenizer(pair.tokenizer, ids), residuals)

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
    """One prompt decoded by a pair in memory: its rounds one at a time, and at any time its trace.

    ``stop`` ends transformers' own decoding, which cannot be left between two rounds.

    Raises:
        SettingsError: the settings ask for what this pair does not have.
    """

    def __init__(
        self,
        pair: ModelPair,
        ids: Sequence[int],
        settings: Settings,
        stop: Event | None = None,
        earlier: Texts = (),
    ) -> None:
        if settings.strategy != "autoregressive":
            check_drafter(pair, settings)
        self._record = LaneRecord(pair, ids, settings)
        self.ids = self._record.ids
        self._running: tuple[Runner, Drafter | None] | None = None
        self._engine = ""
        with decoding_threads(pair):
            warm_up(pair, settings.engine)
            self._steps: Any = self._open(pair, new_lane(pair, ids, settings, earlier=earlier), stop)

    def __next__(self) -> Round:
        with decoding_threads(self._record.pair):
            try:
                return self._record.add(next(self._steps))
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        self._engine, self._running = self._engine_now(), None
        self._steps.close()

    def trace(self) -> Trace:
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
