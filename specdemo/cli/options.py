"""Options of the command line, derived from the fields of :class:`Settings`: names, types, defaults, meanings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, get_args, get_type_hints

from specdemo.errors import SettingsError
from specdemo.settings import Settings

WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: the field's name, the function that reads its text, its default, and its meaning."""

    name: str
    read: Callable[[str], Any]
    default: Any
    meaning: str

    @property
    def flag(self) -> str:
        """As it is typed."""
        return "--" + self.name.replace("_", "-")


@cache
def setting_options() -> dict[str, Option]:
    """Every field of the settings, by name."""
    types, meanings = get_type_hints(Settings), _meanings(Settings.__doc__ or "")
    options = {}
    for f in fields(Settings):
        kind = next(iter(get_args(types[f.name])), types[f.name])  # of ``int | None`` it is int
        read = _switch if kind is bool else kind
        default = None if f.default is MISSING else f.default
        options[f.name] = Option(f.name, read, default, meanings.get(f.name, ""))
    return options


def add_settings(parser: argparse.ArgumentParser, without: tuple[str, ...] = ()) -> None:
    """Add an option for each setting; settings that are not typed are absent from the result."""
    group = parser.add_argument_group("settings, as in specdemo.Settings")
    for option in setting_options().values():
        if option.name in without:
            continue
        default = "" if option.default is None else f" Default: {_shown(option.default)}."
        how: dict[str, Any] = {"type": option.read, "metavar": option.name.upper()}
        if option.read is _switch:
            how = {"action": argparse.BooleanOptionalAction}
        group.add_argument(
            option.flag,
            dest=option.name,
            default=argparse.SUPPRESS,
            help=(option.meaning + default).replace("%", "%%"),
            **how,
        )


def typed_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were typed, by name."""
    return _with_engine({name: value for name, value in vars(args).items() if name in setting_options()})


def _with_engine(settings: dict[str, Any]) -> dict[str, Any]:
    """A lane with a server has the engine ``server``."""
    return {"engine": "server", **settings} if settings.get("server") else settings


def read_lane(text: str) -> dict[str, Any]:
    """The settings of one lane from ``name=value,name=value``.

    Raises:
        SettingsError: a name is not known, or its value cannot be read.
    """
    lane: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = part.partition("=")
        name = name.strip().replace("-", "_")
        option = setting_options().get(name)
        if option is None or not equals:
            raise SettingsError("lane", f"{part!r} is not name=value with one of {', '.join(setting_options())}.")
        try:
            lane[name] = option.read(value.strip())
        except ValueError as error:
            raise SettingsError("lane", f"{part!r} cannot be read: {error}.") from error
    return _with_engine(lane)


def _switch(text: str) -> bool:
    if text.lower() not in WORDS:
        raise ValueError(f"choose one of {', '.join(WORDS)}")
    return WORDS[text.lower()]


def _meanings(doc: str) -> dict[str, str]:
    """The meaning of each field, from the docstring's ``Args``."""
    text = re.search(r"Args:\n(.*?)\n\s*Raises:", doc, re.DOTALL)
    found = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w+: |\Z)", (text.group(1) if text else "") + "\n", re.M | re.S)
    return {name: " ".join(meaning.replace("``", "").split()) for name, meaning in found}


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
