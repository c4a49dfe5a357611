"""The baseline: one target forward for each token."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from specdemo.decoding.engines.eager import Runner
from specdemo.decoding.engines.graph_runner import StaticRunner
from specdemo.decoding.lane import Lane
from specdemo.trace import Round


def prefill(lane: Lane, target: Runner | StaticRunner) -> Round:
    """Feed the prompt to the target and take the first token from its last logits: round 0, in any strategy."""
    scores = lane.sampler.scores(target.forward(lane.prompt_ids), lane.prompt_ids)
    lane.clock.mark("verify")
    return _emit(lane, scores)


def autoregressive(lane: Lane, target: Runner | StaticRunner) -> Iterator[Round]:
    """Rounds of one token each, until the lane stops."""
    lane.clock.resume()
    yield prefill(lane, target)
    while lane.stop is None:
        lane.clock.resume()
        logits = target.forward(lane.committed[target.length :])
        lane.clock.mark("verify")
        yield _emit(lane, lane.sampler.scores(logits, lane.committed))


def _emit(lane: Lane, scores: torch.Tensor) -> Round:
    token = int(lane.sampler.pick(scores))
    lane.commit([token])
    lane.clock.lap("other")
    return lane.recorder.plain(scores, token, lane.clock, lane.stop)
