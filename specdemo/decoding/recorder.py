"""Makes the record of a round from what it computed; always outside the loop, off the lane clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.lane import RawRound, RoundResult
from specdemo.decoding.readings import Reading, reading_of, reading_rows
from specdemo.models.failures import not_finite
from specdemo.rounds import Kind, Round, Token


class Recorder:
    """Numbers the rounds of one lane and writes them down, with text.

    Args:
        detokenizer: of this lane.
    """

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._text = detokenizer
        self._index = 0

    def record(self, raw: RawRound) -> Round:
        """The round: accepted tokens, then rejected ones, then the target's own.

        Raises:
            PairError: a model's logits are not finite.
        """
        result = raw.result
        target, draft, chances, overlaps = self._read(result)
        tokens = self._drafted(raw, target, draft, chances)
        passed, gamma = result.passed, len(result.drafted)
        if result.kept > passed:
            guessed = result.proposal.tree.children[_end(result)]
            kind: Kind = "target" if gamma == 0 else "corrected" if guessed else "bonus"
            # Behind a path that ends with its last drafted token there is p, but no q.
            q = draft[-1] if draft and kind == "corrected" else None
            own = self._token(raw, kind, result.token, passed + 1, target[-1], q, None, ())
            tokens.append(own if result.proposal.is_chain else replace(own, parent=passed))
        self._index += 1
        return Round(
            index=self._index - 1,
            tokens=tuple(tokens),
            drafted=gamma,
            accepted=result.accepted,
            seconds=raw.seconds,
            draft_seconds=raw.phases["draft"],
            verify_seconds=raw.phases["verify"],
            other_seconds=raw.phases["other"],
            overlaps=None if overlaps is None else tuple(overlaps[: result.tested]),
            stop=raw.stop,
            source=result.proposal.source,
        )

    def _drafted(
        self, raw: RawRound, target: list[Reading], draft: list[Reading] | None, chances: Sequence[float]
    ) -> list[Token]:
        """The drafted tokens: the path kept, then the others in the order of their slots.

        They are made from the root down, since a token's text depends on what stands before it: those beside the
        path at each of its tokens before the next one of it moves the text on.
        """
        result, tree, ids = raw.result, raw.result.proposal.tree, raw.result.drafted
        path = [0, *result.path[: result.accepted]]
        beside: dict[int, list[tuple[int, list[int]]]] = {slot: [] for slot in path}
        for slot in range(1, len(ids) + 1):
            if slot not in path:
                way = [s for s in tree.path(slot) if s not in path]
                beside[tree.parents[way[0] - 1]].append((slot, [ids[s - 1] for s in way[:-1]]))
        made: dict[int, Token] = {}
        for kept, slot in enumerate(path):
            some: list[tuple[Kind, int, list[int]]] = [("rejected", *each) for each in beside[slot]]
            some += [("accepted", following, []) for following in path[kept + 1 : kept + 2]]
            for kind, s, after in some:
                chance = chances[s - 1] if tree.depths[s] <= result.tested else math.nan
                known = None if math.isnan(chance) else chance
                q = None if draft is None else draft[s - 1]
                made[s] = self._token(raw, kind, ids[s - 1], tree.depths[s], target[s - 1], q, known, after)
        order = [*path[1:], *(slot for slot in sorted(made) if slot not in path)]
        if result.proposal.is_chain:
            return [made[slot] for slot in order]
        places = {slot: place for place, slot in enumerate([0, *order])}
        return [replace(made[slot], parent=places[tree.parents[slot - 1]]) for slot in order]

    def _read(
        self, result: RoundResult
    ) -> tuple[list[Reading], list[Reading] | None, Sequence[float], Sequence[float] | None]:
        """Readings of p and of q at each drafted token and at the target's own, chances and overlaps.

        Everything comes from the device in one copy: a round is read while the next could be decoded.
        """
        proposal, verdict, gamma = result.proposal, result.verdict, len(result.drafted)
        tree, end = proposal.tree, _end(result)
        ids = [*result.drafted, result.token]
        tokens, rows = torch.tensor(ids), torch.tensor([*tree.parents, end])
        parts = [reading_rows(result.scores, rows, tokens)]
        if proposal.scores is not None:
            drawn_from = proposal.rows or range(gamma)
            next_row = drawn_from[tree.children[end][0] - 1] if tree.children[end] else 0
            parts.append(reading_rows(proposal.scores, torch.tensor([*drawn_from, next_row]), tokens))
        judged = [t for t in (verdict.probability, verdict.overlap) if t is not None] if verdict else []
        flat = torch.cat([t.flatten().to(result.scores.device) for t in (*parts, *judged)]).cpu()
        *numbers, rest = flat.split([*(part.numel() for part in parts), sum(t.numel() for t in judged)])
        looks: list[list[Reading]] = []
        for role, part, table in zip(("target", "drafter"), parts, numbers, strict=False):
            read = table.view(part.shape).tolist()
            if not all(math.isfinite(row[1]) for row in read):
                raise not_finite(role)
            looks.append([reading_of(row, token) for row, token in zip(read, ids, strict=True)])
        judgements = rest.tolist()
        overlaps = judgements[gamma:] if len(judged) == 2 else None
        return looks[0], looks[1] if len(looks) > 1 else None, judgements[:gamma], overlaps

    def _token(
        self,
        raw: RawRound,
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
            text=self._text.push(token) if kept else self._text.peek(token, after),
            kind=kind,
            round=self._index,
            position=position,
            p=p.probability,
            q=q.probability if q is not None else None,
            acceptance=acceptance,
            seconds=raw.seconds,
            margin=p.margin if kept else None,
        )


def _end(result: RoundResult) -> int:
    """The slot of the last token accepted."""
    return result.path[-1] if result.passed else 0
