"""How each visitor's components are: as Gradio keeps it, less what is for links that this page does not offer."""

from __future__ import annotations

from copy import copy
from typing import Any

from gradio.components import State
from gradio.state_holder import SessionState, StateHolder


class Session(SessionState):
    """One visitor's components, where they differ from the page's.

    Gradio also builds a description of every component for each visitor, which takes 45 ms of the server's time,
    and keeps all that was shown to them in it, for its "deep links".
    """

    def __init__(self, blocks: Any) -> None:
        self.blocks_config = copy(blocks.default_config)
        self.config_values: dict[int, Any] = {}
        self.state_data: dict[int, Any] = {}
        self._state_ttl: dict[int, Any] = {}
        self.is_closed = False
        self.STATE_TTL_WHEN_CLOSED = 3600

    def __setitem__(self, key: int, value: Any) -> None:
        if isinstance(self.blocks_config.blocks.get(key), State):
            super().__setitem__(key, value)
            self.config_values.clear()
        else:
            self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


class Sessions(StateHolder):
    """The sessions of all visitors, up to the page's capacity; the longest unused goes first."""

    def __getitem__(self, session: str) -> SessionState:
        if session not in self.session_data:
            self.session_data[session] = Session(self.blocks)
        return super().__getitem__(session)
