"""What the page's state asks for: the chosen pair, the settings of each lane, and both as one request."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from specdemo.drafters import GGUF
from specdemo.errors import PairError, SettingsError, SpecDemoError
from specdemo.models.eagle3_config import named_like_head
from specdemo.models.mtp_head import named_like_mtp
from specdemo.models.request import PairRequest, catalog, names_gguf, request_pair
from specdemo.servers.catalog import offered
from specdemo.settings import MAX_GAMMA, TREE_RULES, Settings
from specdemo.ui.jobs.job import LaneRequest
from specdemo.ui.state.methods import (
    NO_LANE,
    UNQUANTIZED,
    Method,
    find_method,
    local_methods,
    needs_models,
    server_of,
)
from specdemo.ui.state.state import BEST, CUSTOM, FirstLane, PageState, PairChoice

OPTIONS = tuple(FirstLane.model_fields)[1:]
"""The fields of a lane besides its method; each is a setting."""
OF_RULES = {"tree_nodes": TREE_RULES, "accept_top_k": ("top_k",)}
"""The acceptance rules without which an option is not read."""
SHARED = tuple(field.name for field in fields(Settings) if field.name in PageState.model_fields)
"""The settings that all lanes share."""
NO_LANE_DRAFTS = "no lane drafts in a way that could be measured; set one to “Speculative: …” in the panel."
NO_LANE_THERE = "no lane of the panel drafts on this server; set one to “Speculative”."


@dataclass(frozen=True, slots=True)
class PanelLane:
    """A lane of the panel."""

    number: int  # which one, from 1
    settings: Settings  # of the lane
    unquantized: bool  # whether it runs on the target's unquantised weights


@dataclass(frozen=True, slots=True)
class PanelRequest:
    """What the panel asks for."""

    state: PageState  # of the page; the pair that it names need only be valid where a lane runs here
    prompt: str  # of all lanes
    lanes: tuple[PanelLane, ...]  # those that are on

    @property
    def server(self) -> str | None:
        """The server that stands in the pair's place, if one does."""
        return server_of(self.state.pair)

    @property
    def pair(self) -> PairRequest:
        """The chosen models; raises PairError where a server stands in their place, or they cannot be had."""
        return pair_request(self.state)

    def lane_requests(self) -> tuple[LaneRequest, ...]:
        """The lanes, each with the pair that decodes it; raises PairError where one lacks it."""
        pair = self.pair if any(lane.settings.server is None for lane in self.lanes) else None

        def pair_of(lane: PanelLane) -> PairRequest | None:
            if lane.settings.server is not None or pair is None:
                return None
            return pair.unquantized_target() if lane.unquantized else pair

        return tuple(LaneRequest(lane.settings, pair_of(lane)) for lane in self.lanes)

    def drafting_lane(self) -> PanelLane:
        """The lane that measurements take: the first that drafts with our own loop, or on the chosen server.

        They measure chains, so its tree is left out. Raises SettingsError where no lane does.
        """
        for lane in self.lanes:
            away = lane.settings.server is not None
            if lane.settings.strategy == "speculative" and away == (self.server is not None):
                return replace(lane, settings=replace(lane.settings, tree_nodes=0))
        raise SettingsError("lanes", NO_LANE_DRAFTS if self.server is None else NO_LANE_THERE)


def panel_request(state: PageState) -> PanelRequest:
    """What the panel of a page asks for; raises SpecDemoError, which names the lane and the field."""
    shared = _shared(state)
    lanes = []
    for number, lane in enumerate(state.lanes, start=1):
        try:
            settings = lane_settings(lane, **shared)
        except SettingsError as error:
            raise SpecDemoError(f"Lane {number}, {error}") from error
        if settings is not None:
            lanes.append(PanelLane(number, settings, lane.method == UNQUANTIZED))
    return PanelRequest(state, state.prompt or "", tuple(lanes))


def _shared(state: PageState) -> dict[str, Any]:
    given = {name: getattr(state, name) for name in SHARED}
    for name in ("top_k", "seed", "max_new_tokens"):
        given[name] = whole(name, given[name])
    given["chat"] = None if given["chat"] else False
    Settings(strategy="autoregressive", **given)  # what is wrong for all lanes is said once, without a lane
    return given


def lane_settings(lane: FirstLane, **shared: Any) -> Settings | None:
    """One lane's settings, or None for no lane; raises SettingsError, which names the field.

    Only the options that its method reads are read: one that is hidden cannot be wrong.
    """
    if lane.method == NO_LANE:
        return None
    chosen = find_method(lane.method)
    if chosen is None:
        raise SettingsError(
            "method", f"{lane.method!r:.80} is not known; choose one of {', '.join(local_methods())}."
        )
    if chosen.server is not None:  # γ and the rule, which is lossless, are the server's own
        served = {
            "engine": "server",
            "server": chosen.server,
            "acceptance": "sampling" if shared.get("temperature") else "exact",
            # Whether a server has a template is not known here, so the box is taken at its word.
            "chat": shared.get("chat") is not False,
        }
        return Settings(strategy=chosen.strategy, **{**shared, **served})
    read = {name: _option(name, getattr(lane, name)) for name in shown_options(lane.method, lane.acceptance)}
    drafter: dict[str, Any] = {"drafter": chosen.drafter.name} if chosen.drafter else {}
    if chosen.engine is not None:
        rule = "sampling" if shared.get("temperature") else "exact"
        shared = {**shared, "engine": chosen.engine, "acceptance": rule}
    return Settings(strategy=chosen.strategy, **drafter, **read, **shared)


def option_values(settings: Settings) -> list[Any]:
    """What a lane's controls hold for its settings, in the order of ``OPTIONS``: the way back."""
    values = {name: getattr(settings, name) for name in OPTIONS}
    return [*(values | {"tree_nodes": str(settings.tree_nodes), "exit_layer": settings.exit_layer or 0}).values()]


def shown_options(method: str, acceptance: str) -> list[str]:
    """The options that a method reads with an acceptance rule, which are the ones that are shown."""
    return [name for name in _read_by(find_method(method)) if acceptance in OF_RULES.get(name, (acceptance,))]


def lane_table() -> dict[str, Any]:
    """For panel.js: what :func:`shown_options` goes by."""
    methods = {name: _read_by(method) for name, method in local_methods().items()}
    return {"options": OPTIONS, "rules": OF_RULES, "methods": methods, "most": MAX_GAMMA}


def _read_by(method: Method | None) -> list[str]:
    """The options of a method, some of them with some acceptance rules only; none of a server's method."""
    if method is None or method.drafter is None:
        return []
    ours = method.strategy == "speculative" and method.engine is None
    read = {
        "gamma": True,
        # transformers adapts to a draft model only
        "adaptive_gamma": ours or (method.drafter.needs == "draft" and method.engine is None),
        "tree_nodes": ours and method.drafter.trees,
        "acceptance": ours,
        "accept_top_k": ours,
        # Nothing of transformers' prompt lookup, and of llama.cpp's copies, is less likely than that.
        "p_min": ours or not method.drafter.copies,
    }
    return [name for name in OPTIONS if read.get(name, name in method.drafter.reads)]


def _option(name: str, value: Any) -> Any:
    if name == "acceptance":
        return value
    if name in ("adaptive_gamma", "earlier_outputs"):
        return bool(value)
    if name == "tree_nodes":
        text = str(value).strip()
        return int(text) if text.isdecimal() else text  # which Settings refuses
    number = whole(name, value)
    return None if name == "exit_layer" and number == 0 else number  # 0 leaves the choice to the drafter


def whole(field: str, value: float | None) -> int | float:
    """JSON knows one kind of number; what is whole becomes an int, the rest is left for Settings to refuse."""
    if value is None:
        raise SettingsError(field, "is empty; give a whole number.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def pair_request(choice: PairChoice) -> PairRequest:
    """The pair that is chosen; raises PairError where none is, or a name is unknown."""
    server = server_of(choice.pair)
    if server is not None:
        raise PairError(f"pair: {needs_models(server)}")
    device = None if choice.device == BEST else choice.device
    precision = (device, choice.dtype, choice.target_weights, choice.draft_weights)
    if choice.pair != CUSTOM:
        return request_pair(choice.pair, *precision)
    typed = [part.strip() for part in (choice.target or "", choice.draft or "")]
    if not typed[0]:
        raise PairError(
            "target: it is empty; type a repository of the hub (owner/name), or the path of a folder or GGUF file."
        )
    return request_pair([part for part in typed if part], *precision)


def named(choice: PairChoice) -> bool:
    return choice.pair != CUSTOM or bool((choice.target or "").strip())


def parts_of(pair: str, target: str | None = None, draft: str | None = None) -> frozenset[str]:
    """What the chosen pair has besides its target; a draft is assumed until a custom target alone is typed in."""
    if server_of(pair) is not None:  # it drafts by itself
        return frozenset({"draft"})
    if pair != CUSTOM:
        return catalog()[pair].parts
    first, second = (target or "").strip(), (draft or "").strip()
    kind = ({GGUF} if names_gguf(first) else set()) | ({"mtp"} if named_like_mtp(first) else set())
    if second and named_like_head(second):
        return frozenset({"head", *kind})
    return frozenset({"draft", *kind} if second or not first else kind)


def chats(pair: str) -> bool:
    """Whether a pair's prompts go into its chat template unless one says otherwise."""
    server = server_of(pair)
    if server is not None:
        entry = offered().get(server)
        return entry is None or entry.pair.chat
    return pair not in catalog() or catalog()[pair].chat
