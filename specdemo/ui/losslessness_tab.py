"""The losslessness tab."""

from __future__ import annotations

from specdemo.models.store import PairStore
from specdemo.ui.controls import Controls
from specdemo.ui.stops import Stops


def create_losslessness_tab(controls: Controls, store: PairStore) -> Stops:
    """Build the tab in the current layout; returns the visitors' stop signals."""
    return Stops()
