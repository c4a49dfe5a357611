"""What a program asked for, read from plain data that may hold anything."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal, TypedDict, get_type_hints

from specdemo.errors import PromptError, SettingsError, SpecDemoError
from specdemo.settings import (
    ACCEPTANCE_RULES,
    DRAFTERS,
    MAX_GAMMA,
    STRATEGIES,
    Settings,
    at_least_one,
    whole_numbers,
)
from specdemo.ui.jobs.limits import check_lanes, check_prompts, check_runs
from specdemo.ui.jobs.sweep import SERVERS_OWN, Plan
from specdemo.ui.panel.lane_controls import whole
from specdemo.ui.panel.server_choice import server_of

SWEEP_TOKENS = 64
NAMES = {
    "strategy": Literal[STRATEGIES],  # type: ignore[valid-type]
    "drafter": Literal[DRAFTERS],  # type: ignore[valid-type]
    "acceptance": Literal[ACCEPTANCE_RULES],  # type: ignore[valid-type]
}
LaneSettings = TypedDict(  # type: ignore[misc]
    "LaneSettings", {**get_type_hints(Settings), **NAMES}, total=False
)
"""Any of the fields of :class:`specdemo.Settings`; the others keep their defaults."""


def asked_prompt(prompt: Any) -> str:
    """
    Raises:
        PromptError: it is no text.
    """
    if not isinstance(prompt, str):
        raise PromptError(f"must be a text, not {_kind(prompt)}.")
    return prompt


def asked_lane(given: Any) -> Settings:
    """The settings of one lane; numbers that are whole may come as 5.0, as JSON knows one kind.

    Raises:
        SettingsError: this is no object, a name is not known, or a value is out of range.
    """
    if not isinstance(given, dict):
        raise SettingsError("settings", f'must be an object such as {{"gamma": 5}}, not {_kind(given)}.')
    known = [f.name for f in fields(Settings)]
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise SettingsError("settings", f"{unknown!r:.60} is not known; choose from {', '.join(known)}.")
    if given.get("server") is not None:
        given = {"engine": "server", **given}  # a server's name says where a lane runs
    return Settings(**{name: whole(name, value) if value is not None else None for name, value in given.items()})


def on_pair(pair: Any, lanes: list[Settings]) -> list[Settings]:
    """The lanes as they run on what ``pair`` names: on a server, unless they name one themselves.

    Raises:
        SettingsError: a lane is to run on a server, and none is named.
    """
    server = server_of(pair) if isinstance(pair, str) else None
    if server is not None:
        lanes = [replace(s, engine="server", server=s.server or server) for s in lanes]
    if any(s.engine == "server" and s.server is None for s in lanes):
        raise SettingsError("server", "give the name of a configured server; the endpoint 'pairs' lists them.")
    return lanes


def asked_lanes(given: Any) -> list[Settings]:
    """The settings of every lane.

    Raises:
        SettingsError: this is no list.
        SpecDemoError: what :func:`asked_lane` raises, with the lane's number.
    """
    if not isinstance(given, list):
        raise SettingsError("lanes", f"must be a list of settings, one for each lane, not {_kind(given)}.")
    lanes = []
    for number, lane in enumerate(given, start=1):
        try:
            lanes.append(asked_lane(lane))
        except SettingsError as error:
            raise SpecDemoError(f"Lane {number}: {error}") from error
    return lanes


def asked_sweep(prompts: Any, gammas: Any, repeats: Any, settings: Any, pair: Any) -> Plan:
    """A sweep within the limits; on a server ``gammas`` says nothing, since γ is its own.

    Raises:
        SpecDemoError: it asks for what there is not, or for too much.
    """
    texts = [asked_prompt(p) for p in (prompts if isinstance(prompts, list) else [prompts])]
    check_prompts(texts)
    wanted = asked_lane({"max_new_tokens": SWEEP_TOKENS, **settings} if isinstance(settings, dict) else settings)
    (wanted,) = on_pair(pair, [wanted])
    check_lanes([wanted])
    numbers = [whole("gammas", g) for g in gammas] if isinstance(gammas, list) else gammas
    tried = whole_numbers("gammas", numbers, MAX_GAMMA, "[2, 3, 4]") if wanted.server is None else SERVERS_OWN
    times = at_least_one("repeats", whole("repeats", repeats))
    check_runs((len(tried) + 1) * len(texts) * times)
    return Plan(texts, wanted, tried, times)


def _kind(value: Any) -> str:
    """How JSON calls it."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
