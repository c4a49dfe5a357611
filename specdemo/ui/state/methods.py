"""What decodes, as links and lists name it: servers in place of a pair of models, and the methods of lanes.

Methods of this machine are read from the table of drafters whenever they are needed, so that a drafter that is
registered shows up everywhere. A configured server adds one method for each of its deployments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from specdemo.drafters import DEFAULT_DRAFTER, DRAFTERS, GGUF, PARTS, DrafterInfo, all_with, first_choice, in_a_row
from specdemo.servers.catalog import label_of, offered
from specdemo.settings import LLAMA_CPP

BESIDE = "llama_"
"""Begins the names of methods that run in llama.cpp, with the same weights, beside those of this process."""
PREFIX = "server:"
"""Begins a server's value among the pairs, which no pair of models can have, and the names of its methods."""
PLAIN = "plain"
UNQUANTIZED = "plain_unquantized"
NO_LANE = "none"
SERVER_STRATEGIES = {PLAIN: "autoregressive", "speculative": "speculative"}
"""Deployments of a server: the last word of a method's name, and the strategy it stands for."""

LINK_NAMES = {"model": "draft", "prompt_lookup": "lookup"}
"""Methods whose names in links are not their drafters'."""


def method_of(drafter: str, strategy: str = "speculative") -> str:
    """The name of the method that drafts so."""
    if strategy == "assisted":
        return "assisted" if drafter == DEFAULT_DRAFTER else f"assisted_{LINK_NAMES.get(drafter, drafter)}"
    return ",".join(LINK_NAMES.get(name, name) for name in in_a_row(drafter))


FIRST_LANES = (PLAIN, method_of(first_choice(PARTS).name), NO_LANE, NO_LANE)
"""The methods with which the page begins, where the pair has what they need."""


def pair_name(server: str) -> str:
    return PREFIX + server


def server_of(pair: str | None) -> str | None:
    """The id of the server that a value of the pair's control names; None for models."""
    return pair.removeprefix(PREFIX) if isinstance(pair, str) and pair.startswith(PREFIX) else None


def needs_models(server: str) -> str:
    """Why something does not run on a server, and what to do."""
    instead = "choose a pair of models in the panel. Races, sweeps and checks run on servers."
    return f"{label_of(server)} is a server, and this needs the models here; {instead}"


@dataclass(frozen=True, slots=True)
class Method:
    """One way to decode."""

    name: str  # its value in links and in the panel's lists
    label: str  # for people
    strategy: str  # its value in ``Settings``
    drafter: DrafterInfo | None = None  # who drafts; None where nothing is drafted, or where a server drafts
    server: str | None = None  # the id of the server that decodes; None for this machine
    engine: str | None = None  # ``llama.cpp`` beside the models of this process; None leaves it to the panel


def local_methods() -> dict[str, Method]:
    """The methods of this machine by name, in the order of lists: plain, ours by drafter, transformers'."""
    assisted = [info for info in DRAFTERS.values() if info.assisted]
    methods = (
        Method(PLAIN, "Plain: the target alone", "autoregressive"),
        Method(UNQUANTIZED, "Plain: unquantised target", "autoregressive"),
        *(Method(method_of(i.name), f"Speculative: {i.label}", "speculative", i) for i in all_with(PARTS)),
        *(Method(method_of(i.name, "assisted"), f"transformers: {i.label}", "assisted", i) for i in assisted),
    )
    drafts = {"draft", "head", GGUF}  # an MTP head is not written into the files of a pair
    beside = [Method(f"{BESIDE}plain", "llama.cpp: plain", "autoregressive", engine=LLAMA_CPP)]
    for i in all_with(drafts):
        name = f"{BESIDE}{method_of(i.name)}"
        beside.append(Method(name, f"llama.cpp: {i.label}", "speculative", i, engine=LLAMA_CPP))
    return {method.name: method for method in (*methods, *beside)}


def find_method(name: object) -> Method | None:
    """The method of this name, None if there is none; its server need not be configured."""
    if not isinstance(name, str):
        return None
    if not name.startswith(PREFIX):
        return local_methods().get(name)
    server, _, deployment = name.removeprefix(PREFIX).rpartition(":")
    if not server or deployment not in SERVER_STRATEGIES:
        return None
    return Method(name, deployment, SERVER_STRATEGIES[deployment], server=server)


def server_method(server: str, deployment: str) -> str:
    return f"{PREFIX}{server}:{deployment}"


def runs_here(name: str) -> bool:
    """Whether a lane of this method needs the models of this machine."""
    method = find_method(name)
    return name != NO_LANE and (method is None or method.server is None)


def method_choices(
    *,
    parts: Collection[str],
    quantized: bool,
    optional: bool,
    server: str | None = None,
    beside: bool = False,
) -> list[tuple[str, str]]:
    """(label, name) of the methods that a lane offers, those of the configured servers last.

    ``parts`` are what the pair has besides its target; a ``quantized`` target has its unquantised weights as a
    baseline; an ``optional`` lane may be off; a pair may have GGUF files ``beside`` it;
    with a ``server`` in the pair's place only servers have methods.
    """
    here = [
        (method.label, name)
        for name, method in local_methods().items()
        if (method.drafter is None or method.drafter.fits(parts))
        and (quantized or name != UNQUANTIZED)
        and (GGUF not in parts or method.strategy != "assisted")
        and (beside or method.engine is None)
    ]
    off = [("None", NO_LANE)] if optional else []
    return [*off, *(here if server is None else []), *server_choices(server)]


def server_choices(chosen: str | None = None) -> list[tuple[str, str]]:
    """(label, name) of the servers' methods; those of the ``chosen`` server come first, without its name."""
    return [
        (
            deployment.capitalize() if entry.id == chosen else f"{entry.label}: {deployment}",
            server_method(entry.id, deployment),
        )
        for entry in sorted(offered().values(), key=lambda entry: entry.id != chosen)
        for deployment, strategy in SERVER_STRATEGIES.items()
        if strategy in entry.strategies
    ]


def nearest_method(wish: str, names: Sequence[str]) -> str:
    """Of the methods that a lane offers by name, the wished one, or the one that is most like it."""
    drafting = sorted(DRAFTERS.values(), key=lambda spec: spec.needs is None)
    fallbacks = [PLAIN] if wish == UNQUANTIZED else [method_of(spec.name) for spec in drafting]
    return next(name for name in (wish, *fallbacks, *names) if name in names)


def methods_on(server: str, wishes: Sequence[str]) -> list[str]:
    """The method of each lane on a server, by what was wished for it; a single deployment takes one lane."""
    entry = offered().get(server)
    if entry is None:
        return list(wishes)
    deployments = [name for name, strategy in SERVER_STRATEGIES.items() if strategy in entry.strategies]
    methods = []
    for lane, wish in enumerate(wishes):
        method = find_method(wish)
        if method is None or method.server is not None:  # the lane is off, or already on a server
            methods.append(wish)
        elif len(deployments) == 1:
            methods.append(server_method(server, deployments[0]) if lane == 0 else NO_LANE)
        else:
            deployment = PLAIN if method.strategy == "autoregressive" else "speculative"
            methods.append(server_method(server, deployment))
    return methods


def wish_of(name: str, server: str | None) -> str:
    """The wish behind a choice, for use with any pair: methods of the chosen ``server`` become those of models."""
    method = find_method(name)
    if method is None or method.server is None or method.server != server:
        return name
    return PLAIN if method.strategy == "autoregressive" else FIRST_LANES[1]
