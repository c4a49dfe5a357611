"""Options of the command line, derived from the fields of :class:`Settings`: names, types, defaults, meanings."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from functools import cache, partial
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from specdemo.errors import SettingsError
from specdemo.settings import Settings


@cache
def setting_types() -> dict[str, type]:
    """The type of each setting, by name; of ``int | None`` it is int."""
    return {name: next(iter(get_args(hint)), hint) for name, hint in get_type_hints(Settings).items()}


@cache
def meanings() -> dict[str, str]:
    """The meaning of each setting, from the docstring's ``Args``."""
    text = (Settings.__doc__ or "").partition("Args:\n")[2].partition("Raises:")[0]
    found = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w+: |\Z)", text, re.MULTILINE | re.DOTALL)
    return {name: " ".join(meaning.replace("``", "").split()) for name, meaning in found}


def add_settings(parser: argparse.ArgumentParser, without: tuple[str, ...] = ()) -> None:
    """Add an option for each setting; settings that are not typed are absent from the result."""
    group = parser.add_argument_group("settings, as in specdemo.Settings")
    for field in fields(Settings):
        name, kind = field.name, setting_types()[field.name]
        if name in without:
            continue
        shown = {True: "on", False: "off"}[field.default] if isinstance(field.default, bool) else field.default
        default = "" if shown is None else f" Default: {shown}."
        how: dict[str, Any] = {"type": partial(_read, name), "metavar": name.upper()}
        if kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
        group.add_argument(
            "--" + name.replace("_", "-"),
            dest=name,
            default=argparse.SUPPRESS,
            help=(meanings()[name] + default).replace("%", "%%"),
            **how,
        )


def typed_settings(args: argparse.Namespace) -> dict[str, Any]:
    return _with_engine({name: value for name, value in vars(args).items() if name in setting_types()})


def read_lane(text: str) -> dict[str, Any]:
    """The settings of one lane from ``name=value,name=value``; SettingsError names the part that is none."""
    lane: dict[str, Any] = {}
    for part in filter(
        None, (p.strip() for p in re.split(r",(?!\w+\s*(?:,|$))", text))
    ):  # not in drafters in a row
        name, equals, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if name not in setting_types() or not equals:
            raise SettingsError("lane", f"{part!r} is not name=value with one of {', '.join(setting_types())}.")
        try:
            lane[name] = _read(name, value.strip())
        except argparse.ArgumentTypeError as error:
            raise SettingsError("lane", f"{part!r} cannot be read: {error}.") from error
    return _with_engine(lane)


def _read(name: str, text: str) -> Any:
    try:
        return TypeAdapter(setting_types()[name]).validate_strings(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(error.errors()[0]["msg"]) from error


def _with_engine(settings: dict[str, Any]) -> dict[str, Any]:
    return {"engine": "server", **settings} if settings.get("server") else settings
