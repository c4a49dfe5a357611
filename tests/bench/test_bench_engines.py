"""The bench of engines, with the toys' weights in llama.cpp too."""

from __future__ import annotations

import pytest
import torch

from specdemo.bench import engines, random_models
from specdemo.models.pair import ModelPair

SHAPE = (4, 64, 4, 2, 96, 512)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ModelPair:
    """Qwen3 in small, without a tokenizer."""
    monkeypatch.setitem(random_models.QWEN3, "tiny", SHAPE)
    return random_models.random_qwen3("tiny", torch.float32)


def test_every_engine_decodes_the_same_tokens(small: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the comparison, and the GGUF of models without a tokenizer: one set of weights, three engines."""
    monkeypatch.setattr(engines, "random_qwen3", lambda name, dtype: small)
    args = {"models": ["tiny"], "dtypes": ["float32"], "tokens": 12, "repeats": 1, "gamma": 3, "threads": 1}
    found = engines.measure(engines.Args(**args, prompts=1))
    assert [row["same_outputs"] for row in found["rows"]] == [1] * 7
    rates = {row["contender"]: row["acceptance_rate"] for row in found["rows"]}
    assert rates["llama.cpp, draft-simple"] == rates["specdemo, drafted"] > 0
    plain = {row["contender"] for row in found["rows"] if row["speedup"] is None}
    assert plain == {"specdemo", "transformers", "llama.cpp"}
    assert "llama.cpp, ngram-simple" in engines.table(found)
