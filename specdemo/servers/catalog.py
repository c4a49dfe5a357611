"""The servers that can be chosen by name: ``assets/servers.toml``, another file, or the environment alone."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from specdemo.errors import ServerError
from specdemo.models.request import is_public
from specdemo.servers.pair import ServerPair

MOST_NAMED = 8
FILE = "SPECDEMO_SERVERS"
"""Environment variable with the path of a file in place of ``assets/servers.toml``."""

SINGLE = "SPECDEMO_SERVER_"
"""Beginning of the variables that describe one server without a file, which is called ``server``."""

FIELDS = {
    "id": str,
    "label": str,
    "baseline_url": str,
    "speculative_url": str,
    "model": str,
    "speculative_model": str,
    "api_key_env": str,
    "chat": bool,
    "timeout": (int, float),
    "stop": list,
    "note": str,
}
SWITCH = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ID = re.compile(r"[A-Za-z0-9_.-]+")
"""What stands in links, and in options of the command line."""
CLOSED = "the servers of this page are not described properly; whoever runs it finds the reason in its log."
SHIPPED = Path(__file__).resolve().parents[2] / "assets" / "servers.toml"


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One configured server.

    Attributes:
        id: the name in ``Settings.server``.
        label: how the page calls it.
        pair: its deployments, with the key from the environment.
        note: one line on what it is.
    """

    id: str
    label: str
    pair: ServerPair
    note: str = ""

    @property
    def strategies(self) -> tuple[str, ...]:
        """What it can do: ``autoregressive`` with a baseline deployment, ``speculative`` with one that drafts."""
        urls = {"autoregressive": self.pair.baseline_url, "speculative": self.pair.speculative_url}
        return tuple(strategy for strategy, url in urls.items() if url is not None)


_log = logging.getLogger(__name__)
_told: set[str] = set()
"""What was logged already."""


def servers() -> dict[str, ServerEntry]:
    """All configured servers by id, in the order of the file; read anew each time, since keys may change.

    One that is not described properly is left out, and logged once: see :func:`problems`.

    Raises:
        ServerError: the file cannot be read at all; strangers are not told why.
    """
    try:
        found, wrong = _all()
    except ServerError as error:
        if not is_public():
            raise
        _log_once(str(error))
        raise ServerError(CLOSED) from None
    for problem in wrong.values():
        _log_once(str(problem))
    return found


def problems() -> dict[str, ServerError]:
    """What is wrong with each of the others, by id, or by its place in the file.

    Raises:
        ServerError: the file cannot be read at all.
    """
    return _all()[1]


def _log_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        _log.warning("%s", text)


def _all() -> tuple[dict[str, ServerEntry], dict[str, ServerError]]:
    found: dict[str, ServerEntry] = {}
    wrong: dict[str, ServerError] = {}
    for name, described in [*_from_file(), *_from_environment()]:
        try:
            entry = described()
            if entry.id in found:
                raise ServerError(f"two configured servers have the id {entry.id!r}; give each its own.")
            found[entry.id] = entry
        except ServerError as error:
            wrong[name if name not in found else f"{name}, again"] = error
    return found, wrong


def configured_pair(name: str) -> ServerPair:
    """The server of this name.

    Raises:
        ServerError: there is none.
    """
    known = servers()
    if name not in known and name in (wrong := _all()[1]):
        raise ServerError(CLOSED) if is_public() else wrong[name]
    if name not in known:
        named = ", ".join(list(known)[:MOST_NAMED])
        choice = f"choose one of {named}" if known else f"describe it in assets/servers.toml or in {FILE}"
        raise ServerError(f"{name!r} is not configured; {choice}.")
    return known[name].pair


Described = tuple[str, Callable[[], ServerEntry]]
"""The id, or the place in the file, and what makes an entry of the description or says what is wrong with it."""


def _from_file() -> list[Described]:
    named = os.environ.get(FILE)
    path = Path(named).expanduser() if named else SHIPPED
    if not named and not path.exists():  # an installed package without its assets
        return []
    tables = enumerate(_tables(path), start=1)
    return [(_name(number, table), partial(_entry, number, table)) for number, table in tables]


def _name(number: int, table: Any) -> str:
    return str(table.get("id", number)) if isinstance(table, dict) else str(number)


def _tables(path: Path) -> list[dict[str, Any]]:
    from specdemo.models.catalog import read_toml

    try:
        data = read_toml(path)
    except OSError as error:
        raise ServerError(f"{path.name} cannot be read: {error.strerror}; see {FILE}.") from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise ServerError(f"{path.name} is no TOML file: {error}.") from error
    tables = data.get("server", [])
    if not isinstance(tables, list) or set(data) - {"server"}:
        raise ServerError(f"{path.name} must hold [[server]] tables and nothing else.")
    return tables


def _entry(number: int, table: Mapping[str, Any]) -> ServerEntry:
    if not isinstance(table, dict):
        raise ServerError(f"server {number} of the file is no [[server]] table.")
    place = f"server {table.get('id', number)!r} of the file"
    if "api_key" in table:
        raise ServerError(
            f"{place} holds an api_key; keep keys out of files: write api_key_env with the name of the "
            "environment variable that holds it."
        )
    for name, value in table.items():
        if name not in FIELDS:
            raise ServerError(f"{place} has {name!r}, which is not known; take one of {', '.join(FIELDS)}.")
        if not isinstance(value, FIELDS[name]):
            raise ServerError(f"{place}: {name} has a value of the wrong kind.")
    if not table.get("id") or not table.get("model"):
        raise ServerError(f"{place} needs an id and a model.")
    return _checked(place, table, _key(place, table.get("api_key_env")))


def _key(place: str, variable: str | None) -> str | None:
    if variable is None:
        return None
    if not VARIABLE.fullmatch(variable):  # perhaps the key itself, so it is not repeated
        raise ServerError(
            f"{place}: api_key_env must be the name of an environment variable, such as MY_SERVER_KEY."
        )
    key = os.environ.get(variable)
    if not key:
        raise ServerError(f"{place}: the environment variable {variable}, which should hold its key, is not set.")
    return key


def _from_environment() -> list[Described]:
    names = ("BASELINE_URL", "SPECULATIVE_URL", "MODEL", "SPECULATIVE_MODEL", "API_KEY", "CHAT", "NAME")
    given = {name.lower(): value for name in names if (value := os.environ.get(SINGLE + name))}
    if not given:
        return []
    return [(_id_of(given.get("name", "server")), partial(_single, given))]


def _id_of(name: str) -> str:
    """A name that people read, as an id."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-") or "server"


def _single(given: dict[str, str]) -> ServerEntry:
    place = f"{SINGLE}…"
    if "model" not in given:
        raise ServerError(f"{SINGLE}MODEL is not set; it names the model that the server serves.")
    chat = given.get("chat", "0").lower()
    if chat not in SWITCH:
        raise ServerError(f"{SINGLE}CHAT must be one of {', '.join(SWITCH)}.")
    name = given.get("name", "server")
    table = {**given, "id": _id_of(name), "label": name, "chat": SWITCH[chat]}
    return _checked(place, table, given.get("api_key"))


def _checked(place: str, table: Mapping[str, Any], key: str | None) -> ServerEntry:
    names = ("baseline_url", "speculative_url", "model", "speculative_model", "chat", "timeout", "stop")
    fields: dict[str, Any] = {"baseline_url": None, "speculative_url": None}
    fields |= {name: table[name] for name in names if name in table}
    if not ID.fullmatch(table["id"]):
        raise ServerError(f"{place}: an id is made of letters, digits, dots, dashes and underscores.")
    label = table.get("label") or table["id"]
    try:
        pair = ServerPair(**fields, api_key=key, name=label)
    except ServerError as error:
        raise ServerError(f"{place}: {str(error).removeprefix('server: ')}") from error
    return ServerEntry(table["id"], label, pair, table.get("note", ""))


def offered() -> dict[str, ServerEntry]:
    """The servers by id; none while their file cannot be read, which is logged: the rest of the page goes on."""
    try:
        return servers()
    except ServerError:
        _log.exception("the configured servers cannot be offered")
        return {}


def label_of(server: str) -> str:
    """What people call a server; its id where it is not configured."""
    entry = offered().get(server)
    return entry.label if entry else server
