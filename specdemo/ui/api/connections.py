"""Connections to a public page, before any request stands in them: bounded by address, and in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http import auto

from specdemo.ui.api.addresses import is_proxy
from specdemo.ui.jobs.limits import network_of

CONNECTIONS = 200  # of one address; a process may often have no more than 1,024 files and connections
HEADER_SECONDS = 10.0  # for the head of a request to arrive, from the connection or from the last answer on


_Protocol: Any = auto.AutoHTTPProtocol  # the quicker one of those that are installed


class BoundedConnection(_Protocol):
    """One connection; the server's own protocol waits for ever for the rest of a head."""

    def connection_made(self, transport: Any) -> None:
        """As the server's; one too many of an address ends at once."""
        super().connection_made(transport)
        self._watch: asyncio.TimerHandle | None = None
        self._look(object())
        address, _ = self.client or ("0.0.0.0", 0)
        self.network = network_of(address)
        alike = sum(getattr(c, "network", None) == self.network for c in self.connections)
        # Through a trusted proxy come many visitors, whose requests are counted by the gate.
        if alike > CONNECTIONS and not is_proxy(address):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _look(self, last: object) -> None:
        """End a connection that has had no request since the last look, and no answer under way."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is last:
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(HEADER_SECONDS, self._look, self.cycle)
