"""LM Studio: OpenAI's API, whose last event tells how many tokens were drafted and accepted in all.

Field names: lmstudio.ai/docs/developer/api-changelog, LM Studio 0.3.10, and docs/developer/rest/endpoints. It
tells neither token ids nor verify steps.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from specdemo.server_record import Counts
from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import ServerPages, Wanted
from specdemo.servers.engines.openai import OpenAI
from specdemo.servers.response import Chunk, Response, count, entry, seconds
from specdemo.servers.speculation import totals


class LMStudio(OpenAI):
    """Its ``stats`` stand in the last event."""

    name: ClassVar[str] = "LM Studio"
    repetition_penalty: ClassVar[str] = "repeat_penalty"

    def __init__(self) -> None:
        self._stats: dict[str, Any] = {}

    @classmethod
    def recognized(cls, pages: ServerPages) -> Self | None:
        if pages.owner != "organization_owner":
            return None
        match pages.json("/api/v0/models"):
            case {"data": [{"compatibility_type": _}, *_]}:
                return cls()
        return None

    def read(self, response: Response, event: dict[str, Any], arrived: float) -> list[Chunk]:
        self._stats = entry(event, "stats", dict) or self._stats
        return super().read(response, event, arrived)

    def finish(self, connection: Connection, wanted: Wanted, response: Response) -> None:
        response.prefill_seconds = seconds(self._stats, "time_to_first_token", 1)
        response.decode_seconds = seconds(self._stats, "generation_time", 1)
        names = ("total_draft_tokens_count", "accepted_draft_tokens_count")
        drafted, accepted = (count(self._stats, name) for name in names)
        if drafted is not None and accepted is not None:
            response.speculation = totals(Counts(None, drafted, accepted))
