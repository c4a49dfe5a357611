"""What a lane's rounds really were, from everything the server sent: the best level that this supports."""

from __future__ import annotations

from dataclasses import replace

from specdemo.rounds import Round, Stop
from specdemo.server_record import Level, ServerRecord
from specdemo.servers.response import Response
from specdemo.servers.rounds import reconstructed
from specdemo.settings import Settings

STOPS: dict[str, Stop] = {"stop": "eos", "length": "length"}
"""Finish reasons of OpenAI's API, and what they mean in a trace."""

Rounds = tuple[Round, ...]


def conclude(
    response: Response, settings: Settings, rounds: Rounds, record: ServerRecord
) -> tuple[Rounds, ServerRecord]:
    """The lane's rounds and record once the response was read to its end.

    Args:
        response: all that the server sent.
        settings: of the lane.
        rounds: the chunks as rounds, as they streamed.
        record: what is known besides the speculation.
    """
    stop, incomplete = _end(response, settings)
    if incomplete:
        return rounds, replace(record, incomplete=incomplete, notes=tuple(response.notes))
    if rounds:
        rounds = (*rounds[:-1], replace(rounds[-1], stop=stop))
    found, counts = response.speculation, response.speculation.counts
    notes = [*response.notes, *_count_notes(response), *(f"{complaint}." for complaint in found.complaints)]
    if counts is not None and counts.drafted and settings.strategy == "autoregressive":
        notes.append("this deployment speculates, though it is the baseline.")
    level: Level = "detailed"
    misfit = None  # how many tokens there are, where the counts cannot be those of so many
    if response.has_rounds:
        notes += _uncoloured(rounds)
    elif counts is None:
        level = "speed"
    elif found.by_counters:
        level = "metrics"
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


def _uncoloured(rounds: Rounds) -> list[str]:
    unknown = sum(t.kind == "streamed" for r in rounds for t in r.tokens)
    note = f"{unknown} tokens stay uncoloured: the server does not say which of its steps drafted nothing there."
    return [note] if unknown else []
