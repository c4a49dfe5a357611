"""What a lane's rounds really were, from everything its server sent: the best level that this supports.

Chunks become rounds as they stream. Some engines tell at once what made a chunk, others their steps at the end.

At the end a server says how many tokens each of its verify steps drafted and accepted, but not where in the output
they are, and it leaves out the steps in which nothing was drafted. Every step emits what it accepted and one token
more. So the steps cover the output one after the other, and tokens that are left over came from plain steps of one
token between them. Chunks end where steps end. Usually one arrangement of the steps fits. Where several do, the
tokens on which they differ keep the kind ``streamed``: nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, product
from typing import NamedTuple

from specdemo.rounds import Kind, Round, Stop, Token
from specdemo.server_record import Level, ServerRecord
from specdemo.servers.response import Chunk, Response, Step
from specdemo.settings import Settings

STOPS: dict[str, Stop] = {"stop": "eos", "length": "length"}
"""Finish reasons of OpenAI's API, and what they mean in a trace."""
MOST_STATES = 1_000_000
ONE_STEP, WHOLE_STEPS, ANY = range(3)  # what a chunk may hold
State = tuple[int, int]  # drafted steps done, and tokens emitted
START: State = (0, 1)


class OutputToken(NamedTuple):
    """One token of the output as it arrived, or a piece of text where there are no ids."""

    id: int | None
    text: str
    seconds: float


def _output_tokens(chunk: Chunk) -> list[OutputToken]:
    """The tokens of a chunk."""
    pairs = zip(chunk.ids or (None,), chunk.token_texts, strict=True)
    return [OutputToken(i, text, chunk.seconds) for i, text in pairs]


def streamed(chunk: Chunk, index: int, kind: Kind) -> list[Round]:
    """A chunk as rounds, from the round ``index`` on; the first round of a lane has one token.

    Unless the chunk tells what made it, its tokens are of the kind given. Tokens of kind ``target`` are a round
    each, since each took a forward of its own.
    """
    tokens, made_by = _output_tokens(chunk), chunk.made_by or kind
    if isinstance(made_by, Step):
        return [_round(index, tokens, made_by)]
    groups = [[t] for t in tokens] if made_by == "target" else [tokens[:1], tokens[1:]] if index == 0 else [tokens]
    return [_round(index + n, group, made_by) for n, group in enumerate(g for g in groups if g)]


def conclude(
    response: Response, settings: Settings, rounds: tuple[Round, ...], record: ServerRecord
) -> tuple[tuple[Round, ...], ServerRecord]:
    """The lane's rounds, which streamed as chunks, and its record once the response was read to its end."""
    stop, incomplete = _end(response, settings)
    if incomplete:
        return rounds, replace(record, incomplete=incomplete, notes=tuple(response.notes))
    if rounds:
        rounds = (*rounds[:-1], replace(rounds[-1], stop=stop))
    found, counts = response.speculation, response.speculation.counts
    if counts is not None and record.obeyed and settings.strategy == "speculative":  # not the longest draft
        counts = replace(counts, gamma=settings.gamma)
    notes = [*response.notes, *_count_notes(response), *(f"{complaint}." for complaint in found.complaints)]
    if counts is not None and counts.drafted and settings.strategy == "autoregressive":
        notes.append("this deployment speculates, though it is the baseline.")
    level: Level = "detailed"
    misfit = None  # how many tokens there are, where the counts cannot be those of so many
    if response.has_rounds:
        notes += _uncoloured(rounds)
    elif counts is None:
        level = "speed"
    elif found.steps is None or not response.has_ids:
        level = "summary"
        if found.steps is not None:
            notes.append(
                "the server gave no token ids, so its text cannot be cut into tokens; its totals are used."
            )
        # The end may have cut the last step, so up to γ of its accepted tokens never came.
        slack, sent = counts.accepted if counts.gamma is None else counts.gamma, response.usage[1]
        if sent is not None and (counts.steps or 0) + counts.accepted - slack > sent - 1:
            misfit = sent
    elif made := reconstructed(response.chunks, found.steps, settings.max_new_tokens, stop):
        rounds = made
        notes += _uncoloured(made)
    else:
        misfit = response.received
    if counts is not None and misfit is not None:
        notes.append(
            f"the server's steps do not fit its answer: {counts.steps} steps that kept {counts.accepted} tokens "
            f"cannot give {misfit}, the first one apart."
        )
        level, counts = "speed", None
    return rounds, replace(record, level=level, counts=counts, notes=tuple(notes))


def _end(response: Response, settings: Settings) -> tuple[Stop | None, str | None]:
    """Why the output ends, or why it broke off."""
    if response.incomplete:
        return None, response.incomplete
    finish = response.finish_reason or ""
    if finish not in STOPS:
        return None, f"the server ended it with {finish[:40]!r}"
    completion_tokens = response.usage[1]
    if finish == "length" and completion_tokens is not None and completion_tokens < settings.max_new_tokens:
        return "context", None
    return STOPS[finish], None


def _count_notes(response: Response) -> list[str]:
    completion_tokens = response.usage[1]
    if completion_tokens is None:
        return ["the server did not count its tokens."]
    if response.counts_tokens and completion_tokens != response.received:
        return [f"the server counts {completion_tokens} tokens, but gave the ids of {response.received}."]
    return []


def _uncoloured(rounds: tuple[Round, ...]) -> list[str]:
    unknown = sum(t.kind == "streamed" for r in rounds for t in r.tokens)
    note = f"{unknown} tokens stay uncoloured: the server does not say which of its steps drafted nothing there."
    return [note] if unknown else []


def reconstructed(
    chunks: Sequence[Chunk], steps: Sequence[Step], max_new_tokens: int, stop: Stop | None
) -> tuple[Round, ...] | None:
    """The rounds that these verify steps made of chunks with all ids; None if the steps do not fit them."""
    tokens = [token for chunk in chunks for token in _output_tokens(chunk)]
    ends = list(accumulate(len(chunk.ids or ()) for chunk in chunks))  # tokens up to the end of each chunk
    # Under load a chunk holds several steps, and some servers draft past the requested length. But an arrangement
    # that needs neither is preferred to one that does.
    for holds, limit in product((ONE_STEP, WHOLE_STEPS, ANY), (max_new_tokens, None)):
        if after := _arrangements(ends, holds, steps, limit):
            parts = enumerate(_parts(after, tokens, ends, steps))
            rounds = [_round(index, emitted, made_by) for index, (emitted, made_by) in parts]
            return (*rounds[:-1], replace(rounds[-1], stop=stop))
    return None


def _arrangements(
    ends: Sequence[int], holds: int, steps: Sequence[Step], limit: int | None
) -> dict[State, list[State]]:
    """All arrangements of the steps on the output: each state from which its end can be reached, with the next.

    Empty if no path leads there from the first token, or there is too much to search. ``limit``: no step drafts
    past so many tokens; None allows it.
    """
    length = ends[-1] if ends else 0

    def moves(done: int, at: int) -> Iterator[State]:
        most = length if holds == ANY else ends[bisect_right(ends, at)]
        least = most if holds == ONE_STEP else 0
        if done < len(steps):
            end = at + steps[done].accepted + 1
            if done + 1 == len(steps):
                end = min(end, length)  # the output's end cut the last step
            if least <= end <= most and (limit is None or steps[done].drafted <= limit - at - 1):
                yield done + 1, end
        if least <= at + 1 <= most:
            yield done, at + 1

    begins = [*accumulate((s.accepted + 1 for s in steps), initial=1)]  # of each step, if none before it is plain
    plain = length - (begins[-2] if steps else 1)  # the most plain steps there can be
    if length == 0 or plain < 0 or (plain + 1) * (len(steps) + 1) > MOST_STATES:
        return {}
    found: dict[State, list[State]] = {(len(steps), length): []}
    for done in reversed(range(len(steps) + 1)):
        for at in reversed(range(begins[done], min(begins[done] + plain + 1, length))):
            if kept := [state for state in moves(done, at) if state in found]:
                found[done, at] = kept
    return found if START in found else {}


def _parts(
    after: dict[State, list[State]], tokens: Sequence[OutputToken], ends: Sequence[int], steps: Sequence[Step]
) -> Iterator[tuple[Sequence[OutputToken], Step | Kind]]:
    """The tokens of each round, with the step that drafted for it, or else the kind of the tokens."""
    state = START
    yield tokens[:1], "target"
    while front := {*after[state]}:
        certain = len(front) == 1
        while len(front) > 1:  # until all paths from here meet
            behind = min(front, key=lambda s: s[1])
            front.remove(behind)
            front.update(after[behind] or [behind])
        (end,) = front
        if certain:
            yield tokens[state[1] : end[1]], steps[state[0]] if end[0] > state[0] else "target"
        else:
            cuts = [state[1], *(e for e in ends if state[1] < e < end[1]), end[1]]
            yield from ((tokens[first:last], "streamed") for first, last in pairwise(cuts))
        state = end


def _round(index: int, emitted: Sequence[OutputToken], made_by: Step | Kind) -> Round:
    """A round that a step made; or one of which no drafted tokens are known, with the kind of its tokens."""
    drafted = accepted = 0
    if isinstance(made_by, Step):
        # As in local rounds, drafted tokens behind the end count as rejected.
        drafted, accepted = made_by.drafted, min(made_by.accepted, len(emitted))
        own: Kind = "target" if not drafted else "bonus" if accepted == drafted else "corrected"
        rejected = OutputToken(None, "", emitted[-1].seconds)
        placed: list[tuple[OutputToken, Kind, int]] = [
            *((token, "accepted", position) for position, token in enumerate(emitted[:accepted], start=1)),
            *((rejected, "rejected", position) for position in range(accepted + 1, drafted + 1)),
            *((token, own, accepted + 1) for token in emitted[accepted:]),
        ]
    else:
        placed = [(token, made_by, position) for position, token in enumerate(emitted, start=1)]
    tokens = tuple(
        Token(t.id, t.text, kind, index, position, None, None, None, t.seconds) for t, kind, position in placed
    )
    return Round(index, tokens, drafted, accepted, emitted[-1].seconds, None, None, None)
