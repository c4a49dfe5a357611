"""What a link can say: one field for every control of the page, and the rules by which defaults depend on others.

The browser gets the same table as JSON and writes links with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from specdemo.drafters import DRAFTERS, PARTS, first_choice
from specdemo.losslessness.certify import RUNS, TOKENS
from specdemo.models.catalog import catalog
from specdemo.models.request import DTYPES, QUANTIZATIONS, is_public
from specdemo.runs.prompts import by_domain
from specdemo.settings import (
    ACCEPTANCE_RULES,
    LARGEST_WHOLE,
    MAX_GAMMA,
    MAX_LOOKUP_NGRAM,
    MAX_TREE_NODES,
    Settings,
)
from specdemo.ui.jobs.limits import limits
from specdemo.ui.panel.controls import ENGINES, chats
from specdemo.ui.panel.methods import FIRST_LANES, NO_LANE, PLAIN, local_methods, methods_on, server_choices
from specdemo.ui.panel.pair_controls import CUSTOM, NONE, devices, held_as, parts_of
from specdemo.ui.panel.prompt_source import DOMAINS, OWN, PANEL
from specdemo.ui.panel.run_row import TABS
from specdemo.ui.panel.server_choice import pair_choices, server_of
from specdemo.ui.tabs.batch import MOST_REPEATS as MOST_BATCH_REPEATS
from specdemo.ui.tabs.batch import MOST_ROWS
from specdemo.ui.tabs.losslessness import DISTRIBUTION, GREEDY
from specdemo.ui.tabs.recordings_panel import shipped
from specdemo.ui.tabs.sweep import BUDGET, GAMMAS, LONGEST_BUDGET, MOST_REPEATS, VIEWS
from specdemo.view.assets import SPEEDS

LONGEST_LINK = 16_000
"""Characters. Browsers take more, but the programs in which links are sent on do not."""

SHORT_LANE = 2
"""The lane whose parameters need no number, since it is the first that drafts."""

HELD = ("target-weights", "draft-weights", "dtype", "device")


FORMER = {
    "sweep.tokens": ("sweep", "length"),
    "batch.tokens": ("batch", "length"),
    "losslessness.gamma": ("losslessness", "gamma"),
}
"""Parameters of links from when tabs had a length or a γ of their own: the tab, and what it is now."""


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter of a link.

    Attributes:
        name: of the parameter.
        kind: ``text``, ``choice``, ``whole``, ``number``, ``switch``, or ``several`` of the choices.
        default: what the page begins with. Where it is None only the server knows it: it is always written.
        element: the id of its control; empty for what is no control.
        choices: for ``choice`` and ``several``.
        least, most: for ``whole`` and ``number``.
    """

    name: str
    kind: str
    default: Any
    element: str = ""
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = LARGEST_WHOLE


@dataclass(frozen=True, slots=True)
class Rule:
    """What other fields begin with while a field has this value, or has another; later rules prevail."""

    field: str
    value: Any
    negated: bool
    defaults: Mapping[str, Any]


def link_fields() -> tuple[Field, ...]:
    """All of them; a field comes after those that its default and its choices depend on."""
    return (*race_fields(), *_sweep(), *_batch(), *_losslessness(), *_page())


def race_fields() -> list[Field]:
    """Those of the controls that a race reads, in their order."""
    lanes = [field for number in _numbers() for field in _lane(number)]
    return [*_pair(), *_shared(), *lanes]


def link_rules() -> tuple[Rule, ...]:
    """How the choice of a pair, of a temperature and of a check changes what else the page begins with."""
    rules = [] if is_public() else [Rule("target", "", True, {"pair": CUSTOM})]
    for name in _pairs():
        defaults = {**dict(zip(HELD, held_as(name), strict=True)), "chat": chats(name)}
        rules.append(Rule("pair", name, False, defaults | _lanes_of(name)))
    warm = {lane_field(number, "acceptance"): "sampling" for number in _numbers()}
    return (
        *rules,
        Rule("temperature", 0, True, warm),
        Rule("losslessness.mode", GREEDY, False, {"losslessness.rule": "exact"}),
    )


def table() -> dict[str, Any]:
    """The table for links.js, as plain data; rules compare texts there, as they stand in a link."""
    rules = [
        {"field": r.field, "text": str(r.value), "negated": r.negated, "defaults": dict(r.defaults)}
        for r in link_rules()
    ]
    return {"fields": [asdict(f) for f in link_fields()], "rules": rules, "longest": LONGEST_LINK}


def lane_field(number: int, name: str) -> str:
    """What a lane's parameter is called."""
    return name if number == SHORT_LANE else f"lane{number}.{name}"


METHOD_FIELDS = tuple(lane_field(number, "method") for number in range(1, len(FIRST_LANES) + 1))


def _lanes_of(pair: str) -> dict[str, Any]:
    """What the lanes begin with on a server, or on a pair that has not every part."""
    server = server_of(pair)
    if server is not None:
        lanes = dict(zip(METHOD_FIELDS, methods_on(server, FIRST_LANES), strict=True))
        return {**lanes, "losslessness.drafter": first_choice(parts_of(pair, None, None)).name}
    drafting = [f for f, first in zip(METHOD_FIELDS, FIRST_LANES, strict=True) if first not in (PLAIN, NO_LANE)]
    if pair == CUSTOM:  # its names say what it has
        return dict.fromkeys([*drafting, "losslessness.drafter"])
    spec = first_choice(catalog()[pair].parts)
    if spec == first_choice(PARTS):
        return {}
    return {**dict.fromkeys(drafting, spec.method), "losslessness.drafter": spec.name}


def _numbers() -> range:
    return range(1, len(FIRST_LANES) + 1)


def _pairs() -> list[str]:
    return [*catalog(), *(name for _, name in pair_choices()), *([] if is_public() else [CUSTOM])]


def _pair() -> list[Field]:
    first = next(iter(catalog()))
    weights = (NONE, *QUANTIZATIONS)
    target, draft, dtype, device = held_as(first)
    return [
        Field("target", "text", "", "custom-target"),
        Field("draft", "text", "", "custom-draft"),
        Field("pair", "choice", first, "pair", tuple(_pairs())),
        Field("target-weights", "choice", target, "target-quantization", weights),
        Field("draft-weights", "choice", draft, "draft-quantization", weights),
        Field("dtype", "choice", dtype, "dtype", ("auto", *DTYPES)),
        Field("device", "choice", device, "device", tuple(name for _, name in devices())),
    ]


def _shared() -> list[Field]:
    defaults = Settings()
    first = next(iter(by_domain().values()))[0].prompt
    return [
        Field("prompt", "text", first, "prompt"),
        Field("length", "whole", defaults.max_new_tokens, "max-tokens", least=1, most=limits().tokens),
        Field("ignore-eos", "switch", False, "ignore-eos"),
        Field("temperature", "number", 0, "temperature", most=2),
        Field("top-k", "whole", 0, "top-k"),
        Field("top-p", "number", 1, "top-p", least=0.05, most=1),
        Field("seed", "whole", 0, "seed"),
        Field("chat", "switch", True, "chat"),
        Field("engine", "choice", defaults.engine, "engine", tuple(ENGINES)),
    ]


def _lane(number: int) -> list[Field]:
    defaults = Settings()
    methods = (*local_methods(), *(name for _, name in server_choices()), *([NO_LANE] if number > 1 else []))
    fields = [
        Field("method", "choice", FIRST_LANES[number - 1], choices=methods),
        Field("gamma", "whole", defaults.gamma, least=1, most=MAX_GAMMA),
        Field("adaptive", "switch", False),
        Field("tree-nodes", "choice", "0", choices=("0", *map(str, range(2, MAX_TREE_NODES + 1)))),
        Field("acceptance", "choice", defaults.acceptance, choices=tuple(ACCEPTANCE_RULES)),
        Field("accept-top-k", "whole", defaults.accept_top_k, least=1),
        Field("lookup-ngram", "whole", defaults.lookup_ngram, least=1, most=MAX_LOOKUP_NGRAM),
        Field("exit-layer", "whole", 0),
    ]
    return [replace(f, name=lane_field(number, f.name), element=f"lane{number}-{f.name}") for f in fields]


def _sweep() -> list[Field]:
    return [
        Field("sweep.view", "choice", GAMMAS, "sweep-view", VIEWS),
        Field("sweep.budget", "whole", BUDGET, "sweep-budget", least=1, most=LONGEST_BUDGET),
        Field("sweep.from", "whole", 2, "sweep-from", least=1, most=MAX_GAMMA),
        Field("sweep.to", "whole", 8, "sweep-to", least=1, most=MAX_GAMMA),
        Field("sweep.repeats", "whole", 3, "sweep-repeats", least=1, most=MOST_REPEATS),
        *_prompts("sweep", PANEL),
    ]


def _batch() -> list[Field]:
    return [
        Field("batch.rows", "whole", 8, "batch-rows", least=1, most=MOST_ROWS),
        Field("batch.repeats", "whole", 3, "batch-repeats", least=1, most=MOST_BATCH_REPEATS),
        *_prompts("batch", DOMAINS),
    ]


def _prompts(tab: str, first: str) -> list[Field]:
    """Where a tab's prompts come from. A file cannot be in a link."""
    names = tuple(by_domain())
    return [
        Field(f"{tab}.prompts", "choice", first, f"{tab}-source", (PANEL, DOMAINS, OWN)),
        Field(f"{tab}.domains", "several", list(names), f"{tab}-domains", names),
        Field(f"{tab}.own", "text", "", f"{tab}-own"),
    ]


def _losslessness() -> list[Field]:
    own = [
        Field("mode", "choice", DISTRIBUTION, choices=(DISTRIBUTION, GREEDY)),
        Field("rule", "choice", "sampling", choices=tuple(ACCEPTANCE_RULES)),
        Field("drafter", "choice", first_choice(PARTS).name, choices=tuple(DRAFTERS)),
        Field("temperature", "number", 1, least=0.05, most=2),
        Field("runs", "whole", RUNS, least=25, most=1000),
        Field("tokens", "whole", TOKENS, least=2, most=64),
    ]
    return [replace(f, name=f"losslessness.{f.name}", element=f"losslessness-{f.name}") for f in own]


def _page() -> list[Field]:
    """What is no control: the tab, the view, the recording, and whether to run at once."""
    return [
        Field("tab", "choice", TABS[0], choices=TABS),
        Field("view", "choice", "page", choices=("page", "talk")),
        Field("recording", "whole", 0, most=len(shipped())),
        Field("speed", "choice", "1", choices=SPEEDS),
        Field("autorun", "switch", False),
    ]
