"""What a trace holds on the server that its lane ran on: neither an address nor a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["detailed", "summary", "metrics", "speed"]
"""How much is known of the server's speculation, from the most to the least.

``detailed``: what every verify step drafted and accepted. ``summary``: the request's totals. ``metrics``: in
traces of earlier versions, from the server's counters. ``speed``: nothing but the text and its times.
"""

LEVELS: dict[Level, str] = {
    "detailed": "rounds from the server's own record",
    "summary": "totals from the server's own record",
    "metrics": "totals from the server's counters",
    "speed": "speed only",
}
"""Each level in a few words, for people."""


IN_TURN = "the lanes ran one after the other, since this server is on this machine."
"""The note of a lane whose server takes computing time from the others of its race."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of one request's speculation."""

    steps: int | None  # verify steps in which anything was drafted; None if unknown
    # drafted, accepted: tokens over all steps. The last step counts whole, even if the output's end cut it.
    drafted: int
    accepted: int
    gamma: int | None = None  # the most tokens the server drafts in a step; None if unknown
    histogram: tuple[int, ...] | None = None  # steps with i accepted tokens, i from 0; None if unknown


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What is known of a lane that ran on a server. Its clock is the client's, network included."""

    name: str  # of the pair of deployments, as configured
    model: str  # the model's name in the request
    chat: bool  # whether the server applied its chat template
    level: Level = "speed"  # how much is known of its speculation
    counts: Counts | None = None  # totals of the speculation; None at the level ``speed``
    # completion_tokens, prompt_tokens: as the server counted them; None if it did not
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    token_ids: bool = False  # whether it sent token ids; without them each "token" of the trace is a piece of text
    network_seconds: float | None = None  # median time of a few empty requests; None if none succeeded
    engine: str = ""  # what the server runs, as it says of itself; empty in older traces
    # prefill_seconds, decode_seconds: of the request, on the server's own clock; None if it does not tell
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    incomplete: str | None = None  # why the response broke off; None if it did not
    notes: tuple[str, ...] = ()  # sentences for people on what did not add up or is unknown
    obeyed: bool = False  # whether it was started with the lane's settings, so that drafter and γ are those
    slots: int | None = None  # requests that the server answers at the same time; None if it does not say

    @property
    def gamma(self) -> int | None:
        """The most tokens the server drafts in a step; None if unknown."""
        return self.counts.gamma if self.counts else None
