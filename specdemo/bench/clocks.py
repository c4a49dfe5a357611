"""Do lane clocks in a race agree with the same lane run alone?"""

from __future__ import annotations

from statistics import median
from typing import Any

from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.race import race
from specdemo.runs.single import run
from specdemo.settings import Settings


def race_against_alone(pair: ModelPair, prompt: str, gamma: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Ratio of the lane clock in a race to the clock alone, for both lanes; medians over the repeats."""
    ids = encode(pair, prompt)
    lanes = [
        Settings(strategy="autoregressive", max_new_tokens=tokens),
        Settings(gamma=gamma, max_new_tokens=tokens),
    ]
    ratios: list[list[float]] = [[], []]
    for _ in range(repeats):
        alone = [run(pair, ids, s).rounds[-1].seconds for s in lanes]
        together = [0.0, 0.0]
        for lane, round_ in race(pair, ids, lanes):
            together[lane] = round_.seconds
        for lane in (0, 1):
            ratios[lane].append(together[lane] / alone[lane])
    return {
        "autoregressive": median(ratios[0]),
        "speculative": median(ratios[1]),
        "all": {"autoregressive": ratios[0], "speculative": ratios[1]},
    }
