"""Makes the record of a round from what it computed; always outside the loop, off the lane clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch

from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.lane import Outcome, Step
from specdemo.decoding.readings import READ, Reading, likeliest, packed, unpacked
from specdemo.models.failures import not_finite
from specdemo.rounds import Candidate, Kind, Round, Token

Look = tuple[Reading, torch.Tensor]
"""A row's reading, and the row of :func:`packed` that it was made of."""


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
        """The round: accepted tokens, then rejected ones, then the target's own.

        Raises:
            PairError: a model's logits are not finite.
        """
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
    ) -> tuple[list[Look], list[Look] | None, Sequence[float], Sequence[float] | None]:
        """Looks at p and at q at each drafted token and at the target's own, chances and overlaps.

        Everything comes from the device in one copy: a round is read while the next could be decoded.
        """
        proposal, verdict, gamma = outcome.proposal, outcome.verdict, len(outcome.drafted)
        ids = [*outcome.drafted, outcome.token]
        tokens, rows = torch.tensor(ids), torch.tensor([*range(gamma), outcome.passed])
        parts = [packed(outcome.scores, rows, tokens, self._top)]
        if proposal.scores is not None:
            parts.append(packed(proposal.scores, rows.clamp(max=gamma - 1), tokens, self._top))
        judged = [t for t in (verdict.probability, verdict.overlap) if t is not None] if verdict else []
        flat = torch.cat([t.flatten().to(outcome.scores.device) for t in (*parts, *judged)]).cpu()
        *numbers, rest = flat.split([*(part.numel() for part in parts), sum(t.numel() for t in judged)])
        looks: list[list[Look]] = []
        for role, part, table in zip(("target", "draft"), parts, numbers, strict=False):
            kept = table.view(part.shape)
            read = kept[:, :READ].tolist()
            if not all(math.isfinite(row[1]) for row in read):
                raise not_finite(role)
            looks.append([(unpacked(row, token), all_) for row, token, all_ in zip(read, ids, kept, strict=True)])
        judgements = rest.tolist()
        overlaps = judgements[gamma:] if len(judged) == 2 else None
        return looks[0], looks[1] if len(looks) > 1 else None, judgements[:gamma], overlaps

    def _token(
        self,
        step: Step,
        kind: Kind,
        token: int,
        position: int,
        p: Look,
        q: Look | None,
        acceptance: float | None,
        after: Sequence[int],
    ) -> Token:
        """One token's record; ``after`` are the rejected tokens that a rejected one follows."""
        kept = kind != "rejected"
        return Token(
            id=token,
            # Candidates are read as they would stand here, so before this token moves the text on.
            target_top=self._candidates(p, after),
            draft_top=self._candidates(q, after),
            text=self._text.push(token) if kept else self._text.peek(token, after),
            kind=kind,
            round=self._index,
            position=position,
            p=p[0].probability,
            q=q[0].probability if q is not None else None,
            acceptance=acceptance,
            seconds=step.seconds,
            margin=p[0].margin if kept else None,
        )

    def _candidates(self, look: Look | None, after: Sequence[int]) -> Callable[[], tuple[Candidate, ...]] | None:
        """Written when somebody reads them: a speculative round has many times as many as a plain one, and
        their texts would take a tenth of its time from whoever waits for the run.
        """
        if not self._top or look is None:
            return None
        return partial(_candidates, look[1], self._top, self._text.peeker(after))


def _candidates(row: torch.Tensor, top: int, peek: Callable[[int], str]) -> tuple[Candidate, ...]:
    return tuple(Candidate(i, peek(i), p) for i, p in likeliest(row.tolist(), top))
