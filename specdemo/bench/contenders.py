"""What benches compare: ways to decode a prompt, and the paired ratios of their speeds."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import torch

from specdemo.decoding.clock import synchronize
from specdemo.decoding.lane import Texts
from specdemo.models.pair import ModelPair
from specdemo.runs.single import run
from specdemo.servers.gguf import GgufPair
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

    @property
    def whole_speed(self) -> float:
        """Tokens a second, prefill included."""
        return len(self.ids) / self.seconds

    @property
    def decode_speed(self) -> float | None:
        """Tokens a second after the first, of ours; None of a run that ended with its first."""
        return self.own.metrics().tokens_per_second

    @property
    def own(self) -> Trace:
        assert self.trace is not None, "it is transformers' own"
        return self.trace


Contender = Callable[[Any], Sample]


def compared(slow: Sequence[Sample], fast: Sequence[Sample], whole: bool = False) -> dict[str, float]:
    """How many times as fast the samples of ``fast`` are as those of ``slow`` in their places.

    ``median``, and the middle half from ``low`` to ``high``. ``whole``: prefill included, as it has to be where
    one of the two is transformers'.
    """
    speeds = [[s.whole_speed if whole else s.decode_speed for s in some] for some in (slow, fast)]
    return quartiles([f / s for s, f in zip(*speeds, strict=True) if s and f])


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """The ``median``, and the middle half from ``low`` to ``high``."""
    low, high = quantiles(values, n=4)[::2] if len(values) > 1 else [*values, *values]
    return {"median": median(values), "low": low, "high": high}


def spread(name: str) -> str:
    """The format of what :func:`compared` found, by its name in the row: ``1.76× (1.70 to 1.81)``."""
    return f"{{{name}[median]:.2f}}× ({{{name}[low]:.2f}} to {{{name}[high]:.2f}})"


def now(device: torch.device) -> float:
    """Seconds of a clock, read when the device has done all that was launched."""
    synchronize(device)
    return time.perf_counter()


def ours(pair: ModelPair | GgufPair, settings: Settings, earlier: Texts = ()) -> Contender:
    """This project's decoding of token ids, or of a text, as llama.cpp takes it, after ``earlier`` outputs."""

    def decode(ids: Sequence[int] | str) -> Sample:
        trace = run(pair, ids if isinstance(ids, str) else list(ids), settings, earlier)
        return Sample(trace.token_ids, trace.rounds[-1].seconds, trace)

    return decode


def generate(pair: ModelPair, max_new_tokens: int, **options: Any) -> Contender:
    """transformers' ``generate`` with further options of its own."""

    def decode(ids: Sequence[int]) -> Sample:
        prompt = torch.tensor([list(ids)], device=pair.device)
        start = now(pair.device)
        out = pair.target.generate(  # type: ignore[operator]
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
    draft = pair.draft
    assert draft is not None, "transformers drafts with one"
    decode = generate(pair, max_new_tokens, assistant_model=draft)
    constant = {"num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.0}

    def decode_with(ids: Sequence[int]) -> Sample:
        config = copy.deepcopy(draft.generation_config)
        config.update(num_assistant_tokens=gamma, **constant)
        with patch.object(draft, "generation_config", config):
            return decode(ids)

    return decode_with
