"""The configured servers as the panel offers them: in place of a pair of models, and as ways of its lanes."""

from __future__ import annotations

import logging
from typing import Any

from specdemo.errors import ServerError
from specdemo.servers.catalog import ServerEntry, servers

PREFIX = "server:"
WAYS = {"plain": "autoregressive", "speculative": "speculative"}
"""What a server's deployments do: a method's last word, and the strategy it stands for."""

_log = logging.getLogger(__name__)


def offered() -> dict[str, ServerEntry]:
    """The servers by id; none while their file cannot be read, which is logged: the rest of the page goes on."""
    try:
        return servers()
    except ServerError:
        _log.exception("the configured servers cannot be offered")
        return {}


def pair_name(server: str) -> str:
    """A server's value among the pairs, which no pair of models can have."""
    return PREFIX + server


def server_of(pair: str | None) -> str | None:
    """The server that a value of the pair's control names; None for models."""
    return pair.removeprefix(PREFIX) if isinstance(pair, str) and pair.startswith(PREFIX) else None


def pair_choices() -> list[tuple[str, str]]:
    """(label, value) of the servers among the pairs."""
    return [(f"{entry.label} · server", pair_name(name)) for name, entry in offered().items()]


def label_of(server: str) -> str:
    """How people call a server."""
    entry = offered().get(server)
    return entry.label if entry else server


def server_chats(server: str) -> bool:
    """Whether its prompts go into its chat template unless one says otherwise."""
    entry = offered().get(server)
    return entry is None or entry.pair.chat


def method_name(server: str, way: str) -> str:
    """The value of a lane's control for a server's way to decode."""
    return f"{PREFIX}{server}:{way}"


def server_methods(chosen: str | None = None) -> list[tuple[str, str]]:
    """(label, name) of what the servers can do; those of the ``chosen`` one come first and need no name."""
    entries = sorted(offered().values(), key=lambda entry: entry.id != chosen)
    return [
        (way.capitalize() if entry.id == chosen else f"{entry.label}: {way}", method_name(entry.id, way))
        for entry in entries
        for way, strategy in WAYS.items()
        if strategy in entry.strategies
    ]


def method_parts(method: str) -> tuple[str, str] | None:
    """The server and the way that a lane's method names; None for what decodes here."""
    if not isinstance(method, str) or not method.startswith(PREFIX):
        return None
    server, _, way = method.removeprefix(PREFIX).rpartition(":")
    return (server, way) if server and way in WAYS else None


def method_settings(method: str, temperature: float | None) -> dict[str, Any] | None:
    """What a server's method stands for, None for another; its γ and its rule, which is lossless, are its own."""
    parts = method_parts(method)
    if parts is None:
        return None
    server, way = parts
    rule = "sampling" if temperature else "exact"
    return {"strategy": WAYS[way], "engine": "server", "server": server, "acceptance": rule}
