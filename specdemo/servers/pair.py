"""Pairs that are served: ServerPair is two deployments of one model elsewhere, without and with speculation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from socket import gethostbyname, gethostname
from threading import Event
from typing import Any, ClassVar
from urllib.parse import urlsplit

from specdemo.errors import ServerError, SettingsError
from specdemo.settings import LLAMA_CPP, Settings

TIMEOUT_SECONDS = 60.0
LONGEST_TIMEOUT = 3600.0


class ServedPair(ABC):
    """A pair in other processes, whose lanes run through a server's API."""

    name: str  # how people call it
    chat: bool  # put a text prompt into the server's chat template, unless the settings say otherwise
    # its servers are started with the settings of each lane, so that drafter and γ are the lane's
    obeys: ClassVar[bool] = False
    one_at_a_time: bool = False  # a lane's server is there only while the lane runs

    @abstractmethod
    def check(self, settings: Settings) -> None:
        """Refuse what it could not decode: a SettingsError, or a ServerError without such a deployment."""

    @abstractmethod
    def deployed(self, settings: Settings, stop: Event | None = None) -> AbstractContextManager[ServerPair]:
        """The deployments for one lane, which are there until the context is left; ``stop`` ends the waiting."""

    @abstractmethod
    def model_of(self, strategy: str) -> str:
        """What a deployment calls the model."""

    def shares_machine(self, strategy: str) -> bool:
        """Whether the deployment for a strategy takes computing time from the lanes that run here."""
        return True


@dataclass(frozen=True)
class ServerPair(ServedPair):
    """A model that is served elsewhere, in place of a :class:`specdemo.ModelPair`.

    Args:
        baseline_url: address of a deployment without speculation, for the strategy ``autoregressive``; with or
            without ``/v1`` at its end. None if there is none.
        speculative_url: address of a deployment that speculates by itself, for the strategy ``speculative``.
        model: what the deployments call the model.
        api_key: sent as a bearer token; never shown, recorded or logged.
        name: how people call the pair; the model's name unless given.
        chat: put a text prompt into the server's chat template, unless the settings say otherwise.
        speculative_model: what the speculative deployment calls the model, if it differs.
        timeout: the longest wait for the next chunk of a response, in seconds.
        own_hardware: its deployments compute on hardware that nothing else here uses, such as GPUs of their own,
            though their addresses are those of this machine. Their lanes and jobs then run beside all others.

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
    own_hardware: bool = False

    def __post_init__(self) -> None:
        if self.baseline_url is None and self.speculative_url is None:
            raise ServerError("give baseline_url, speculative_url or both; there is no address to ask.")
        for role in ("baseline_url", "speculative_url"):
            if getattr(self, role) is not None:
                object.__setattr__(self, role, _api_address(role, getattr(self, role)))
        for role in ("model", "speculative_model", "api_key"):
            value = getattr(self, role)
            if value is None and role != "model":
                continue
            if not isinstance(value, str) or not value.strip() or not value.isprintable():
                shown = "" if role == "api_key" else f", not {value!r}"
                raise ServerError(f"{role} must be a text that is not empty{shown}.")
        if not (self.api_key or "").isascii():
            raise ServerError("api_key must be made of ASCII characters, as HTTP headers are.")
        if not isinstance(self.name, str):
            raise ServerError("name must be a text.")
        for role in ("chat", "own_hardware"):
            if not isinstance(getattr(self, role), bool):
                raise ServerError(f"{role} must be True or False.")
        number = isinstance(self.timeout, int | float) and not isinstance(self.timeout, bool)
        if not number or not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise ServerError(f"timeout must be a number of seconds above 0 and at most {LONGEST_TIMEOUT:g}.")
        object.__setattr__(self, "name", self.name or self.model)

    @property
    def same(self) -> bool:
        """Whether both strategies ask one deployment for one model."""
        one = self.baseline_url == self.speculative_url
        return one and self.model_of("autoregressive") == self.model_of("speculative")

    def check(self, settings: Settings) -> None:
        """γ, drafter and acceptance rule are the server's own: settings that contradict that are refused."""
        drafts = settings.strategy == "speculative"
        refuse(
            settings,
            ("drafter", drafts and settings.drafter != "model", "a server drafts as it was started; take 'model'"),
            ("adaptive_gamma", drafts and settings.adaptive_gamma, "a server chooses its own γ; switch it off"),
            ("tree_nodes", drafts and settings.drafts_trees, "a server drafts as it was started; set 0"),
            ("p_min", drafts and settings.p_min > 0, "a server drafts as it was started; set 0"),
        )
        self.url_of(settings.strategy)

    def deployed(self, settings: Settings, stop: Event | None = None) -> AbstractContextManager[ServerPair]:
        return nullcontext(self)

    def url_of(self, strategy: str) -> str:
        plain = strategy == "autoregressive"
        role, other = ("baseline_url", "speculative") if plain else ("speculative_url", "autoregressive")
        url = getattr(self, role)
        if url is None:
            lacks = f"{self.name!r} has no {role}, which the strategy {strategy!r} needs"
            raise ServerError(f"{lacks}; choose {other!r} or add one.")
        return url

    def shares_machine(self, strategy: str) -> bool:
        return not self.own_hardware and _is_here(urlsplit(self.url_of(strategy)).hostname or "")

    def model_of(self, strategy: str) -> str:
        return (self.speculative_model if strategy != "autoregressive" else None) or self.model


def refuse(settings: Settings, *reasons: tuple[str, bool, str]) -> None:
    """Refuse what no server does, and what one kind does not: the field, whether the reason holds, the reason."""
    drafts, lossless = settings.strategy == "speculative", settings.acceptance in ("exact", "sampling")
    for name, refused, reason in (
        ("strategy", settings.strategy == "assisted", "a server does not do transformers' 'assisted'"),
        ("acceptance", drafts and not lossless, "a server's own rule is lossless; take 'exact' or 'sampling'"),
        *reasons,
    ):
        if refused:
            raise SettingsError(name, f"{reason}; choose another, or run that lane here, with a ModelPair.")


def on_server(pair: object, settings: Settings) -> bool:
    """Whether a lane of these settings runs on a server."""
    return isinstance(pair, ServedPair) or settings.engine == "server"


def check_here(lanes: Sequence[Settings], what: str) -> None:
    """Refuse settings of a server for what needs the models in this process."""
    if away := next((s.engine for s in lanes if s.engine in ("server", LLAMA_CPP)), None):
        reason = f"{away!r} can be run, streamed, raced and swept; {what} needs the models here: choose 'auto'."
        raise SettingsError("engine", reason)


def _api_address(role: str, url: Any) -> str:
    """The address of the API, without a slash at its end."""
    if not isinstance(url, str):
        raise ServerError(f"{role} must be a text such as http://host:8000/v1, not {type(url).__name__}.")
    url = url.strip()
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0  # which may be no number
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or any(c.isspace() or not c.isprintable() for c in url):
        raise ServerError(f"{role} must be an http:// or https:// address alone, such as http://host:8000/v1.")
    if "@" in parts.netloc:
        raise ServerError(f"{role} holds a user name or a password; give the key as api_key instead.")
    path = parts.path.rstrip("/")
    if path.endswith("/completions"):
        raise ServerError(f"{role} is the address of one call; give that of the API, which ends with /v1.")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def _is_here(host: str) -> bool:
    """Whether a host is this machine, by its name or address."""
    try:
        return ip_address(host).is_loopback or host == _own_address()
    except ValueError:  # a name
        return host in ("localhost", gethostname())


@cache
def _own_address() -> str:
    """The address by which this machine is known to others; empty without one."""
    try:
        return gethostbyname(gethostname())
    except OSError:
        return ""
