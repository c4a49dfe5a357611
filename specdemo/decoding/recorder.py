"""Turns what a round computed into the round's record; always off the lane clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdemo.decoding.acceptance import Verdict
from specdemo.decoding.clock import LaneClock
from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.drafters.base import Proposal
from specdemo.trace import Candidate, Kind, Round, Stop, Token


class Rows:
    """Rows of scores (n, V) read for single tokens: probability and margin."""

    def __init__(self, scores: torch.Tensor) -> None:
        self._scores = scores
        self._log_total = torch.logsumexp(scores, -1).tolist()
        best = scores.topk(min(2, scores.shape[-1]), dim=-1)
        self._best = best.values.tolist()
        self._best_id = best.indices[:, 0].tolist()

    def __len__(self) -> int:
        return len(self._log_total)

    def probability(self, row: int, token: int) -> float:
        """softmax of the row at ``token``; 0 for a token this model does not have."""
        if token >= self._scores.shape[-1]:
            return 0.0
        return min(1.0, math.exp(self._scores[row, token].item() - self._log_total[row]))

    def margin(self, row: int, token: int) -> float | None:
        """Score of ``token`` minus that of the best other one; None if either is cut from the distribution."""
        values = self._best[row]
        if token == self._best_id[row]:
            gap = values[0] - values[1] if len(values) > 1 else math.inf
        else:
            gap = self._scores[row, token].item() - values[0]
        return gap if math.isfinite(gap) else None

    def top(self, row: int, count: int) -> list[tuple[int, float]]:
        """The most likely tokens of a row with their probabilities."""
        best = self._scores[row].topk(min(count, self._scores.shape[-1]))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [(i, math.exp(v - self._log_total[row])) for i, v in pairs]


@dataclass(frozen=True, slots=True)
class Seen:
    """What both models said in one round, and the lane clock at its end."""

    target: Rows
    draft: Rows | None
    seconds: float


class Recorder:
    """Numbers the rounds of one lane and writes them down."""

    def __init__(self, detokenizer: Detokenizer, top_candidates: int = 0) -> None:
        self._text = detokenizer
        self._top_candidates = top_candidates
        self._index = 0

    def plain(self, scores: torch.Tensor, token: int, clock: LaneClock, stop: Stop | None) -> Round:
        """A round of one target token: the prefill, or a step of autoregressive decoding."""
        seen = Seen(Rows(scores), None, clock.seconds)
        return self._round([self._token(seen, "target", token, 1, None)], 0, 0, clock, None, stop)

    def speculative(
        self,
        scores: torch.Tensor,
        proposal: Proposal,
        verdict: Verdict,
        kept: int,
        clock: LaneClock,
        stop: Stop | None,
    ) -> Round:
        """A round of draft and verify: ``scores`` (γ+1, V), ``kept`` tokens entered the output."""
        draft = Rows(proposal.scores) if proposal.scores is not None else None
        seen = Seen(Rows(scores), draft, clock.seconds)
        gamma, passed = len(proposal), int(verdict.accepted)
        accepted = min(passed, kept)
        chances = verdict.probability[0].tolist()
        # The first rejected token was tested too; what lies behind an end token was not.
        tested = min(accepted + 1, gamma) if kept > passed else accepted
        tokens: list[Token] = []
        for i, token in enumerate(proposal.ids[:accepted]):
            tokens.append(self._token(seen, "accepted", token, i + 1, chances[i]))
        for i, token in enumerate(proposal.ids[accepted:], start=accepted):
            chance = chances[i] if i < tested else None
            tokens.append(self._token(seen, "rejected", token, i + 1, chance, after=proposal.ids[accepted:i]))
        if kept > passed:
            kind: Kind = "target" if gamma == 0 else "bonus" if passed == gamma else "corrected"
            tokens.append(self._token(seen, kind, int(verdict.token), passed + 1, None))
        overlaps = None if verdict.overlap is None else tuple(verdict.overlap[0, :tested].tolist())
        return self._round(tokens, gamma, accepted, clock, overlaps, stop, proposal.source)

    def _round(
        self,
        tokens: list[Token],
        drafted: int,
        accepted: int,
        clock: LaneClock,
        overlaps: tuple[float, ...] | None,
        stop: Stop | None,
        source: int | None = None,
    ) -> Round:
        self._index += 1
        return Round(
            index=self._index - 1,
            tokens=tuple(tokens),
            drafted=drafted,
            accepted=accepted,
            seconds=clock.seconds,
            draft_seconds=clock.phases["draft"],
            verify_seconds=clock.phases["verify"],
            other_seconds=clock.phases["other"],
            overlaps=overlaps,
            stop=stop,
            source=source,
        )

    def _token(
        self,
        seen: Seen,
        kind: Kind,
        token: int,
        position: int,
        acceptance: float | None,
        after: Sequence[int] = (),
    ) -> Token:
        """One token's record; ``after`` are the rejected tokens that a rejected one follows."""
        row = position - 1
        # After a fully accepted draft there is one row more of p than of q.
        draft = seen.draft if seen.draft is not None and row < len(seen.draft) else None
        kept = kind != "rejected"
        return Token(
            id=token,
            # Candidates are written as they would stand here, so before this token moves the text on.
            target_top=self._candidates(seen.target, row, after),
            draft_top=self._candidates(draft, row, after),
            text=self._text.push(token) if kept else self._text.peek(token, after),
            kind=kind,
            round=self._index,
            position=position,
            p=seen.target.probability(row, token),
            q=draft.probability(row, token) if draft is not None else None,
            acceptance=acceptance,
            seconds=seen.seconds,
            margin=seen.target.margin(row, token) if kept else None,
        )

    def _candidates(self, rows: Rows | None, row: int, after: Sequence[int]) -> tuple[Candidate, ...] | None:
        if not self._top_candidates or rows is None:
            return None
        found = rows.top(row, self._top_candidates)
        return tuple(Candidate(i, self._text.peek(i, after), p) for i, p in found)
