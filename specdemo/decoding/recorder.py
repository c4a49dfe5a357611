"""Makes the record of a round from what it computed; always outside the loop, off the lane clock."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.lane import Outcome, Step
from specdemo.decoding.readings import Reading, packed, unpacked
from specdemo.rounds import Candidate, Kind, Round, Token


class Recorder:
    """Numbers the rounds of one lane and writes them down, with text.

    Args:
        detokenizer: of this lane.
        top_candidates: so many most likely tokens of p and q are recorded with every token.
    """

    def __init__(self, detokenizer: Detokenizer, top_candidates: int = 0) -> None:
        self._text = detokenizer
        self._top = top_candidates
        self._index = 0

    def record(self, step: Step) -> Round:
        """The round: accepted tokens, then rejected ones, then the target's own."""
        outcome, drafted = step.outcome, step.outcome.drafted
        target, draft, chances, overlaps = self._read(outcome)
        accepted, passed, gamma = outcome.accepted, outcome.passed, len(drafted)
        tokens: list[Token] = []
        for i, token in enumerate(drafted):
            kind: Kind = "accepted" if i < accepted else "rejected"
            chance = chances[i] if i < outcome.tested else None
            after = drafted[accepted:i]
            tokens.append(self._token(step, kind, token, i + 1, target[i], draft and draft[i], chance, after))
        if outcome.kept > passed:
            kind = "target" if gamma == 0 else "bonus" if passed == gamma else "corrected"
            # After a fully accepted draft there is one row more of p than of q.
            q = draft[-1] if draft and passed < gamma else None
            tokens.append(self._token(step, kind, outcome.token, passed + 1, target[-1], q, None, ()))
        self._index += 1
        return Round(
            index=self._index - 1,
            tokens=tuple(tokens),
            drafted=gamma,
            accepted=accepted,
            seconds=step.seconds,
            draft_seconds=step.phases["draft"],
            verify_seconds=step.phases["verify"],
            other_seconds=step.phases["other"],
            overlaps=None if overlaps is None else tuple(overlaps[: outcome.tested]),
            stop=step.stop,
            source=outcome.proposal.source,
        )

    def _read(
        self, outcome: Outcome
    ) -> tuple[list[Reading], list[Reading] | None, Sequence[float], Sequence[float] | None]:
        """Readings of p and of q at each drafted token and at the target's own, chances and overlaps.

        Everything comes from the device in one copy: a round is read while the next could be decoded.
        """
        proposal, verdict, gamma = outcome.proposal, outcome.verdict, len(outcome.drafted)
        ids = [*outcome.drafted, outcome.token]
        tokens, rows = torch.tensor(ids), torch.tensor([*range(gamma), outcome.passed])
        parts = [packed(outcome.scores, rows, tokens, self._top)]
        if proposal.scores is not None:
            parts.append(packed(proposal.scores, rows.clamp(max=gamma - 1), tokens, self._top))
        judged = [t for t in (verdict.probability, verdict.overlap) if t is not None] if verdict else []
        flat = torch.cat([t.flatten().to(outcome.scores.device) for t in (*parts, *judged)]).tolist()
        tables: list[list[Reading]] = []
        for part in parts:
            width = part.shape[1]
            tables.append([unpacked(flat[i * width : (i + 1) * width], t, self._top) for i, t in enumerate(ids)])
            flat = flat[part.numel() :]
        chances = flat[:gamma]
        overlaps = flat[gamma:] if len(judged) == 2 else None
        return tables[0], tables[1] if len(tables) > 1 else None, chances, overlaps

    def _token(
        self,
        step: Step,
        kind: Kind,
        token: int,
        position: int,
        p: Reading,
        q: Reading | None,
        acceptance: float | None,
        after: Sequence[int],
    ) -> Token:
        """One token's record; ``after`` are the rejected tokens that a rejected one follows."""
        kept = kind != "rejected"
        return Token(
            id=token,
            # Candidates are written as they would stand here, so before this token moves the text on.
            target_top=self._candidates(p, after),
            draft_top=self._candidates(q, after),
            text=self._text.push(token) if kept else self._text.peek(token, after),
            kind=kind,
            round=self._index,
            position=position,
            p=p.probability,
            q=q.probability if q is not None else None,
            acceptance=acceptance,
            seconds=step.seconds,
            margin=p.margin if kept else None,
        )

    def _candidates(self, reading: Reading | None, after: Sequence[int]) -> tuple[Candidate, ...] | None:
        if not self._top or reading is None:
            return None
        return tuple(Candidate(i, self._text.peek(i, after), p) for i, p in reading.top)
