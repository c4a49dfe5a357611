"""Lanes side by side on one machine, each on its own clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdemo.errors import SettingsError
from specdemo.lanes import Prompt, stream
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings
from specdemo.trace import Round

SLICE_SECONDS = 0.1


def race(
    pair: ModelPair | Sequence[ModelPair], prompt: Prompt, lanes: Sequence[Settings]
) -> Iterator[tuple[int, Round]]:
    """Decode the prompt once for each settings; yields (lane, round).

    Args:
        pair: runs all lanes; or one pair a lane, such as a quantised target beside the unquantised one.
        prompt: text, or token ids taken as they are.
        lanes: the settings of each.

    The lane whose clock is behind goes next, for about a tenth of a second of its own time: what has been
    yielded at any moment is what as many equal machines would show at that instant. Closing the generator
    frees all caches.

    Raises:
        PromptError, SettingsError: at once, before anything runs.
    """
    if not lanes:
        raise SettingsError("lanes", "there are none; give at least one Settings.")
    pairs = pair if isinstance(pair, Sequence) else [pair] * len(lanes)
    if len(pairs) != len(lanes):
        raise SettingsError(
            "lanes", f"there are {len(lanes)}, but pairs: {len(pairs)}; give one pair for all, or one a lane."
        )
    return _interleave([stream(p, prompt, settings) for p, settings in zip(pairs, lanes, strict=True)])


def _interleave(lanes: list[Iterator[Round]]) -> Iterator[tuple[int, Round]]:
    clocks = dict.fromkeys(range(len(lanes)), 0.0)  # of the lanes still running
    try:
        while clocks:
            lane = min(clocks, key=clocks.__getitem__)
            until = clocks[lane] + SLICE_SECONDS
            while clocks.get(lane, until) < until:
                round_ = next(lanes[lane], None)
                if round_ is None:
                    del clocks[lane]
                else:
                    clocks[lane] = round_.seconds
                    yield lane, round_
    finally:
        for iterator in lanes:
            iterator.close()
