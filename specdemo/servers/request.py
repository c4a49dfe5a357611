"""What is sent to a server: settings as OpenAI's parameters, and what of the settings a server cannot follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.errors import PromptError, SettingsError
from specdemo.prompt import EMPTY, check_text, one_by_one, read_ids
from specdemo.servers.catalog import configured_pair
from specdemo.servers.pair import ServerPair
from specdemo.settings import Settings

Prompt = str | Sequence[int]
HERE = "run that lane here instead, with a ModelPair."


def server_of(pair: Any, settings: Settings) -> ServerPair:
    """The deployment that the settings name, or the pair itself.

    Raises:
        SettingsError: the settings ask for what no server can do, or name no server.
        ServerError: the server they name is not configured, or has no deployment for the strategy.
    """
    if settings.engine not in ("auto", "server"):
        raise SettingsError(
            "engine", f"{settings.engine!r} runs models here; a ServerPair takes 'server' or 'auto'."
        )
    if settings.server is not None:
        pair = configured_pair(settings.server)
    if not isinstance(pair, ServerPair):
        raise SettingsError(
            "server",
            "the engine 'server' needs the name of a configured server, or a specdemo.ServerPair as pair.",
        )
    _check_followed(settings)
    pair.url_of(settings.strategy)
    return pair


def _check_followed(settings: Settings) -> None:
    """γ, the drafter and the rule are the server's own; what would contradict that is refused, not ignored."""
    if settings.strategy == "assisted":
        raise SettingsError(
            "strategy", f"'assisted' is transformers' own decoding, which a server does not do; {HERE}"
        )
    if settings.strategy == "speculative":
        if settings.drafter != "model":
            raise SettingsError("drafter", f"a server drafts as it was started; leave it at 'model', or {HERE}")
        if settings.acceptance not in ("exact", "sampling"):
            raise SettingsError(
                "acceptance",
                f"a server has its own rule, which is lossless; take 'exact' or 'sampling', or {HERE}",
            )
        if settings.adaptive_gamma:
            raise SettingsError("adaptive_gamma", f"a server chooses its own γ; switch it off, or {HERE}")
    if settings.top_candidates:
        raise SettingsError("top_candidates", f"a server keeps its distributions to itself; take 0, or {HERE}")


def checked_prompt(prompt: Any, chat: bool) -> str | list[int]:
    """The prompt as it is sent.

    Raises:
        PromptError: it is empty, or not what this API takes.
    """
    if isinstance(prompt, str):
        check_text(prompt)
        return prompt
    ids = read_ids(prompt)
    if not ids:
        raise PromptError(EMPTY)
    if any(i < 0 for i in ids):
        raise PromptError("token ids are not negative.")
    if chat:
        raise PromptError("token ids cannot be put into a server's chat template; give text, or switch chat off.")
    return ids


def wants_chat(pair: ServerPair, prompt: Any, settings: Settings) -> bool:
    """Whether the server's chat template is used; token ids are taken as they are unless chat is asked for."""
    if settings.chat is not None:
        return settings.chat
    return pair.chat and isinstance(prompt, str)


def body_of(
    prompt: str | list[int], settings: Settings, model: str, chat: bool, stop: Sequence[str] = ()
) -> dict[str, Any]:
    """The parameters that OpenAI's own API knows."""
    text = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
    return {
        "model": model,
        **text,
        "max_tokens": settings.max_new_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        **({"stop": list(stop)} if stop else {}),
        "stream_options": {"include_usage": True},
    }


def sampling_of(settings: Settings) -> dict[str, Any]:
    """The parameters of sampling that are vLLM's; one that changes nothing is not sent."""
    wanted: dict[str, Any] = {}
    if settings.top_k and not settings.greedy:
        wanted["top_k"] = settings.top_k
    if settings.repetition_penalty != 1:
        wanted["repetition_penalty"] = settings.repetition_penalty
    return wanted


def extras_of(chat: bool) -> dict[str, Any]:
    """What a server may do without: a request that is refused is sent again without them.

    vLLM takes what is not said of the sampling from the model's own generation config, so it is said.
    """
    extras: dict[str, Any] = {"return_token_ids": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    if chat:
        # Local lanes switch the thinking of hybrid models off too.
        extras["chat_template_kwargs"] = {"enable_thinking": False}
    return extras


def sweep_prompts(pair: Any, prompts: Any, settings: Settings) -> tuple[ServerPair, list[str | list[int]]]:
    """The deployments of a sweep, both of them, and its prompts as they are sent.

    Raises:
        PromptError: there is no prompt, or one cannot be sent.
        SettingsError, ServerError: as :func:`server_of`.
    """
    found = server_of(pair, settings)
    found.url_of("autoregressive")
    texts = [checked_prompt(prompt, wants_chat(found, prompt, settings)) for prompt in one_by_one(prompts)]
    if not texts:
        raise PromptError("there is none; give at least one text to continue.")
    return found, texts
