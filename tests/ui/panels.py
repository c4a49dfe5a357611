"""Panels that a person could have set, for tests without a browser."""

from __future__ import annotations

from typing import Any

from specdemo.ui.state.methods import NO_LANE
from specdemo.ui.state.request import PanelRequest, panel_request
from specdemo.ui.state.state import FirstLane, Lane, PageState


def panel(*lanes: str | dict[str, Any], **shared: Any) -> PanelRequest:
    """What a panel asks for with these lanes, each by its method or by several fields; the others are off."""
    given = [{"method": lane} if isinstance(lane, str) else lane for lane in lanes]
    given += [{"method": NO_LANE}] * (4 - len(lanes))
    kinds = (FirstLane, Lane, Lane, Lane)
    made = {
        f"lane{number}": kind.model_construct(**{"gamma": 4, **fields})
        for number, (kind, fields) in enumerate(zip(kinds, given, strict=True), start=1)
    }
    return panel_request(PageState().model_copy(update={"max_new_tokens": 64, **shared, **made}))
