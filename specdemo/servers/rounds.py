"""Rounds from what a server streamed: uncoloured while they come, and coloured once its steps are known.

A server says how many tokens each of its verify steps drafted and accepted, but not which of the output's tokens
those are, and it leaves out the steps in which nothing was drafted. Every step emits what it accepted and one
token more, so the steps lie on the output one after the other, with plain steps of one token between them where
tokens are left over. Chunks end where steps end. Usually one arrangement fits. Where several do, the tokens in
question stay uncoloured: nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal

from specdemo.servers.answer import Piece
from specdemo.servers.speculation import Step
from specdemo.trace import Kind, Round, Stop, Token

MOST_STATES = 1_000_000
Chunks = Literal["one step", "whole steps", "any"]
"""What a chunk may hold."""
State = tuple[int, int]
"""Drafted steps done, and tokens emitted."""


@dataclass(frozen=True, slots=True)
class Output:
    """One token of the output as it came, or a piece of text where there are no ids."""

    id: int | None
    text: str
    seconds: float


def outputs(piece: Piece) -> list[Output]:
    """The tokens of a chunk; its text stands with the last of them until it is cut."""
    ids = piece.ids or (None,)
    return [Output(i, piece.text if n == len(ids) else "", piece.seconds) for n, i in enumerate(ids, start=1)]


def streamed(piece: Piece, index: int, kind: Kind) -> list[Round]:
    """A chunk as rounds of unknown kind, from the round ``index`` on; the first round of a lane has one token.

    Tokens of a plain deployment (kind ``target``) are a round each, since each took a forward of its own.
    """
    tokens = outputs(piece)
    groups = [[t] for t in tokens] if kind == "target" else [tokens[:1], tokens[1:]] if index == 0 else [tokens]
    return [_round(index + n, group, kind) for n, group in enumerate(g for g in groups if g)]


def reconstructed(
    tokens: Sequence[Output], ends: Sequence[int], steps: Sequence[Step], asked: int, stop: Stop | None
) -> tuple[tuple[Round, ...], bool] | None:
    """The rounds that these steps made of an output, and whether they are all known; None if they do not fit it.

    Args:
        tokens: the output.
        ends: for each chunk, how many tokens had come with it and before.
        steps: the server's verify steps, in order.
        asked: the longest output that was asked for, in tokens.
        stop: why the output ends.
    """
    # Under load a chunk holds several steps, and some servers draft past the length that was asked for; but where
    # an arrangement exists without the one or the other, it is the one.
    for chunks, modest in product(("one step", "whole steps", "any"), (True, False)):
        plan = _Plan(len(tokens), ends, chunks, steps, asked if modest else None)
        if plan.fits:
            rounds = tuple(_rounds(plan, tokens, ends, stop))
            return rounds, all(t.kind != "streamed" for r in rounds for t in r.tokens)
    return None


class _Plan:
    """All arrangements of the steps on an output: those states from which, and to which, a way leads."""

    def __init__(
        self, length: int, ends: Sequence[int], chunks: Chunks, steps: Sequence[Step], asked: int | None
    ) -> None:
        self.length, self._ends, self._chunks, self.steps, self._asked = length, ends, chunks, steps, asked
        self.goal = (len(steps), length)
        spare = length - 1 - sum(s.accepted + 1 for s in steps[:-1])  # plain steps there can be at most
        feasible = length > 0 and spare >= 0 and (spare + 1) * (len(steps) + 1) <= MOST_STATES
        self._viable = self._search() if feasible else frozenset()

    @property
    def fits(self) -> bool:
        return (0, 1) in self._viable

    def next(self, state: State) -> list[State]:
        """What may follow a state on a way to the end."""
        return [s for s in self._moves(state) if s in self._viable]

    def _moves(self, state: State) -> Iterator[State]:
        done, at = state
        if at >= self.length:
            return
        limit = self.length if self._chunks == "any" else self._ends[bisect_right(self._ends, at)]
        least = limit if self._chunks == "one step" else 0
        if done < len(self.steps):
            step = self.steps[done]
            after = at + step.accepted + 1
            if after > self.length and done + 1 == len(self.steps):
                after = self.length  # the output's end cut the last step
            modest = self._asked is None or step.drafted <= self._asked - at - 1
            if least <= after <= limit and modest:
                yield done + 1, after
        if least <= at + 1 <= limit:
            yield done, at + 1

    def _search(self) -> frozenset[State]:
        reached, order = {(0, 1)}, [(0, 1)]
        for state in order:
            fresh = [s for s in self._moves(state) if s not in reached]
            reached.update(fresh)
            order += fresh
            if len(order) > MOST_STATES:
                return frozenset()
        viable = {self.goal} & reached
        # Every move emits something, so states with more tokens come first.
        for state in sorted(order, key=lambda s: -s[1]):
            if any(s in viable for s in self._moves(state)):
                viable.add(state)
        return frozenset(viable)


def _rounds(plan: _Plan, tokens: Sequence[Output], ends: Sequence[int], stop: Stop | None) -> Iterator[Round]:
    state, index = (0, 1), 1
    yield _round(0, tokens[:1], "target", stop if state == plan.goal else None)
    while state != plan.goal:
        choices = plan.next(state)
        if len(choices) == 1:
            after = choices[0]
            emitted, end = tokens[state[1] : after[1]], stop if after == plan.goal else None
            if after[0] == state[0]:
                yield _round(index, emitted, "target", end)
            else:
                yield _verified(index, emitted, plan.steps[state[0]], end)
            index += 1
        else:
            after = _where_ways_meet(plan, state)
            for group in _by_chunk(tokens, ends, state[1], after[1]):
                last = group[-1] is tokens[after[1] - 1]
                yield _round(index, group, "streamed", stop if last and after == plan.goal else None)
                index += 1
        state = after


def _where_ways_meet(plan: _Plan, state: State) -> State:
    """The first state that all arrangements from here pass through."""
    front = set(plan.next(state))
    while len(front) > 1:
        behind = min(front, key=lambda s: s[1])
        front.remove(behind)
        front.update(plan.next(behind) or [behind])
    return front.pop()


def _by_chunk(tokens: Sequence[Output], ends: Sequence[int], first: int, last: int) -> list[Sequence[Output]]:
    cuts = [first, *(e for e in ends if first < e < last), last]
    return [tokens[a:b] for a, b in pairwise(cuts)]


def _verified(index: int, emitted: Sequence[Output], step: Step, stop: Stop | None) -> Round:
    """A round of draft and verify, cut as the core cuts its own: what lies behind an end counts as rejected."""
    accepted = min(step.accepted, len(emitted))
    seconds = emitted[-1].seconds
    tokens = [_token(t, "accepted", index, n) for n, t in enumerate(emitted[:accepted], start=1)]
    tokens += [
        _token(Output(None, "", seconds), "rejected", index, n) for n in range(accepted + 1, step.drafted + 1)
    ]
    if len(emitted) > accepted:
        own: Kind = "target" if not step.drafted else "bonus" if accepted == step.drafted else "corrected"
        tokens.append(_token(emitted[accepted], own, index, accepted + 1))
    return Round(index, tuple(tokens), step.drafted, accepted, seconds, None, None, None, stop=stop)


def _round(index: int, emitted: Sequence[Output], kind: Kind, stop: Stop | None = None) -> Round:
    """A round in which nothing is known to have been drafted."""
    tokens = tuple(_token(t, kind, index, n) for n, t in enumerate(emitted, start=1))
    return Round(index, tokens, 0, 0, emitted[-1].seconds, None, None, None, stop=stop)


def _token(output: Output, kind: Kind, round_: int, position: int) -> Token:
    return Token(output.id, output.text, kind, round_, position, None, None, None, output.seconds)
