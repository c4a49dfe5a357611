"""One lane from a prompt to its trace: ``stream`` gives it a round at a time, ``run`` whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING

from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.rounds import Round
from specdemo.runs.encode import encode, models_here
from specdemo.runs.lane import LocalLane
from specdemo.servers.pair import ServerPair, on_server
from specdemo.settings import Settings
from specdemo.trace import Trace

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
    with closing(open_run(pair, prompt, settings)) as lane:
        for _ in lane:
            pass
        return lane.trace()


def stream(
    pair: ModelPair | ServerPair | None, prompt: Prompt, settings: Settings | None = None
) -> Iterator[Round]:
    """The same run a round at a time. Closing the iterator frees its caches, or breaks off a server's answer.

    What ``run`` raises is raised here at once, not at the first round, but for what a server says to the request
    itself. A server's rounds are its chunks, their kinds unknown. The lane that is returned has its record so far
    in ``trace()``; of a server's, after the last round, what the rounds really were.
    """
    return open_run(pair, prompt, settings)


def open_run(
    pair: ModelPair | ServerPair | None, prompt: Prompt, settings: Settings | None, stop: Event | None = None
) -> LocalLane | ServerLane:
    """The lane behind ``run``, ``stream`` and ``race``: here a prompt is encoded and a lane opened, once.

    ``stop`` ends a lane of transformers' own within one round; all others end when nobody asks them for more.
    """
    settings = checked(settings)
    if on_server(pair, settings):
        from specdemo.servers.lane import ServerLane  # with the libraries that only servers need

        return ServerLane(pair, prompt, settings)
    pair = models_here(pair)
    return LocalLane(pair, encode(pair, prompt, settings.chat, [settings]), settings, stop)


def checked(settings: Settings | None) -> Settings:
    """The settings, or all defaults."""
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError("settings", f"must be a specdemo.Settings, not {type(settings).__name__}.")
    return settings or Settings()
