"""The forwards that are run once before any lane is timed, and whether they agree."""

from __future__ import annotations

import torch

from specdemo.decoding.engines.eager import Engine
from specdemo.decoding.engines.head import HeadRunner
from specdemo.decoding.trials import TOKENS, check_chain
from specdemo.models.pair import ModelPair


def warm_up(pair: ModelPair, engine: str = "auto") -> None:
    """Run every kind of forward once: no run pays for lazy initialisation. Every way to decode begins with this.

    Args:
        pair: whose models are run, once for each engine.
        engine: of ``settings.ENGINES``; what ``graphs`` captures, it warms up by itself.

    Raises:
        PairError: a model does not decode here as it should.
    """
    wish: Engine = "auto" if engine == "auto" else "eager"
    if wish in pair.prepared:
        return
    for role, model in zip(("target", "draft"), pair.models, strict=False):
        check_chain(role, model, wish)  # a prompt, a step, a verify
    if pair.head is not None:
        head = HeadRunner(pair.head, pair.head.embeddings(pair.target), engine)
        for count in (TOKENS, 1):
            width = len(pair.head.aux_layers) * pair.head.config.target_width
            head.forward(head.project(torch.zeros(count, width)), [0] * count)
    pair.prepared.add(wish)
