"""What a trace knows of the server that its lane ran on; no address, no key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["detailed", "summary", "metrics", "speed"]
"""How much a server told of its speculation, the most first.

``detailed``: what every verify step drafted and accepted. ``summary``: this request's totals. ``metrics``: the
server's counters before and after, when nothing else ran. ``speed``: nothing, only the text came.
"""

LEVELS: dict[Level, str] = {
    "detailed": "rounds from the server's own record",
    "summary": "totals from the server's own record",
    "metrics": "totals from the server's counters",
    "speed": "speed only",
}
"""Each level in a few words, for people."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of one request's speculation.

    Attributes:
        steps: verify steps in which anything was drafted.
        drafted, accepted: tokens over all steps. The last step counts whole, though an end may have cut it.
        gamma: the most tokens the server drafts in a step; None if it does not say.
        histogram: steps with i accepted tokens, i from 0; None if unknown.
        per_position: steps with more than j accepted tokens, j from 0; None if unknown.
    """

    steps: int
    drafted: int
    accepted: int
    gamma: int | None = None
    histogram: tuple[int, ...] | None = None
    per_position: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What is known of a lane that ran on a server.

    Its clock is the client's: seconds from the request until each chunk was there, network included.

    Attributes:
        name: of the deployment, as it was configured.
        model: what was asked for by name.
        chat: whether the server put the prompt into its chat template.
        level: how much it told of its speculation.
        counts: totals of the speculation; None at the level ``speed``.
        completion_tokens, prompt_tokens: as the server counted them; None if it did not.
        token_ids: whether it gave token ids; without them each "token" of the trace is a piece of text.
        network_seconds: the median of a few empty requests there and back; None if none was answered.
        incomplete: why the answer broke off; None if it did not.
        notes: sentences for people: what did not add up, what the server does not know.
    """

    name: str
    model: str
    chat: bool
    level: Level = "speed"
    counts: Counts | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    token_ids: bool = False
    network_seconds: float | None = None
    incomplete: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def gamma(self) -> int | None:
        """The most tokens the server drafts in a step; None if it does not say."""
        return self.counts.gamma if self.counts else None
