"""The configured servers as the panel offers them in place of a pair of models."""

from __future__ import annotations

from specdemo.servers.catalog import label_of

PREFIX = "server:"
"""Begins a server's value among the pairs, which no pair of models can have, and the names of its methods."""


def pair_name(server: str) -> str:
    """A server's value among the pairs."""
    return PREFIX + server


def server_of(pair: str | None) -> str | None:
    """The id of the server that a value of the pair's control names; None for models."""
    return pair.removeprefix(PREFIX) if isinstance(pair, str) and pair.startswith(PREFIX) else None


def needs_models(server: str) -> str:
    """Why something does not run on a server, and what to do."""
    instead = "choose a pair of models in the panel. Races and sweeps run on servers."
    return f"{label_of(server)} is a server, and this needs the models here; {instead}"
