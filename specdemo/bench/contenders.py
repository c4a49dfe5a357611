"""The ways to decode one prompt greedily that the bench compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from specdemo.models.pair import ModelPair
from specdemo.runs.single import run
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


def generate(pair: ModelPair, max_new_tokens: int, **options: Any) -> Contender:
    """transformers' ``generate`` with further options of its own."""

    def decode(ids: list[int]) -> Sample:
        prompt = torch.tensor([ids], device=pair.device)
        _wait(pair.device)
        start = time.perf_counter()
        out = pair.target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=0,
            **options,
        )
        _wait(pair.device)
        seconds = time.perf_counter() - start
        return Sample(out[0, len(ids) :].tolist(), seconds, seconds)

    return decode


def assisted_generate(pair: ModelPair, max_new_tokens: int, gamma: int | None) -> Contender:
    """``generate`` with the draft as assistant, at a constant γ, or for None as transformers does by itself."""
    decode = generate(pair, max_new_tokens, assistant_model=pair.draft)

    def decode_with(ids: list[int]) -> Sample:
        with assistant_settings(pair.draft, gamma):
            return decode(ids)

    return decode_with


def lookup_generate(pair: ModelPair, max_new_tokens: int, gamma: int, longest: int) -> Contender:
    """``generate`` with its own prompt lookup."""
    return generate(pair, max_new_tokens, prompt_lookup_num_tokens=gamma, max_matching_ngram_size=longest)


@contextmanager
def assistant_settings(assistant: PreTrainedModel, gamma: int | None) -> Iterator[None]:
    """γ drafted tokens every round; None leaves transformers' defaults, which begin at 20, stop where the draft is
    unsure, and learn from run to run: what they learned is undone afterwards."""
    config = assistant.generation_config
    wanted = {
        "num_assistant_tokens": gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    before = {name: getattr(config, name) for name in wanted}
    try:
        for name, value in wanted.items() if gamma is not None else ():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
