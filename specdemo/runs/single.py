"""One lane from a prompt to its trace: ``stream`` gives it a round at a time, ``run`` whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from specdemo.decoding.assisted import assisted
from specdemo.decoding.autoregressive import autoregressive
from specdemo.decoding.clock import LaneClock
from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.drafters.registry import check_drafter, open_drafter
from specdemo.decoding.engines.open import engine_of, open_target
from specdemo.decoding.lane import Lane
from specdemo.decoding.recorder import Recorder
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.speculative import speculative
from specdemo.errors import SettingsError
from specdemo.models.memory import peak_memory
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.servers.pair import ServerPair, on_server
from specdemo.settings import Settings
from specdemo.trace import Round, Trace

if TYPE_CHECKING:
    from specdemo.servers.lane import ServerLane

Prompt = str | Sequence[int]


def run(pair: ModelPair | ServerPair | None, prompt: Prompt, settings: Settings | None = None) -> Trace:
    """Decode one prompt to the end.

    Args:
        pair: the models; or their deployments, or None if the settings name a configured server.
        prompt: text, or token ids taken as they are.
        settings: of the lane.

    Raises:
        PromptError: the prompt is empty, too long or outside the vocabulary.
        SettingsError: the settings ask for what this pair does not have.
        ServerError: a server cannot be asked, or fails before its first token. What arrives before a later
            failure is kept: the trace is not complete, and ``trace.server.incomplete`` says why.
    """
    settings = checked(settings)
    if on_server(pair, settings):
        with closing(open_server_lane(pair, prompt, settings)) as lane:
            for _ in lane:
                pass
            return lane.trace()
    ids = encode(pair, prompt, settings.chat)
    return trace_of(pair, ids, settings, tuple(stream(pair, ids, settings)))


def stream(
    pair: ModelPair | ServerPair | None, prompt: Prompt, settings: Settings | None = None
) -> Iterator[Round]:
    """The same run a round at a time. Closing the generator frees its caches, or breaks off a server's answer.

    What ``run`` raises is raised here at once, not at the first round, but for what a server says to the request
    itself. A server's rounds are its chunks, their kinds unknown; the :class:`specdemo.servers.lane.ServerLane`
    that is returned has what they really were in its ``trace()``, after the last one.
    """
    settings = checked(settings)
    if on_server(pair, settings):
        return open_server_lane(pair, prompt, settings)
    ids = encode(pair, prompt, settings.chat)
    if settings.strategy != "autoregressive":
        check_drafter(pair, settings)
    pair.warm_up(settings.engine)
    lane = open_lane(pair, ids, settings, lane_clock(pair))
    if settings.strategy == "assisted":
        return assisted(lane, pair.target, pair.draft if settings.drafter == "model" else None)
    target = open_target(pair.target, lane)
    if settings.strategy == "autoregressive":
        return autoregressive(lane, target)
    return speculative(lane, target, open_drafter(pair, target, lane))


def open_server_lane(pair: Any, prompt: Prompt, settings: Settings) -> ServerLane:
    """A lane on the server that the pair or the settings name."""
    from specdemo.servers.lane import ServerLane  # with the libraries that only servers need

    return ServerLane(pair, prompt, settings)


def checked(settings: Settings | None) -> Settings:
    """The settings, or all defaults."""
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError("settings", f"must be a specdemo.Settings, not {type(settings).__name__}.")
    return settings or Settings()


def trace_of(
    pair: ModelPair,
    prompt_ids: Sequence[int],
    settings: Settings,
    rounds: Sequence[Round],
    engine: str | None = None,
) -> Trace:
    """The record of a lane from the rounds it gave, all of them or the first ones.

    ``engine``: what ran it; None asks what runs a single lane of these settings.
    """
    return Trace(
        settings,
        tuple(prompt_ids),
        tuple(rounds),
        pair=pair.name,
        dtype=pair.dtype,
        quantization=pair.quantization,
        peak_memory=peak_memory(pair.device),
        engine=engine or engine_of(pair, settings),
    )


def lane_clock(pair: ModelPair) -> LaneClock:
    """A clock that waits for all devices of a pair."""
    models = [m for m in (pair.target, pair.draft) if m is not None]
    return LaneClock(*(m.get_input_embeddings().weight.device for m in models))


def open_lane(pair: ModelPair, ids: Sequence[int], settings: Settings, clock: LaneClock) -> Lane:
    """The state of a lane that has not begun."""
    room = settings.max_new_tokens if pair.context is None else pair.context - len(ids)
    return Lane(
        settings=settings,
        prompt_ids=ids,
        eos_ids=pair.eos_ids,
        budget=min(settings.max_new_tokens, room),
        limited_by="length" if settings.max_new_tokens <= room else "context",
        sampler=Sampler(settings, pair.vocabulary, pair.device),
        clock=clock,
        recorder=Recorder(Detokenizer(pair.tokenizer, ids), settings.top_candidates),
    )
