"""The greedy check: every position of a greedy lane against the target's own choice there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from specdemo.losslessness.compare import TIE_MARGIN
from specdemo.trace import Trace

Outcome = Literal["identical", "tie", "diverged"]


@dataclass(frozen=True, slots=True)
class Position:
    """One emitted token.

    Attributes:
        outcome: ``identical``: it is the target's best; ``tie``: another is better, by no more than rounding;
            ``diverged``: another is better.
        margin: logits from the best other token up to this one, negative where that is better; None where the
            warpers leave nothing to compare.
        id, text: the emitted token.
        best_id, best_text: the target's best; the text is empty where it is not known.
    """

    outcome: Outcome
    margin: float | None
    id: int
    text: str
    best_id: int
    best_text: str


@dataclass(frozen=True)
class GreedyCheck:
    """The judgement on all positions of one lane.

    Attributes:
        positions: in order, the first is the prefill's token.
        tie_margin: logits that count as rounding, for the target's number type.
        lossless: whether the lane's rule is meant to be.
    """

    positions: tuple[Position, ...]
    tie_margin: float
    lossless: bool

    def places(self, outcome: Outcome) -> list[int]:
        """Positions of that outcome, from 0."""
        return [i for i, position in enumerate(self.positions) if position.outcome == outcome]

    @property
    def outcome(self) -> Outcome:
        """The worst of all positions."""
        return "diverged" if self.places("diverged") else "tie" if self.places("tie") else "identical"

    @property
    def text(self) -> str:
        """One line for people."""
        count = len(self.positions)
        ties, diverged = self.places("tie"), self.places("diverged")
        if diverged:
            first = self.positions[diverged[0]]
            why = "" if self.lossless else "; the rule is lossy"
            return (
                f"{len(diverged)} of {_positions(count)} diverged{why}. The first is {diverged[0] + 1}: "
                f"“{first.text.strip()}” where the target prefers “{first.best_text.strip()}”{_by(first)}."
            )
        if ties:
            widest = min(self.positions[i].margin or 0.0 for i in ties)
            return (
                f"{count - len(ties)} of {_positions(count)} are identical and {len(ties)} a numerical tie, where "
                f"two tokens are at most {-widest:.1g} logits apart: rounding decides."
            )
        which = "The 1 position is" if count == 1 else f"All {count:,} positions are"
        return f"{which} the target's own best token: identical to plain greedy decoding."

    def to_json(self) -> str:
        """This record as JSON."""
        return json.dumps({**asdict(self), "outcome": self.outcome, "text": self.text}, ensure_ascii=False)


def judge(trace: Trace, best: Sequence[tuple[int, str]], margins: Sequence[float | None]) -> GreedyCheck:
    """Sort the positions of a lane.

    Args:
        trace: of the lane.
        best: (n) id and text of the target's best token at each position.
        margins: (n) logits of the emitted token above the best other one.
    """
    tie = TIE_MARGIN.get(trace.dtype, TIE_MARGIN["float32"])
    positions = []
    emitted = zip(trace.token_ids, trace.output, strict=True)
    for (id_, token), (best_id, best_text), margin in zip(emitted, best, margins, strict=True):
        outcome: Outcome = "diverged"
        if id_ == best_id:
            outcome = "identical"
        elif margin is not None and -margin <= tie:
            outcome = "tie"
        positions.append(Position(outcome, margin, id_, token.text, best_id, best_text))
    return GreedyCheck(tuple(positions), tie, trace.settings.lossless)


def _positions(count: int) -> str:
    return "1 position" if count == 1 else f"{count:,} positions"


def _by(position: Position) -> str:
    return "" if position.margin is None else f" by {-position.margin:.2g} logits"
