"""How long runs take: on a shared GPU, by their tokens and γ, and here, by how fast their pair decoded lately."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from specdemo.drafters import DRAFTERS
from specdemo.settings import Settings
from specdemo.trace import Trace

STEP_SECONDS = 0.03  # a forward of a model of 4 to 8 billion parameters in 16 bit, without a compiler
DRAFT_SHARE = 0.5  # of that, a step of its draft
TOKENS_A_ROUND = 2
"""What drafting gives at least where it is worth a try; who drafts worse takes longer than was asked for."""
LOAD_SECONDS = 10  # for the weights on their way to the GPU, and the first, slow forward
SHORTEST, LONGEST = 15, 120
"""Bounds of what is asked for. A visitor without an account has two minutes of ZeroGPU a day, with a free account
three and a half, and what is asked for must be left of it."""
REMEMBERED = 64  # pairs of which the pace is kept
PREFILL = 3  # what the prefill of a run takes, in tokens; roughly
ROW_COST = 0.15  # what one more row adds to a step of a batch, in steps of one row; roughly


@dataclass(frozen=True, slots=True)
class Work:
    """Runs of one kind: their settings, how often they are made, and the rows that each decodes together."""

    settings: Settings
    times: int = 1
    rows: int = 1


def gpu_seconds_of(work: Iterable[Work]) -> float:
    """Seconds of all runs on a large GPU, roughly; rows of a batch take no longer than one."""
    return sum(each.times * decode_seconds(each.settings) for each in work)


def decode_seconds(settings: Settings) -> float:
    """Seconds of one run on a large GPU, roughly and rather too long than too short; none of one on a server."""
    if settings.engine == "server":
        return 0.0
    if settings.strategy == "autoregressive":
        return settings.max_new_tokens * STEP_SECONDS
    steps = 0 if DRAFTERS[settings.drafter].copies else settings.gamma  # copying takes no time on a GPU
    return settings.max_new_tokens / TOKENS_A_ROUND * STEP_SECONDS * (1 + DRAFT_SHARE * steps)


def gpu_seconds(work: float) -> int:
    """What to ask for, for so many seconds of decoding."""
    return min(max(math.ceil(LOAD_SECONDS + work), SHORTEST), LONGEST)


class Paces:
    """Seconds a token by pair, plain and drafted, as the last race of anyone on this app measured them."""

    def __init__(self) -> None:
        self._paces: OrderedDict[tuple[str, bool], float] = OrderedDict()
        self._lock = Lock()

    def learn(self, pair: str, seconds: float, *, drafted: bool) -> None:
        with self._lock:
            self._paces[pair, drafted] = seconds
            self._paces.move_to_end((pair, drafted))
            while len(self._paces) > 2 * REMEMBERED:
                self._paces.popitem(last=False)

    def learn_race(self, traces: tuple[Trace, ...]) -> None:
        """Remember what the lanes of a race that ran here took, their prefills included."""
        for trace in traces:
            if trace.server is None and trace.output:
                drafted = trace.settings.strategy != "autoregressive"
                self.learn(trace.pair, trace.rounds[-1].seconds / len(trace.output), drafted=drafted)

    def seconds(self, pair: str, work: Iterable[Work]) -> float | None:
        """What these runs take at most, roughly; None where the pair has not run yet.

        Where only plain or only drafted ones ran before, they stand for both.
        """
        with self._lock:
            slow, fast = (self._paces.get((pair, kind)) for kind in (False, True))
        slow, fast = slow or fast, fast or slow
        if slow is None or fast is None:
            return None
        found = 0.0
        for each in work:
            pace = slow if each.settings.strategy == "autoregressive" else fast
            tokens = each.settings.max_new_tokens + PREFILL
            found += pace * each.times * tokens * (1 + (each.rows - 1) * ROW_COST)
        return found
