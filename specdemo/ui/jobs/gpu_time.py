"""How long a run may hold a shared GPU, from its tokens and γ."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from specdemo.drafters import DRAFTERS
from specdemo.settings import Settings

STEP_SECONDS = 0.03  # a forward of a model of 4 to 8 billion parameters in 16 bit, without a compiler
DRAFT_SHARE = 0.5  # of that, a step of its draft
TOKENS_A_ROUND = 2
"""What drafting gives at least where it is worth a try; who drafts worse takes longer than was asked for."""
LOAD_SECONDS = 10  # for the weights on their way to the GPU, and the first, slow forward
SHORTEST, LONGEST = 15, 120
"""Bounds of what is asked for. A visitor without an account has two minutes of ZeroGPU a day, with a free account
three and a half, and what is asked for must be left of it."""


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
