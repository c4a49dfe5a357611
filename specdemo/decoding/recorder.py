"""Makes the record of a round from what it computed; always outside the loop, off the lane clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.lane import RawRound
from specdemo.models.failures import not_finite
from specdemo.rounds import LISTED, Candidate, Kind, Round, Token


@dataclass(frozen=True, slots=True)
class Reading:
    """What one row of scores says of one token."""

    probability: float  # softmax of the row at the token; 0 for a token this model does not have
    # the token's score minus that of the best other one; None if either is cut from the distribution
    margin: float | None


def readings(scores: torch.Tensor, tokens: Sequence[int]) -> list[Reading]:
    """Readings of ``tokens`` (n,), one at each row of ``scores`` (n, V)."""
    rows = _numbers(scores, torch.arange(len(tokens)), torch.tensor(tokens)).tolist()
    return [_reading(row, token) for row, token in zip(rows, tokens, strict=True)]


class Recorder:
    """Numbers the rounds of one lane and writes them down, with text.

    ``residuals``: note what a rejected token could be replaced by, too, at the cost of naming some tokens.
    """

    def __init__(self, detokenizer: Detokenizer, residuals: bool = True) -> None:
        self._text, self._residuals = detokenizer, residuals
        self._index = 0

    def record(self, raw: RawRound) -> Round:
        """The round: accepted tokens, then rejected ones in the order of their slots, then the target's own.

        They are made from the root down, since a token's text depends on what stands before it: those beside the
        path at each of its tokens before the next one of it moves the text on. A PairError for NaN and infinity.
        """
        proposal, tree, ids = raw.proposal, raw.proposal.tree, raw.drafted
        target, draft, known = _read(raw, self._residuals)
        chances, overlaps, uniforms = known.get("probability", ()), known.get("overlap"), known.get("uniforms")
        path = [0, *raw.path[: raw.accepted]]
        rejected = [slot for slot in range(1, len(ids) + 1) if slot not in path]
        beside: dict[int, list[tuple[int, list[int]]]] = {slot: [] for slot in path}
        for slot in rejected:
            off = [s for s in tree.path(slot) if s not in path]
            beside[tree.parents[off[0] - 1]].append((slot, [ids[s - 1] for s in off[:-1]]))
        order = [*path[1:], *rejected]
        places = {slot: place for place, slot in enumerate([0, *order])}

        def token(kind: Kind, number: int, depth: int, p: Reading, text: str, parent: int, **rest: Any) -> Token:
            return Token(
                id=number,
                text=text,
                kind=kind,
                round=self._index,
                position=depth,
                p=p.probability,
                seconds=raw.seconds,
                margin=p.margin if kind != "rejected" else None,
                parent=None if proposal.is_chain else parent,
                **rest,
            )

        def of_slot(slot: int, kind: Kind, text: str) -> Token:
            chance, depth = chances[slot - 1], tree.depths[slot]
            tested = depth <= raw.tested and not math.isnan(chance)
            acceptance, u = (chance, uniforms and uniforms[slot - 1]) if tested else (None, None)
            q = draft[slot - 1].probability if draft else None
            parent, p = places[tree.parents[slot - 1]], target[slot - 1]
            return token(kind, ids[slot - 1], depth, p, text, parent, q=q, acceptance=acceptance, u=u)

        made: dict[int, Token] = {}
        for kept, slot in enumerate(path):
            for other, after in beside[slot]:
                made[other] = of_slot(other, "rejected", self._text.peek(ids[other - 1], after))
            for following in path[kept + 1 : kept + 2]:
                made[following] = of_slot(following, "accepted", self._text.push(ids[following - 1]))
        tokens = [made[slot] for slot in order]
        passed, gamma, residual = raw.passed, len(ids), None
        if raw.kept > passed:
            residual = self._candidates(known.get("residual", ())) or None
            kind: Kind = "target" if gamma == 0 else "corrected" if tree.children[raw.end] else "bonus"
            # Behind a path that ends with its last drafted token there is p, but no q.
            q = draft[-1].probability if draft and kind == "corrected" else None
            text = self._text.push(raw.token)
            tokens.append(token(kind, raw.token, passed + 1, target[-1], text, passed, q=q, acceptance=None))
        self._index += 1
        return Round(
            index=self._index - 1,
            tokens=tuple(tokens),
            drafted=gamma,
            accepted=raw.accepted,
            seconds=raw.seconds,
            draft_seconds=raw.phases["draft"],
            verify_seconds=raw.phases["verify"],
            other_seconds=raw.phases["other"],
            overlaps=None if overlaps is None else tuple(overlaps[: raw.tested]),
            stop=raw.stop,
            source=proposal.source,
            residual=residual,
            drafter=proposal.drafter,
        )

    def _candidates(self, numbers: Sequence[float]) -> tuple[Candidate, ...]:
        """Those of :func:`_residual`, with text, before the target's own token moves it on."""
        rows = [numbers[at : at + 4] for at in range(0, len(numbers), 4)]
        found = {int(row[0]): row[1:] for row in rows if row[3] > 0}  # the one drawn, last, may be among them
        return tuple(Candidate(i, self._text.peek(i), *odds) for i, odds in found.items())


def _read(
    raw: RawRound, residuals: bool
) -> tuple[list[Reading], list[Reading] | None, dict[str, Sequence[float]]]:
    """Readings of p and of q at each drafted token and at the target's own, and the known numbers of the verdict.

    Everything comes from the device in one copy: a round is read while the next could be decoded.
    """
    proposal, verdict, gamma = raw.proposal, raw.verdict, len(raw.drafted)
    tree, end = proposal.tree, raw.end
    ids = [*raw.drafted, raw.token]
    tokens = torch.tensor(ids)
    parts = [_numbers(raw.scores, torch.tensor([*tree.parents, end]), tokens)]
    if proposal.scores is not None:
        drawn_from = proposal.rows or range(gamma)
        next_row = drawn_from[tree.children[end][0] - 1] if tree.children[end] else 0
        parts.append(_numbers(proposal.scores, torch.tensor([*drawn_from, next_row]), tokens))
    judged = {name: getattr(verdict, name, None) for name in ("probability", "overlap", "uniforms")}
    if residuals and verdict and verdict.residual is not None and raw.passed < gamma:
        judged["residual"] = _residual(raw, verdict.residual.flatten())
    known = {name: t.flatten() for name, t in judged.items() if t is not None}
    flat = torch.cat([t.flatten().to(raw.scores.device) for t in (*parts, *known.values())]).cpu()
    numbers = flat.split([t.numel() for t in (*parts, *known.values())])
    looks: list[list[Reading]] = []
    for role, part, table in zip(("target", "drafter"), parts, numbers, strict=False):
        rows = table.view(part.shape).tolist()
        if not all(math.isfinite(row[1]) for row in rows):
            raise not_finite(role)
        looks.append([_reading(row, token) for row, token in zip(rows, ids, strict=True)])
    told = {name: t.tolist() for name, t in zip(known, numbers[len(parts) :], strict=True)}
    return looks[0], looks[1] if len(looks) > 1 else None, told


def _residual(raw: RawRound, residual: torch.Tensor) -> torch.Tensor:
    """(n, 4) of what could follow a rejected token, the likeliest and the one drawn: ids, p, q and shares."""
    q, rejected = raw.proposal.q, raw.drafted[raw.passed]
    best = residual.topk(min(LISTED, len(residual))).indices
    ids = torch.cat([best, best.new_tensor([raw.token])])
    q_of = (ids == rejected) if q is None else q[raw.passed].to(ids.device)[ids]
    p = raw.scores[raw.end].softmax(-1)[ids]
    return torch.stack([each.float() for each in (ids, p, q_of, residual[ids])], dim=1)


def _numbers(scores: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """All that :func:`_reading` needs, on the device of ``scores``.

    Args:
        scores: (n, V).
        rows: (m,) which row each token is looked up in.
        tokens: (m,) ids; those from V on are tokens this model does not have.

    Returns:
        float32 (m, 2 + 2k), k = min(2, V): the token's score, the log of the row's total, then the two best
        scores, each followed by its id, which float32 holds exactly up to 2²⁴.
    """
    rows, tokens = rows.to(scores.device), tokens.to(scores.device)
    vocabulary = scores.shape[1]
    best = scores.topk(min(2, vocabulary))
    own = scores[rows, tokens.clamp(max=vocabulary - 1)].where(tokens < vocabulary, -torch.inf)
    pairs = torch.stack([best.values, best.indices.to(scores.dtype)], dim=2).flatten(1)
    of_rows = torch.cat([scores.logsumexp(-1, keepdim=True), pairs], dim=1)
    return torch.cat([own.unsqueeze(1), of_rows[rows]], dim=1)


def _reading(row: Sequence[float], token: int) -> Reading:
    own, total, best, best_id, runner_up = row[:5] if len(row) > 4 else (*row, -math.inf)
    margin = own - (runner_up if token == best_id else best)
    return Reading(probability=min(1.0, math.exp(own - total)), margin=margin if math.isfinite(margin) else None)
