"""The panel as one request: its state becomes the settings of its lanes, here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from specdemo.errors import SettingsError, SpecDemoError
from specdemo.models.request import PairRequest
from specdemo.settings import Settings
from specdemo.ui.jobs.job import LaneRequest
from specdemo.ui.state.lanes import lane_settings, whole
from specdemo.ui.state.methods import UNQUANTIZED
from specdemo.ui.state.pairs import pair_request
from specdemo.ui.state.server_choice import server_of
from specdemo.ui.state.state import PageState

SHARED = tuple(field.name for field in fields(Settings) if field.name in PageState.model_fields)
"""The settings that all lanes share."""
NO_LANE_DRAFTS = "no lane drafts in a way that could be measured; set one to “Speculative: …” in the panel."
NO_LANE_THERE = "no lane of the panel drafts on this server; set one to “Speculative”."


@dataclass(frozen=True, slots=True)
class PanelLane:
    """A lane of the panel.

    Attributes:
        number: which one, from 1.
        settings: of the lane.
        unquantized: whether it runs on the target's unquantised weights.
    """

    number: int
    settings: Settings
    unquantized: bool


@dataclass(frozen=True, slots=True)
class PanelRequest:
    """What the panel asks for.

    Attributes:
        state: of the page; the pair that it names need only be valid where a lane runs here.
        prompt: of all lanes.
        lanes: those that are on.
    """

    state: PageState
    prompt: str
    lanes: tuple[PanelLane, ...]

    @property
    def server(self) -> str | None:
        """The server that stands in the pair's place, if one does."""
        return server_of(self.state.pair)

    @property
    def pair(self) -> PairRequest:
        """The chosen models.

        Raises:
            PairError: a server stands in their place, or they cannot be had.
        """
        return pair_request(self.state)

    def lane_requests(self) -> tuple[LaneRequest, ...]:
        """The lanes, each with the pair that decodes it.

        Raises:
            PairError: a lane runs here, and ``pair`` raises it.
        """
        pair = self.pair if any(lane.settings.server is None for lane in self.lanes) else None

        def pair_of(lane: PanelLane) -> PairRequest | None:
            if lane.settings.server is not None or pair is None:
                return None
            return pair.unquantized_target() if lane.unquantized else pair

        return tuple(LaneRequest(lane.settings, pair_of(lane)) for lane in self.lanes)

    def drafting_lane(self) -> PanelLane:
        """The lane that measurements take: the first that drafts with our own loop, or on the chosen server.

        They measure chains, so its tree is left out.

        Raises:
            SettingsError: none does.
        """
        for lane in self.lanes:
            away = lane.settings.server is not None
            if lane.settings.strategy == "speculative" and away == (self.server is not None):
                return replace(lane, settings=replace(lane.settings, tree_nodes=0))
        raise SettingsError("lanes", NO_LANE_DRAFTS if self.server is None else NO_LANE_THERE)


def panel_request(state: PageState) -> PanelRequest:
    """What the panel of a page in this state asks for.

    Raises:
        SettingsError: a value is missing or out of range; names the field.
        SpecDemoError: the same for one lane; names its number too.
    """
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
