"""The ways to decode a prompt greedily that benches compare, and how the speeds of two are compared."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from specdemo.bench.forwards import now
from specdemo.models.pair import ModelPair
from specdemo.runs.single import run
from specdemo.servers.pair import ServerPair
from specdemo.settings import Settings
from specdemo.trace import Trace


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    Attributes:
        ids: the output.
        seconds: decoding time, prefill included; the lane clock for ours, wall time for transformers.
        trace: ours only.
    """

    ids: list[int]
    seconds: float
    trace: Trace | None = None


Contender = Callable[[list[int]], Sample]


@dataclass(slots=True)
class Samples:
    """What contenders did: ``of[contender][repeat]`` holds one sample a prompt. Speeds are of all prompts."""

    of: dict[str, list[list[Sample]]] = field(default_factory=dict)

    def ratios(self, slow: str, fast: str) -> list[float]:
        """How many times faster ``fast`` is in each repeat, by total times; none without a prompt."""
        repeats = zip(self.of[slow], self.of[fast], strict=True)
        return [_total(s) / _total(f) for s, f in repeats if s]

    def ratio(self, slow: str, fast: str) -> float | None:
        """The median of the same over the repeats."""
        ratios = self.ratios(slow, fast)
        return median(ratios) if ratios else None

    def tokens_per_second(self, contender: str) -> float | None:
        """Prefill included; median over the repeats."""
        rates = [sum(len(s.ids) for s in repeat) / _total(repeat) for repeat in self.of[contender] if repeat]
        return median(rates) if rates else None

    def traces(self, contender: str) -> list[Trace]:
        """Of one of our contenders in the first repeat, one a prompt."""
        return [sample.trace for sample in self.of[contender][0]]


def _total(samples: list[Sample]) -> float:
    return sum(s.seconds for s in samples)


def ours(pair: ModelPair | ServerPair, settings: Settings) -> Contender:
    """This project's decoding; or a server's, by the client's clock, which has the way there and back in it."""

    def decode(ids: list[int]) -> Sample:
        trace = run(pair, ids, settings)
        return Sample(trace.token_ids, trace.rounds[-1].seconds, trace)

    return decode


def generate(pair: ModelPair, max_new_tokens: int, **options: Any) -> Contender:
    """transformers' ``generate`` with further options of its own."""

    def decode(ids: list[int]) -> Sample:
        prompt = torch.tensor([ids], device=pair.device)
        start = now(pair.device)
        out = pair.target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=0,
            **options,
        )
        return Sample(out[0, len(ids) :].tolist(), now(pair.device) - start)

    return decode


def assisted_generate(pair: ModelPair, max_new_tokens: int, gamma: int) -> Contender:
    """``generate`` with the draft as assistant, at a constant γ.

    By default it would begin with 20 tokens a round, stop where the draft is unsure, and adapt from run to run.
    That stands in the assistant's configuration, so every run is given a copy of its own.
    """
    decode = generate(pair, max_new_tokens, assistant_model=pair.draft)
    constant = {"num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.0}

    def decode_with(ids: list[int]) -> Sample:
        config = copy.deepcopy(pair.draft.generation_config)
        config.update(num_assistant_tokens=gamma, **constant)
        with patch.object(pair.draft, "generation_config", config):
            return decode(ids)

    return decode_with


def lookup_generate(pair: ModelPair, max_new_tokens: int, gamma: int, longest: int) -> Contender:
    """``generate`` with its own prompt lookup."""
    return generate(pair, max_new_tokens, prompt_lookup_num_tokens=gamma, max_matching_ngram_size=longest)
