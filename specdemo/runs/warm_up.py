"""The forwards that are run once before any lane is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.head import HeadRunner
from specdemo.decoding.engines.select import Engine
from specdemo.errors import PairError
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair, context_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 16


def warm_up(pair: ModelPair, engine: str = "auto") -> None:
    """Run every kind of forward once: no run pays for lazy initialisation. Every way to decode begins with this.

    Args:
        pair: whose models are run, once for each engine.
        engine: of ``settings.ENGINES``; what ``graphs`` captures, it warms up by itself.

    Raises:
        PairError: a model fails, as families do that transformers itself decodes otherwise.
    """
    wish: Engine = "auto" if engine == "auto" else "eager"
    if wish in pair.prepared:
        return
    for role, model in zip(("target", "draft"), pair.models, strict=False):
        try:
            _decode(model, wish)
        except Exception as error:  # a family's own code, which may raise anything
            if out_of_memory(error):
                raise
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            raise PairError(
                f"{role}: {type(model).__name__} cannot decode with a KV cache "
                f"({type(error).__name__}: {reason}); choose another model."
            ) from error
    if pair.head is not None:
        head = HeadRunner(pair.head, pair.head.embeddings(pair.target), engine)
        for count in (TOKENS, 1):
            width = len(pair.head.taps) * pair.head.config.target_width
            head.forward(head.project(torch.zeros(count, width)), [0] * count)
    pair.prepared.add(wish)


def _decode(model: PreTrainedModel, wish: Engine) -> None:
    runner = EagerRunner(model, wish)
    tokens = min(TOKENS, context_of(model) or TOKENS)
    for count in (tokens // 2, 1, tokens - tokens // 2 - 1):  # a prompt, a step, a verify
        if count:
            runner.forward([0] * count, keep=count)
