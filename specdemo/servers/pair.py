"""ServerPair: the two deployments of one model, one that speculates and one that does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from specdemo.errors import ServerError, SettingsError
from specdemo.settings import Settings

TIMEOUT_SECONDS = 60.0
LONGEST_TIMEOUT = 3600.0
MOST_STOPS = 4


@dataclass(frozen=True)
class ServerPair:
    """A model that is served elsewhere, in place of a :class:`specdemo.ModelPair`.

    Args:
        baseline_url: of a deployment without speculation, for the strategy ``autoregressive``; with or without
            the ``/v1`` at its end. None if there is none.
        speculative_url: of a deployment that speculates by itself, for the strategy ``speculative``.
        model: what the deployments call the model.
        api_key: sent as a bearer token; never shown, recorded or logged.
        name: how people call the pair; the model's name unless given.
        chat: put a text prompt into the server's chat template, unless the settings say otherwise.
        speculative_model: what the speculative deployment calls the model, if it differs.
        timeout: the longest wait for the next piece of an answer, in seconds.
        stop: texts at which the server ends an answer, besides its end tokens; it leaves them out.

    Raises:
        ServerError: an address, name or number that cannot be used; says which.
    """

    baseline_url: str | None
    speculative_url: str | None
    model: str
    api_key: str | None = field(default=None, repr=False)
    name: str = ""
    chat: bool = False
    speculative_model: str | None = None
    timeout: float = TIMEOUT_SECONDS
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.baseline_url is None and self.speculative_url is None:
            raise ServerError("give baseline_url, speculative_url or both; there is no address to ask.")
        for role in ("baseline_url", "speculative_url"):
            if getattr(self, role) is not None:
                object.__setattr__(self, role, _address(role, getattr(self, role)))
        for role in ("model", "speculative_model", "api_key"):
            _check_word(role, getattr(self, role), optional=role != "model")
        if not isinstance(self.name, str) or not isinstance(self.chat, bool):
            raise ServerError("name must be a text, and chat True or False.")
        _check_timeout(self.timeout)
        object.__setattr__(self, "stop", _texts(self.stop))
        if not self.name:
            object.__setattr__(self, "name", self.model)

    def url_of(self, strategy: str) -> str:
        """The address for a strategy.

        Raises:
            ServerError: this pair has no deployment for it.
        """
        role = "baseline_url" if strategy == "autoregressive" else "speculative_url"
        if getattr(self, role) is None:
            other = "speculative" if strategy == "autoregressive" else "autoregressive"
            raise ServerError(
                f"{self.name!r} has no {role}, which the strategy {strategy!r} needs; choose {other!r} or add one."
            )
        return getattr(self, role)

    def model_of(self, strategy: str) -> str:
        """The model's name for a strategy."""
        return (self.speculative_model if strategy != "autoregressive" else None) or self.model


def on_server(pair: Any, settings: Settings) -> bool:
    """Whether a lane of these settings runs on a server."""
    return isinstance(pair, ServerPair) or settings.engine == "server"


def check_here(lanes: Sequence[Settings], what: str) -> None:
    """Refuse settings of a server for what only the models themselves can do.

    Raises:
        SettingsError: one asks for a server.
    """
    if any(settings.engine == "server" for settings in lanes):
        raise SettingsError(
            "engine",
            f"'server' can be run, streamed, raced and swept; {what} needs the models here: choose 'auto'.",
        )


def _address(role: str, url: Any) -> str:
    """The address of the API, without a slash at its end."""
    if not isinstance(url, str):
        raise ServerError(f"{role} must be a text such as http://host:8000/v1, not {type(url).__name__}.")
    parts = _split(role, url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServerError(f"{role} must begin with http:// or https:// and name a host.")
    if "@" in parts.netloc:
        raise ServerError(f"{role} holds a user name or a password; give the key as api_key instead.")
    if parts.query or parts.fragment or any(c.isspace() or not c.isprintable() for c in url.strip()):
        raise ServerError(f"{role} must be an address alone, such as http://host:8000/v1: no query, no spaces.")
    if parts.path.rstrip("/").endswith("/completions"):
        raise ServerError(f"{role} is the address of one call; give that of the API, which ends with /v1.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _split(role: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read only to be checked
    except ValueError as error:
        raise ServerError(f"{role} is no address; write it as http://host:8000/v1.") from error
    return parts


def _check_word(role: str, value: Any, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        shown = "" if role == "api_key" else f", not {value!r}"
        raise ServerError(f"{role} must be a text that is not empty{shown}.")
    if role == "api_key" and not value.isascii():
        raise ServerError("api_key must be made of ASCII characters, as HTTP headers are.")


def _texts(stop: Any) -> tuple[str, ...]:
    texts = tuple(stop) if isinstance(stop, list | tuple) else ()
    proper = isinstance(stop, list | tuple) and all(isinstance(t, str) and t for t in texts)
    if not proper or len(texts) > MOST_STOPS:
        raise ServerError(f"stop must be a list of at most {MOST_STOPS} texts, none of them empty.")
    return texts


def _check_timeout(timeout: Any) -> None:
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and math.isfinite(timeout)
    if not is_number or not 0 < timeout <= LONGEST_TIMEOUT:
        raise ServerError(f"timeout must be a number of seconds above 0 and at most {LONGEST_TIMEOUT:g}.")
