"""What is sent to a server: the settings as parameters of OpenAI's API, if a server can follow them at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specdemo.errors import PromptError, SettingsError
from specdemo.prompt import EMPTY, check_text, one_by_one, read_ids
from specdemo.servers.catalog import configured_pair
from specdemo.servers.pair import ServerPair
from specdemo.settings import Settings

HERE = "run that lane here instead, with a ModelPair."


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request for a streamed completion.

    Attributes:
        chat: whether it goes to the chat API instead of plain completions.
        body: parameters of OpenAI's own API.
        sampling: vLLM's sampling parameters. They change the output, so they are never left out.
        optional: parameters that are left out if the server refuses them.
    """

    chat: bool
    body: dict[str, Any]
    sampling: dict[str, Any]
    optional: dict[str, Any]

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The prompt's token ids, if the caller gave ids; else empty."""
        prompt = self.body.get("prompt")
        return tuple(prompt) if isinstance(prompt, list) else ()

    def attempts(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]]:
        """What to send after each refusal: body, parameters beyond OpenAI's, and the names of those left out."""
        left_out = tuple(self.optional)
        yield self.body, {**self.optional, **self.sampling}, ()
        yield self.body, self.sampling, left_out
        body = {name: value for name, value in self.body.items() if name != "stream_options"}
        yield body, self.sampling, (*left_out, "stream_options")


def completion_request(pair: ServerPair, prompt: Any, settings: Settings) -> CompletionRequest:
    """The request of one lane.

    Raises:
        PromptError: the prompt is empty, or not what this API takes.
    """
    prompt, chat = _checked_prompt(pair, prompt, settings)
    body = {
        "model": pair.model_of(settings.strategy),
        **({"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}),
        "max_tokens": settings.max_new_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stream_options": {"include_usage": True},
    }
    if pair.stop:
        body["stop"] = list(pair.stop)
    sampling: dict[str, Any] = {}
    if settings.top_k and not settings.greedy:
        sampling["top_k"] = settings.top_k
    if settings.repetition_penalty != 1:
        sampling["repetition_penalty"] = settings.repetition_penalty
    # vLLM takes sampling parameters that are not sent from the model's own generation config, so all are sent.
    optional: dict[str, Any] = {"return_token_ids": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    if chat:
        # Local lanes switch the thinking of hybrid models off too.
        optional["chat_template_kwargs"] = {"enable_thinking": False}
    return CompletionRequest(chat, body, sampling, optional)


def server_of(pair: Any, settings: Settings) -> ServerPair:
    """The deployments that the settings name, or the pair itself.

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


def sweep_prompts(pair: Any, prompts: Any, settings: Settings) -> tuple[ServerPair, list[str | list[int]]]:
    """The deployments of a sweep, which needs both, and its prompts as they are sent.

    Raises:
        PromptError: there is no prompt, or one cannot be sent.
        SettingsError, ServerError: as :func:`server_of`.
    """
    found = server_of(pair, settings)
    found.url_of("autoregressive")
    checked = [_checked_prompt(found, prompt, settings)[0] for prompt in one_by_one(prompts)]
    if not checked:
        raise PromptError("there is none; give at least one text to continue.")
    return found, checked


def _check_followed(settings: Settings) -> None:
    """γ, drafter and acceptance rule are the server's own: settings that contradict that are refused."""
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


def _checked_prompt(
    pair: ServerPair, prompt: str | Sequence[int], settings: Settings
) -> tuple[str | list[int], bool]:
    """The prompt as it is sent, and whether the server puts it into its chat template.

    Token ids are taken as they are unless the settings say otherwise.
    """
    if isinstance(prompt, str):
        check_text(prompt)
        return prompt, pair.chat if settings.chat is None else settings.chat
    ids = read_ids(prompt)
    if not ids:
        raise PromptError(EMPTY)
    if any(i < 0 for i in ids):
        raise PromptError("token ids are not negative.")
    if settings.chat:
        raise PromptError("token ids cannot be put into a server's chat template; give text, or switch chat off.")
    return ids, False
