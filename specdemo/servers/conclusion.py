"""What a lane's rounds really were, from everything the server sent: the best level that this supports."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, repeat

from specdemo.rounds import Round, Stop
from specdemo.server_record import Counts, Level, ServerRecord
from specdemo.servers.counters import CounterNames, difference
from specdemo.servers.response import Response, Step
from specdemo.servers.rounds import output_tokens, reconstructed
from specdemo.settings import Settings

STOPS: dict[str, Stop] = {"stop": "eos", "length": "length"}
"""Finish reasons of OpenAI's API, and what they mean in a trace."""

Rounds = tuple[Round, ...]


def conclude(
    response: Response, counters: CounterNames | None, settings: Settings, rounds: Rounds, record: ServerRecord
) -> tuple[Rounds, ServerRecord]:
    """The lane's rounds and record once the response was read to its end.

    Args:
        response: all that the server sent.
        counters: the engine's names for what is on the pages of metrics.
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
    if response.has_rounds:
        more = _uncoloured(rounds)
    elif counts is None:
        level, counts, more = _from_counters(response, counters)
    elif found.steps is None or not response.has_ids:
        level, counts, more = _from_totals(response, counts, found.steps is not None)
    elif (made := _from_steps(response, found.steps, settings.max_new_tokens, stop)) is not None:
        rounds, more = made, _uncoloured(made)
    else:
        more = [_misfit(counts, response.received)]
        level, counts = "speed", None
    return rounds, replace(record, level=level, counts=counts, notes=(*notes, *more))


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


def _from_steps(
    response: Response, steps: tuple[Step, ...], max_new_tokens: int, stop: Stop | None
) -> Rounds | None:
    """The reconstructed rounds; None if the steps do not fit the output."""
    texts = response.token_texts or repeat(None)
    tokens = [t for chunk, own in zip(response.chunks, texts, strict=False) for t in output_tokens(chunk, own)]
    ends = list(accumulate(len(chunk.ids or ()) for chunk in response.chunks))
    return reconstructed(tokens, ends, steps, max_new_tokens, stop)


def _uncoloured(rounds: Rounds) -> list[str]:
    unknown = sum(t.kind == "streamed" for r in rounds for t in r.tokens)
    note = f"{unknown} tokens stay uncoloured: the server does not say which of its steps drafted nothing there."
    return [note] if unknown else []


def _from_totals(response: Response, counts: Counts, has_steps: bool) -> tuple[Level, Counts | None, list[str]]:
    completion_tokens, notes = response.usage[1], []
    if has_steps:
        notes.append("the server gave no token ids, so its text cannot be cut into tokens; its totals are used.")
    # The end may have cut the last step, so up to γ of its accepted tokens never came.
    slack = counts.gamma if counts.gamma is not None else counts.accepted
    if completion_tokens is not None and (counts.steps or 0) + counts.accepted - slack > completion_tokens - 1:
        return "speed", None, [*notes, _misfit(counts, completion_tokens)]
    return "summary", counts, notes


def _from_counters(response: Response, names: CounterNames | None) -> tuple[Level, Counts | None, list[str]]:
    pages = response.metrics_pages
    found = difference(names, *pages, response.usage[1]) if names and pages else None
    if isinstance(found, Counts):
        return "metrics", found, []
    return "speed", None, [found] if found else []


def _misfit(counts: Counts, tokens: int) -> str:
    return (
        f"the server's steps do not fit its answer: {counts.steps} steps that kept {counts.accepted} tokens "
        f"cannot give {tokens}, the first one apart."
    )
