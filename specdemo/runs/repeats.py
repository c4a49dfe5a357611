"""A race run again several times, for speeds only: how much of a speed-up is the machine's mood?"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event

from specdemo.errors import ServerError, SpecDemoError
from specdemo.runs.race import Pair, race
from specdemo.runs.single import Prompt
from specdemo.settings import SEEDS, Settings, at_least_one
from specdemo.trace import Trace

REPEATS = 5


def repeat_race(
    pair: Pair | Sequence[Pair],
    prompt: Prompt,
    lanes: Sequence[Settings],
    repeats: int = REPEATS,
    stop: Event | None = None,
) -> Generator[tuple[float, ...]]:
    """Run a race ``repeats`` times; yields each lane's decode speed, tokens a second, after every run.

    Arguments are those of :func:`specdemo.race`. Lanes that sample have other seeds each time, so that the spread
    is not that of one text. Setting ``stop`` ends it within one round; a run that was not finished is not counted.
    ``Recording.repeats`` keeps what this yields.

    Raises:
        PromptError, SettingsError: as ``race`` does, at the first step.
        ServerError: a server's answer broke off; half a run has no speed.
        SpecDemoError: a lane ended with its first token, which has no speed.
    """
    for number in range(1, at_least_one("repeats", repeats) + 1):
        settings = [s if s.greedy else replace(s, seed=(s.seed + number) % SEEDS) for s in lanes]
        with closing(race(pair, prompt, settings, stop)) as racing:
            for _ in racing:
                if stop is not None and stop.is_set():
                    return
            traces = racing.traces()
        if stop is not None and stop.is_set():
            return
        yield tuple(map(_speed, traces))


def _speed(trace: Trace) -> float:
    if trace.server is not None and trace.server.incomplete:
        raise ServerError(f"a repeated run broke off: {trace.server.incomplete}")
    speed = trace.metrics().tokens_per_second
    if speed is None:
        raise SpecDemoError("A lane ended with its first token, so it has no speed; choose another prompt.")
    return speed
