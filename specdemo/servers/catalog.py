"""The servers that can be chosen by name: ``assets/servers.toml``, another file, or the environment alone."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from specdemo.errors import ServerError
from specdemo.models.request import ASSETS, is_public
from specdemo.servers.pair import ServerPair
from specdemo.settings import Settings

FILE = "SPECDEMO_SERVERS"  # environment variable with the path of a file in place of ``assets/servers.toml``
SINGLE = "SPECDEMO_SERVER_"
"""Prefix of the variables that describe one server without a file, which is called ``server``."""
SINGLE_FIELDS = ("baseline_url", "speculative_url", "model", "speculative_model", "chat")
PAIR_FIELDS = tuple(f.name for f in fields(ServerPair) if f.name not in ("api_key", "name"))
OTHER_FIELDS = ("id", "label", "api_key_env", "note")
"""What a table of the file may hold: fields that ServerPair checks itself, and other texts."""
SWITCH = {**dict.fromkeys(("1", "true", "on", "yes"), True), **dict.fromkeys(("0", "false", "off", "no"), False)}
ID = re.compile(r"[A-Za-z0-9_.-]+")  # an id stands in links and in options of the command line
MOST_NAMED = 8
CLOSED = "the servers of this page are not described properly; whoever runs it finds the reason in its log."
SHIPPED = ASSETS / "servers.toml"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One configured server."""

    id: str  # the name in ``Settings.server``
    label: str  # how the page calls it
    pair: ServerPair  # its deployments, with the key from the environment
    note: str = ""  # one line on what it is

    @property
    def strategies(self) -> tuple[str, ...]:
        """What it can do: ``autoregressive`` with a baseline deployment, ``speculative`` with one that drafts."""
        urls = {"autoregressive": self.pair.baseline_url, "speculative": self.pair.speculative_url}
        return tuple(strategy for strategy, url in urls.items() if url is not None)


def servers() -> dict[str, ServerEntry]:
    """All configured servers by id, in the order of the file, with the keys that the environment has now.

    A server whose description is wrong is left out, and logged once: see :func:`problems`. A ServerError if the
    file cannot be read at all; the reason is kept from users of a public page.
    """
    try:
        found, wrong = _read_all()
    except ServerError as error:
        if not is_public():
            raise
        _log_once(str(error))
        raise ServerError(CLOSED) from None
    for problem in wrong.values():
        _log_once(str(problem))
    return found


def problems() -> dict[str, ServerError]:
    """What is wrong with the servers that are left out, by id or by place in the file."""
    return _read_all()[1]


def offered() -> dict[str, ServerEntry]:
    """The servers by id; none while their file cannot be read, which is logged: the rest of the page goes on."""
    try:
        return servers()
    except ServerError:
        _log.exception("the configured servers cannot be offered")
        return {}


def configured_pair(name: str) -> ServerPair:
    """The server of this name; a ServerError if there is none."""
    known = servers()
    if name in known:
        return known[name].pair
    if name in (wrong := problems()):
        raise ServerError(CLOSED) if is_public() else wrong[name]
    named = ", ".join(map(repr, list(known)[:MOST_NAMED]))
    choice = f"choose one of {named}" if known else f"describe it in assets/servers.toml or in {FILE}"
    raise ServerError(f"{name!r:.80} is not configured; {choice}.")


def shares_machine(settings: Settings) -> bool:
    """Whether a lane of these settings runs on a configured server that computes on this machine."""
    entry, strategy = offered().get(settings.server or ""), settings.strategy
    return entry is not None and strategy in entry.strategies and entry.pair.shares_machine(strategy)


def label_of(server: str) -> str:
    """What people call a server; its id where it is not configured."""
    entry = offered().get(server)
    return entry.label if entry else server


@cache
def _log_once(problem: str) -> None:
    _log.warning("%s", problem)


def _read_all() -> tuple[dict[str, ServerEntry], dict[str, ServerError]]:
    """The servers by id, and what is wrong with the others."""
    found: dict[str, ServerEntry] = {}
    wrong: dict[str, ServerError] = {}
    for name, table in (*_from_file(), *_from_environment()):
        try:
            entry = _entry(name, table)
            if entry.id in found:
                raise ServerError(f"two configured servers have the id {entry.id!r}; give each its own.")
            found[entry.id] = entry
        except ServerError as error:
            wrong[name if name not in found else f"{name}, again"] = error
    return found, wrong


def _from_file() -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of the file, each with its id or its place there."""
    named = os.environ.get(FILE)
    path = Path(named).expanduser() if named else SHIPPED
    if not named and not path.exists():  # an installed package without its assets
        return
    try:
        tables = _tables(path, path.stat().st_mtime_ns, path.stat().st_size)
    except OSError as error:
        raise ServerError(f"{path.name} cannot be read: {error.strerror}; see {FILE}.") from error
    for number, table in enumerate(tables, start=1):
        yield str(table.get("id", number)), table


@lru_cache(maxsize=1)
def _tables(path: Path, changed: int, size: int) -> list[dict[str, Any]]:
    """What the file holds, read once for each change of it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of TOML, or of UTF-8
        raise ServerError(f"{path.name} is no TOML file: {error}.") from error
    tables = data.get("server", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables) or set(data) - {"server"}:
        raise ServerError(f"{path.name} must hold [[server]] tables and nothing else.")
    return tables


def _from_environment() -> Iterator[tuple[str, dict[str, Any]]]:
    """The table that the variables of one server make, if there are any."""
    given = {name: value for name in SINGLE_FIELDS if (value := os.environ.get(SINGLE + name.upper()))}
    if given:
        label = os.environ.get(SINGLE + "NAME") or "server"
        id_ = re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-") or "server"
        key = {"api_key_env": SINGLE + "API_KEY"} if os.environ.get(SINGLE + "API_KEY") else {}
        chat = SWITCH.get(given.get("chat", "0").lower())
        yield f"{SINGLE}*", {**given, **key, "id": id_, "label": label, "chat": chat}


def _entry(name: str, table: dict[str, Any]) -> ServerEntry:
    try:
        if "api_key" in table:
            raise ServerError("it holds an api_key; keep keys out of files: name their variable as api_key_env.")
        known = (*OTHER_FIELDS, *PAIR_FIELDS)
        if (unknown := next((field for field in table if field not in known), None)) is not None:
            raise ServerError(f"{unknown!r:.80} is not known; take one of {', '.join(known)}.")
        if (odd := next((f for f in OTHER_FIELDS if not isinstance(table.get(f, ""), str)), None)) is not None:
            raise ServerError(f"{odd} must be a text.")
        if not table.get("id") or not table.get("model"):
            raise ServerError("it needs an id and a model.")
        if not ID.fullmatch(table["id"]):
            raise ServerError("an id is made of letters, digits, dots, dashes and underscores.")
        label = table.get("label") or table["id"]
        given = {"baseline_url": None, "speculative_url": None, **{f: table[f] for f in PAIR_FIELDS if f in table}}
        pair = ServerPair(**given, api_key=_key(table.get("api_key_env")), name=label)
    except ServerError as error:
        raise ServerError(f"server {name!r}: {str(error).removeprefix('server: ')}") from error
    return ServerEntry(table["id"], label, pair, table.get("note", ""))


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not variable.isidentifier():  # perhaps the key itself, so it is not repeated
        raise ServerError("api_key_env must be the name of an environment variable, such as MY_SERVER_KEY.")
    key = os.environ.get(variable)
    if not key:
        raise ServerError(f"the environment variable {variable}, which should hold its key, is not set.")
    return key
