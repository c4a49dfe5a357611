"""The forwards that are run once before any lane is timed."""

from __future__ import annotations

import torch

from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.head import HeadRunner
from specdemo.decoding.engines.select import Engine
from specdemo.models.pair import ModelPair, context_of

TOKENS = 16


def warm_up(pair: ModelPair, engine: str = "auto") -> None:
    """Run every kind of forward once: no run pays for lazy initialisation. Every way to decode begins with this.

    Args:
        pair: whose models are run, once for each engine.
        engine: of ``settings.ENGINES``; what ``graphs`` captures, it warms up by itself.
    """
    wish: Engine = "auto" if engine == "auto" else "eager"
    if wish in pair.prepared:
        return
    for model in pair.models:
        runner = EagerRunner(model, wish)
        tokens = min(TOKENS, context_of(model) or TOKENS)
        for count in (tokens // 2, 1, tokens - tokens // 2 - 1):  # a prompt, a step, a verify
            if count:
                runner.forward([0] * count, keep=count)
    if pair.head is not None:
        head = HeadRunner(pair.head, pair.head.embeddings(pair.target), engine)
        for count in (TOKENS, 1):
            width = len(pair.head.taps) * pair.head.config.target_width
            head.forward(head.project(torch.zeros(count, width)), [0] * count)
    pair.prepared.add(wish)
