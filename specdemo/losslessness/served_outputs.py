"""What two deployments write, held against each other: greedy outputs token by token, sampled ones by the test.

Where greedy outputs part, the baseline is asked again, several times, alone and beside other requests, how likely
the two tokens are behind the common prefix: that tells a tie from a divergence, and what its own rounding is.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import cycle, islice, zip_longest
from statistics import median
from threading import Event
from typing import Any

from specdemo.losslessness.certify import certificates
from specdemo.losslessness.deployment_check import DeploymentCheck, Difference, Row
from specdemo.losslessness.served_runs import ServedRuns
from specdemo.servers.deployment import COMPANY, Deployment
from specdemo.servers.gguf import GgufPair
from specdemo.servers.logprobs import Candidate, Place
from specdemo.servers.pair import ServedPair
from specdemo.servers.response import Response
from specdemo.settings import Settings

SHOWN = 12  # characters of a piece of text that is no token of the list
ASKED = 2  # times alone behind the common prefix, beside once with the whole prompt and once in company


def compared(
    served: ServedPair, prompts: list[Any], settings: Settings, test: tuple[int, int, float], stop: Event
) -> Generator[DeploymentCheck]:
    """As :func:`specdemo.losslessness.deployments.stream_comparison`, of what was checked."""
    lanes = [replace(settings, strategy=strategy) for strategy in ("autoregressive", "speculative")]
    with ExitStack() as stack:
        opened = [stack.enter_context(served.deployed(lane, stop)) for lane in lanes]
        sides = [Deployment(pair, lane.strategy, stop) for pair, lane in zip(opened, lanes, strict=True)]
        for side in sides:
            stack.callback(side.close)
        check = DeploymentCheck(
            pair=served.name,
            settings=settings,
            engines=tuple(side.about for side in sides),
            prompts=len(prompts),
            addresses=tuple(side.root for side in sides),
            flags=tuple(map(served.flags, lanes)) if isinstance(served, GgufPair) else (),
        )
        if settings.greedy:
            for start in range(0, len(prompts), COMPANY):
                block = prompts[start : start + COMPANY]
                written = [_written(side, block, settings) for side in sides]
                for prompt, plain, other in zip(block, *written, strict=True):
                    row = _row(sides[0], prompt, settings, plain, other)
                    check = replace(check, rows=(*check.rows, row))
                    yield check
            return
        runs, tokens, error_rate = test
        source = ServedRuns(sides, prompts, settings, tokens)
        for certificate in certificates(source, runs, error_rate):
            yield replace(check, rows=tuple(source.rows), certificate=certificate)


def _written(side: Deployment, block: Sequence[Any], settings: Settings) -> list[list[Response]]:
    """The outputs of each prompt: alone, then beside :data:`COMPANY` − 1 others, of which some may be its own."""
    writes = [partial(side.write, prompt, settings) for prompt in block]
    found = [side.together([write]) for write in writes]
    company = [*islice(cycle(range(len(block))), COMPANY)]
    for number, response in zip(company, side.together([writes[n] for n in company]), strict=True):
        found[number].append(response)
    return found


def _row(
    baseline: Deployment, prompt: Any, settings: Settings, plain: list[Response], other: list[Response]
) -> Row:
    first, *again = plain
    parting, contradicting = (
        next((r for r in responses if _parting(first, r) is not None), None) for responses in (other, again)
    )
    find = partial(_difference, baseline, prompt, settings, first)
    shown = parting or other[0]
    return Row(
        prompt=str(prompt) if isinstance(prompt, str) else f"{len(prompt)} token ids",
        length=len(first.ids or first.text),
        unit="token" if first.ids and shown.ids else "character",
        difference=find(parting) if parting else None,
        beside=parting is not None and parting is not other[0],
        contradiction=find(contradicting) if contradicting else None,
        sent=(first.whole, shown.whole),
    )


def _parting(left: Response, right: Response) -> int | None:
    """Tokens, or characters where ids are not known, that agree before the first difference; None without one."""
    both: Any = zip_longest(*((r.ids if left.ids and right.ids else r.text) for r in (left, right)))
    return next((place for place, (mine, theirs) in enumerate(both) if mine != theirs), None)


def _difference(
    baseline: Deployment, prompt: Any, settings: Settings, mine: Response, theirs: Response
) -> Difference:
    """Where two outputs part, and what the baseline says there, several times, alone and beside other requests."""
    position = _parting(mine, theirs)
    assert position is not None, "they differ"
    prefix: list[int] = []
    if mine.ids and theirs.ids and mine.prompt_ids:
        prefix, start = mine.ids[:position], list(mine.prompt_ids)
        before: list[Any] = mine.token_texts[:position]
        sides = [_token(response, position) for response in (mine, theirs)]
        one, whole = (replace(settings, max_new_tokens=count) for count in (1, position + 1))
        behind = partial(_place, baseline, [*start, *prefix], one, [])
        alone = [partial(_place, baseline, start, whole, prefix), *[behind] * ASKED]
    else:  # the whole request again, where the server says of each of its tokens how it reads
        (places,) = baseline.together([partial(baseline.ask, prompt, settings)])
        before = _tokens_until(places, mine.text, position)
        here = places[len(before)] if len(before) < len(places) else ()
        rests = [response.text[len("".join(before)) :] for response in (mine, theirs)]
        sides = [_longest(here, rest) for rest in rests]
        behind = partial(_place, baseline, prompt, settings, before)
        alone = [behind] * ASKED
    answers = [place for ask in alone for place in baseline.together([ask])] + baseline.together(
        [behind] * COMPANY
    )
    gaps = []
    for place in filter(None, answers):
        sides = [_listed(place, side) for side in sides]
        own, other = (place[-1].logprob if side.logprob is None else side.logprob for side in sides)
        gaps.append((own or 0.0) - (other or 0.0))
    return Difference(
        position=position,
        prefix_ids=tuple(prefix),
        prefix="".join(before),
        own=sides[0],
        other=sides[1],
        gap=median(gaps) if gaps else None,
        change=max(gaps) - min(gaps) if gaps else 0.0,
        question=baseline.asked,
    )


def _place(baseline: Deployment, prompt: Any, settings: Settings, before: list[Any]) -> Place:
    """The likeliest tokens behind some of its output, by ids or texts; empty where it now writes another."""
    places = baseline.ask(prompt, settings)
    written = [p[0].id if isinstance(b, int) else p[0].text for p, b in zip(places, before, strict=False) if p]
    return places[len(before)] if written == before and len(places) > len(before) else ()


def _tokens_until(places: Sequence[Place], text: str, position: int) -> list[str]:
    """The tokens of ``text`` before the one that holds the character at ``position``."""
    found = list[str]()
    for token in (place[0].text for place in places if place):
        at = sum(map(len, found))
        if at + len(token) > position or not text.startswith(token, at):
            break
        found.append(token)
    return found


def _token(response: Response, position: int) -> Candidate:
    """A token of an output; of what ended it nothing is known."""
    if position >= len(response.ids):
        return Candidate(None, "", None)
    return Candidate(response.ids[position], response.token_texts[position], None)


def _longest(place: Place, rest: str) -> Candidate:
    """The token with which ``rest`` begins; a piece of it where none is listed. Of nothing it is an end token."""
    fitting = [c for c in place if rest.startswith(c.text) and bool(c.text) == bool(rest)]
    return max(fitting, key=lambda c: len(c.text), default=Candidate(None, rest[:SHOWN], None))


def _listed(place: Place, token: Candidate) -> Candidate:
    """A token with the log-probability that it has at a place; None where it is not listed."""
    same = [c for c in place if (c.text == token.text if token.id is None else c.id == token.id)]
    return replace(token, logprob=same[0].logprob if same else None)
