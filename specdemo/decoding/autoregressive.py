"""The baseline: one target forward for each token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdemo.decoding.drafters.base import Observer
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.lane import Lane, RawRound


def prefill(lane: Lane, target: Runner, observer: Observer | None = None) -> RawRound:
    """Feed the prompt to the target and take the first token from its last logits: round 0, in any strategy.

    ``observer`` takes the hidden states, where the target gives any.
    """
    return _emit(lane, target, lane.prompt_ids, observer)


def autoregressive(lane: Lane, target: Runner) -> Iterator[RawRound]:
    """Rounds of one token each, until the lane stops."""
    lane.clock.resume()
    yield prefill(lane, target)
    while lane.stop is None:
        lane.clock.resume()
        yield _emit(lane, target, lane.committed[target.length :])


def _emit(lane: Lane, target: Runner, fed: Sequence[int], observer: Observer | None = None) -> RawRound:
    output = target.forward(fed)
    lane.clock.mark("verify")
    if observer is not None and output.hidden is not None:
        observer.observe(output.hidden)
        lane.clock.mark("draft")
    result = lane.emit(output.logits)
    lane.clock.lap("other")
    return lane.raw_round(result)
