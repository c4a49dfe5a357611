"""What a server says of the likeliest tokens at each place of an output, in the shapes that engines answer in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from specdemo.servers.failures import Malformed
from specdemo.servers.response import entry

AS_ID = "token_id:"
"""Begins a token that vLLM names by its id."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could stand at a place."""

    id: int | None  # None where the server does not say
    text: str  # empty where it does not say, and of most end tokens
    logprob: float | None  # of the model, before temperature and cuts; None where it is not among those listed


Place = tuple[Candidate, ...]
"""The likeliest tokens of a place, the first one first; empty where the server says nothing of it."""


def places_of(answer: Any) -> list[Place]:
    """The likeliest tokens at each place of a whole answer; Malformed where there are none to read."""
    match answer:
        case (
            {"completion_probabilities": list(entries)}  # llama.cpp
            | {"choices": [{"logprobs": {"content": list(entries)}}, *_]}  # OpenAI's chats
            | {"logprobs": list(entries)}  # Ollama
        ):
            tops = [entry(each, "top_logprobs", list) or [] for each in entries]
            found = [
                [(entry(e, "id", int), entry(e, "token", str), e.get("logprob")) for e in top] for top in tops
            ]
        case {"choices": [{"logprobs": {"top_logprobs": list(listed)}}, *_]}:  # OpenAI's completions
            tables = [top for top in listed if isinstance(top, dict)]
            found = [[(None, token, logprob) for token, logprob in top.items()] for top in tables]
        case {"meta_info": {"output_top_logprobs": list(listed)}}:  # SGLang
            rows = [top for top in listed if isinstance(top, list)]
            found = [[(row[1], row[2], row[0]) for row in top if len(row) == 3] for top in rows]
        case _:
            raise Malformed("it has no log-probabilities")
    places = [[_candidate(*each) for each in place] for place in found]
    return [tuple(sorted(place, key=lambda c: -(c.logprob or 0.0))) for place in places]


def _candidate(id_: Any, text: Any, logprob: Any) -> Candidate:
    text = text or ""
    if not isinstance(text, str) or not isinstance(logprob, int | float) or not math.isfinite(logprob):
        raise Malformed("a log-probability is of the wrong kind")
    if text.startswith(AS_ID) and text[len(AS_ID) :].isdigit():
        id_, text = int(text.removeprefix(AS_ID)), ""
    return Candidate(id_ if isinstance(id_, int) else None, text, min(float(logprob), 0.0))
