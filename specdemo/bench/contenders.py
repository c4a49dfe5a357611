"""The ways to decode one prompt greedily that the bench compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from specdemo.lanes import run
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings
from specdemo.trace import Trace


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    Attributes:
        ids: the output.
        seconds: decoding time, prefill included; the lane clock for ours, wall time for transformers.
        wall_seconds: wall time of the whole call, for ours with the record of every token.
        trace: ours only.
    """

    ids: list[int]
    seconds: float
    wall_seconds: float
    trace: Trace | None = None


Contender = Callable[[list[int]], Sample]


def ours(pair: ModelPair, settings: Settings) -> Contender:
    """This project's decoding."""

    def decode(ids: list[int]) -> Sample:
        start = time.perf_counter()
        trace = run(pair, ids, settings)
        return Sample(trace.token_ids, trace.rounds[-1].seconds, time.perf_counter() - start, trace)

    return decode


def generate(pair: ModelPair, max_new_tokens: int, assistant_gamma: int | None = None) -> Contender:
    """transformers' ``generate``, alone or with the draft as assistant at a constant γ."""

    def decode(ids: list[int]) -> Sample:
        prompt = torch.tensor([ids], device=pair.device)
        extra = {"assistant_model": pair.draft} if assistant_gamma else {}
        with constant_gamma(pair.draft, assistant_gamma) if assistant_gamma else nullcontext():
            _wait(pair.device)
            start = time.perf_counter()
            out = pair.target.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=max_new_tokens,
                pad_token_id=0,
                **extra,
            )
            _wait(pair.device)
            seconds = time.perf_counter() - start
        return Sample(out[0, len(ids) :].tolist(), seconds, seconds)

    return decode


@contextmanager
def constant_gamma(assistant: PreTrainedModel, gamma: int) -> Iterator[None]:
    """γ drafted tokens every round: by default transformers begins at 20 and gives up on unsure tokens."""
    config = assistant.generation_config
    wanted = {
        "num_assistant_tokens": gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    before = {name: getattr(config, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
