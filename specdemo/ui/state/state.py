"""The state of the page: all that can be set on it, each thing once.

A field of these models is

- a control of the page (:mod:`specdemo.ui.panel.controls` builds it), with label, first value, limits and choices,
- a parameter of links (:mod:`specdemo.ui.links`; ``web/links.js`` has the same table): ``_`` becomes ``-``,
  and the name of a lane or of a tab stands before it, as in ``lane3.gamma`` and ``sweep.from``,
- where ``Settings`` has a field of its name, that setting (:mod:`specdemo.ui.state.request`), which messages call
  by the label here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Self

import torch
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from specdemo.drafters import PARTS, all_with, first_choice
from specdemo.losslessness.certify import RUNS, TOKENS
from specdemo.models.request import ASSETS, DTYPES, QUANTIZATIONS, catalog, is_public
from specdemo.runs.prompts import by_domain
from specdemo.servers.catalog import offered
from specdemo.settings import (
    ACCEPTANCE_RULES,
    LARGEST_WHOLE,
    MAX_GAMMA,
    MAX_LOOKUP_NGRAM,
    MAX_TREE_NODES,
    Settings,
)
from specdemo.ui.jobs.limits import limits
from specdemo.ui.state.methods import FIRST_LANES, NO_LANE, local_methods, pair_name, server_choices
from specdemo.view.assets import SPEEDS

CUSTOM = "custom"
"""The pair whose names are typed in."""
NONE = "none"
"""Weights as they are."""
BEST = "best"
"""The best device here."""
ENGINE_LABELS = {
    "auto": "Automatic: the fastest there is",
    "eager": "Eager: transformers, call by call",
    "graphs": "CUDA graphs",
}
TABS = ("race", "sweep", "batch", "losslessness")
"""The tabs by id, in the order of the page."""
PANEL, DOMAINS, OWN = "panel", "domains", "own"
SOURCES = {PANEL: "The panel's prompt", DOMAINS: "Builtin domains", OWN: "My own"}
"""Where a measurement's prompts come from."""
GAMMAS, METHODS = "gammas", "methods"
VIEWS = {GAMMAS: "Every γ of one method", METHODS: "Every method"}
BUDGET, LONGEST_BUDGET = 120, 3600
MOST_REPEATS, MOST_ROWS = 20, 16
DISTRIBUTION, GREEDY = "distribution", "greedy"
MODES = {DISTRIBUTION: "sampled", GREEDY: "greedy"}
SHORT_LANE = "lane2"
"""The lane whose parameters need no name before them, since it is the first that drafts."""
PAGE = ("tab", "view", "recording", "speed", "autorun")
RECORDINGS = ASSETS / "recordings"

Choices = Callable[[], Mapping[str, str]]
"""The values that a field may have, and what people read."""
_FIRST = Settings()


def _control(
    default: Any,
    label: str = "",
    *,
    link: str = "",
    element: str = "",
    choices: Choices | None = None,
    least: float = 0,
    most: float | Callable[[], float] = LARGEST_WHOLE,
) -> Any:
    """A field: see :class:`Parameter`; what is known only when the page is built is given as a function."""
    first = {"default_factory": default} if callable(default) else {"default": default}
    extra: Any = {"link": link, "element": element, "choices": choices, "least": least, "most": most}
    return Field(**first, title=label, json_schema_extra=extra)


def _listed(*names: str) -> Choices:
    return lambda: {name: name for name in names}


def _methods() -> dict[str, str]:
    return {name: m.label for name, m in local_methods().items()} | {name: text for text, name in server_choices()}


def pairs() -> dict[str, str]:
    """The values of the pair's control: the catalogue, configured servers, and models of one's own if allowed."""
    served = {pair_name(name): f"{entry.label} · server" for name, entry in offered().items()}
    own = {} if is_public() else {CUSTOM: "Custom: your own models…"}
    return {entry.id: entry.label for entry in catalog().values()} | served | own


def devices() -> dict[str, str]:
    found = {BEST: "the best here", "cpu": "CPU"}
    found |= {f"cuda:{n}": f"GPU {n}" for n in range(torch.cuda.device_count())}
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU"
    return found | {"auto": "spread (device map)"}


def precision_of(pair: str) -> dict[str, str]:
    """What a pair brings, by parameter: the quantisation of target and draft, type and device."""
    entry = catalog().get(pair)
    own = (entry.target_quantization, entry.draft_quantization, entry.dtype, entry.device) if entry else ()
    usual = {"target-weights": NONE, "draft-weights": NONE, "dtype": "auto", "device": BEST}
    return usual | {name: value for name, value in zip(usual, own, strict=False) if value}


def _first(name: str) -> str:
    return precision_of(next(iter(catalog())))[name]


def _weights() -> dict[str, str]:
    return {NONE: "as they are", **{name: name for name in QUANTIZATIONS}}


class PairChoice(BaseModel):
    """Which models, and how they are held."""

    target: str = _control("", "Target: owner/name on the hub, a folder or a .gguf file", element="custom-target")
    draft: str = _control("", "Draft or EAGLE-3 head, may be empty", element="custom-draft")
    pair: str = _control(lambda: next(iter(catalog())), "Model pair", choices=pairs)
    target_weights: str = _control(
        lambda: _first("target-weights"), "Target weights", element="target-quantization", choices=_weights
    )
    draft_weights: str = _control(
        lambda: _first("draft-weights"), "Draft weights", element="draft-quantization", choices=_weights
    )
    dtype: str = _control(lambda: _first("dtype"), "Type", choices=_listed("auto", *DTYPES))
    device: str = _control(lambda: _first("device"), "Device", choices=devices)


class FirstLane(BaseModel):
    """A lane: its method, and what some methods read of the rest."""

    method: str = _control(FIRST_LANES[0], "Decodes by", choices=_methods)
    gamma: int = _control(_FIRST.gamma, "γ, tokens drafted per round", least=1, most=MAX_GAMMA)
    adaptive_gamma: bool = _control(False, "Adapt γ in every round", link="adaptive")
    tree_nodes: str = _control(
        "0", "Draft tree, tokens per round", choices=_listed("0", *map(str, range(2, MAX_TREE_NODES + 1)))
    )
    acceptance: str = _control(_FIRST.acceptance, "Acceptance", choices=lambda: ACCEPTANCE_RULES)
    p_min: float = _control(_FIRST.p_min, "Least probability of a drafted token, 0 is off", most=1)
    accept_top_k: int = _control(_FIRST.accept_top_k, "Accept among the target's top", least=1)
    lookup_ngram: int = _control(_FIRST.lookup_ngram, "Longest match, tokens", least=1, most=MAX_LOOKUP_NGRAM)
    earlier_outputs: bool = _control(True, "Copy from earlier outputs of this visit too")
    exit_layer: int = _control(0, "Layers that draft, 0 for a third")


class Lane(FirstLane):
    """A lane that may be off."""

    method: str = _control(NO_LANE, "Decodes by", choices=lambda: {**_methods(), NO_LANE: "None"})


class Measured(BaseModel):
    """Where a tab's prompts come from."""

    prompts: str = _control(DOMAINS, "Prompts", element="source", choices=lambda: SOURCES)
    domains: list[str] = _control(lambda: list(by_domain()), "Domains", choices=lambda: _listed(*by_domain())())
    own: str = _control("")


class Sweep(Measured):
    """The tab *Which setting?*."""

    view: str = _control(GAMMAS, choices=lambda: VIEWS)
    budget: int = _control(BUDGET, "Budget, seconds", least=1, most=LONGEST_BUDGET)
    first: int = _control(2, "γ from", link="from", least=1, most=MAX_GAMMA)
    last: int = _control(8, "γ to", link="to", least=1, most=MAX_GAMMA)
    repeats: int = _control(3, "Repeats", least=1, most=MOST_REPEATS)
    prompts: str = _control(PANEL, "Prompts", element="source", choices=lambda: SOURCES)


class Batch(Measured):
    """The tab *Batch*."""

    rows: int = _control(8, f"Rows, or users of a server, up to {MOST_ROWS}", least=1, most=MOST_ROWS)
    repeats: int = _control(3, "Repeats of every size", least=1, most=MOST_REPEATS)


class Losslessness(Measured):
    """The tab *Losslessness*."""

    mode: str = _control(DISTRIBUTION, "Output", choices=lambda: MODES)
    rule: str = _control("sampling", "Acceptance rule", choices=lambda: ACCEPTANCE_RULES)
    drafter: str = _control(
        lambda: first_choice(PARTS).name,
        "Drafts with",
        choices=lambda: {spec.name: spec.label for spec in all_with(PARTS)},
    )
    temperature: float = _control(1.0, "Temperature", least=0.05, most=2)
    runs: int = _control(RUNS, "Pairs of runs", least=25, most=1000)
    tokens: int = _control(TOKENS, "Tokens a run", least=2, most=64)


class PageState(PairChoice):
    """All of it; a field comes after those that its first value and its choices depend on.

    The last five (``PAGE``) are no controls: the open tab, the talk view, the gallery's recording and its speed,
    and whether the open tab's run starts at once.
    """

    prompt: str = _control(lambda: next(iter(by_domain().values()))[0].prompt, "Prompt")
    max_new_tokens: int = _control(
        256,  # a story of the builtin pair has 200
        "Length, tokens",
        link="length",
        element="max-tokens",
        least=1,
        most=lambda: limits().tokens,
    )
    ignore_eos: bool = _control(False, "Ignore the end token: always the full length")
    temperature: float = _control(0.0, "Temperature, 0 is greedy", most=2)
    top_k: int = _control(0, "Top-k, 0 is off")
    top_p: float = _control(1.0, "Top-p, 1 is off", least=0.05, most=1)
    seed: int = _control(0, "Seed")
    chat: bool = _control(True, "Use the chat template")
    engine: str = _control(_FIRST.engine, "Engine of single lanes", choices=lambda: ENGINE_LABELS)
    lane1: FirstLane = Field(default_factory=FirstLane)
    lane2: Lane = Field(default_factory=lambda: Lane(method=FIRST_LANES[1]))
    lane3: Lane = Field(default_factory=lambda: Lane(method=FIRST_LANES[2]))
    lane4: Lane = Field(default_factory=lambda: Lane(method=FIRST_LANES[3]))
    sweep: Sweep = Field(default_factory=Sweep)
    batch: Batch = Field(default_factory=Batch)
    losslessness: Losslessness = Field(default_factory=Losslessness)
    tab: str = _control(TABS[0], choices=_listed(*TABS))
    view: str = _control("page", choices=_listed("page", "talk"))
    recording: int = _control(0, most=lambda: len([*RECORDINGS.glob("*.json")]))
    speed: str = _control("1", choices=_listed(*SPEEDS))
    autorun: bool = _control(False)

    @property
    def lanes(self) -> tuple[FirstLane, ...]:
        return self.lane1, self.lane2, self.lane3, self.lane4

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The state with these values, by parameter, and first values for the rest.

        Values are taken as they are, since a person may not have finished: an empty number is None.
        """
        state = cls()
        for name, (*part, field), _ in _fields():
            if name in values:
                setattr(getattr(state, part[0]) if part else state, field, values[name])
        return state


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field as links and controls know it."""

    name: str  # in links
    path: tuple[str, ...]  # in ``PageState``
    kind: str  # ``text``, ``choice``, ``whole``, ``number``, ``switch``, or ``several`` of the choices
    default: Any  # what the page begins with
    label: str  # of its control
    element: str  # the id of its control; empty for what is no control
    choices: Mapping[str, str]  # for ``choice`` and ``several``: the values, and what people read
    least: float
    most: float  # for ``whole`` and ``number``


_KINDS = {str: "text", int: "whole", float: "number", bool: "switch", list[str]: "several"}


def parameters() -> tuple[Parameter, ...]:
    """The fields of ``PageState``, in their order, as they are on this machine now."""
    first = PageState()
    made: dict[Any, Mapping[str, str]] = {None: {}}  # lanes have the same choices
    found = []
    for name, path, info in _fields():
        extra: Any = info.json_schema_extra
        choices, least, most = extra["choices"], extra["least"], extra["most"]
        if choices not in made:
            made[choices] = choices()
        kind = "choice" if choices and info.annotation is str else _KINDS[info.annotation or str]
        default, label = reduce(getattr, path, first), info.title or ""
        element = "" if path[0] in PAGE else "-".join((*path[:-1], extra["element"] or name.rpartition(".")[2]))
        most = most() if callable(most) else most
        found.append(Parameter(name, path, kind, default, label, element, made[choices], least, most))
    return tuple(found)


def parameter_of(*path: str) -> str:
    """The name in links of the field at a path, such as ``("lane3", "gamma")``."""
    return next(name for name, found, _ in _fields() if found == path)


@cache
def _fields() -> tuple[tuple[str, tuple[str, ...], FieldInfo], ...]:
    """The name in links, the path and the description of each field."""
    found = []
    for name, info in PageState.model_fields.items():
        part = info.annotation
        inner = part.model_fields if isinstance(part, type) and issubclass(part, BaseModel) else None
        for field, each in {name: info}.items() if inner is None else inner.items():
            extra: Any = each.json_schema_extra
            link = extra["link"] or field.replace("_", "-")
            prefix = "" if inner is None or name == SHORT_LANE else f"{name}."
            found.append((prefix + link, (field,) if inner is None else (name, field), each))
    return tuple(found)


def of_lanes(field: str) -> tuple[str, ...]:
    """The names in links of a field of every lane."""
    return tuple(parameter_of(f"lane{number}", field) for number in range(1, len(FIRST_LANES) + 1))


METHOD_PARAMETERS = of_lanes("method")


WORDS = {"strategy": "Decodes by"}
"""What the page calls a field or parameter: the label up to a comma or colon, behind which it explains."""
for _name, (*_, _field), _info in _fields():
    if _info.title:
        WORDS[_field] = WORDS[_name] = re.split("[,:]", _info.title)[0]
FIELD = re.compile(r"(?P<before>^|^Lane \d+, )(?P<field>\w+): ")


def in_page_words(message: str) -> str:
    """The message with the field that it begins with, after its lane, called as on the page."""

    def named(found: re.Match[str]) -> str:
        field = found["field"]
        return f"{found['before']}{WORDS[field]}: " if field in WORDS else found[0]

    # What holds for no lane in particular begins with its reason.
    text = FIELD.sub(named, message, count=1)
    # Other small letters begin a model's name, or are a γ.
    return re.sub("^(lanes: )?([a-z])(?=[a-z]*(?(1)|:) )", lambda found: found[2].upper(), text)
