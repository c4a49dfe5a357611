"""Whether a server can follow settings and prompt at all; how they are sent is the engine's business."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specdemo.errors import PromptError, SettingsError
from specdemo.prompt import EMPTY, check_text, one_by_one, read_ids
from specdemo.servers.catalog import configured_pair
from specdemo.servers.engines.base import Wanted
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import ServedPair
from specdemo.settings import LLAMA_CPP, Settings


def wanted_of(pair: ServedPair, prompt: Any, settings: Settings) -> Wanted:
    """What a lane wants of a deployment, else a PromptError. Token ids are taken as they are."""
    if isinstance(prompt, str):
        check_text(prompt)
        chat = pair.chat if settings.chat is None else settings.chat
    else:
        prompt, chat = read_ids(prompt), False
        if not prompt:
            raise PromptError(EMPTY)
        if any(i < 0 for i in prompt):
            raise PromptError("token ids are not negative.")
        if settings.chat:
            raise PromptError("token ids cannot be put into a chat template; give text, or switch chat off.")
    return Wanted(pair.model_of(settings.strategy), prompt, chat, settings)


def server_of(pair: Any, settings: Settings) -> ServedPair:
    """The deployments that the settings name, or the pair itself; refuses what no server can do, and no server."""
    if settings.engine not in ("auto", "server", LLAMA_CPP if isinstance(pair, GgufPair) else "auto"):
        reason = f"{settings.engine!r} runs models here; choose 'auto' for a ServerPair or GGUF files."
        raise SettingsError("engine", reason)
    if settings.server is not None:
        pair = configured_pair(settings.server)
    if not isinstance(pair, ServedPair):
        reason = "the engine 'server' needs a specdemo.ServerPair, GGUF files or the name of a configured server."
        raise SettingsError("server", reason)
    pair.check(settings)
    return pair


def sweep_prompts(pair: Any, prompts: Any, settings: Settings) -> tuple[ServedPair, list[str | list[int]]]:
    """The deployments of a sweep, which needs both, and its prompts as they are sent."""
    found = server_of(pair, settings)
    found.check(replace(settings, strategy="autoregressive"))
    checked = [wanted_of(found, prompt, settings).prompt for prompt in one_by_one(prompts)]
    if not checked:
        raise PromptError("there is none; give at least one text to continue.")
    return found, checked
