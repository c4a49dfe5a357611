"""The baseline: one target forward for each token."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from specdemo.decoding.engines.base import Runner
from specdemo.decoding.lane import Lane, Step


def prefill(lane: Lane, target: Runner) -> Step:
    """Feed the prompt to the target and take the first token from its last logits: round 0, in any strategy."""
    scores = lane.sampler.scores(target.forward(lane.prompt_ids).logits, lane.prompt_ids)
    lane.clock.mark("verify")
    return _emit(lane, scores)


def autoregressive(lane: Lane, target: Runner) -> Iterator[Step]:
    """Rounds of one token each, until the lane stops."""
    lane.clock.resume()
    yield prefill(lane, target)
    while lane.stop is None:
        lane.clock.resume()
        logits = target.forward(lane.committed[target.length :]).logits
        lane.clock.mark("verify")
        yield _emit(lane, lane.sampler.scores(logits, lane.committed))


def _emit(lane: Lane, scores: torch.Tensor) -> Step:
    token = int(lane.sampler.pick(scores))
    kept = lane.commit([token])
    lane.clock.lap("other")
    return lane.step(scores, token, kept)
