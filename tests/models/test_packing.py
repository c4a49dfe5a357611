"""Packed weights: the same numbers, no second copy of a loaded pair's, nothing done to a caller's own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import checkpoint_pair
from torch import nn
from torch.nn import functional
from toys import FAMILIES, MORE_FAMILIES, build, check_consistent, generate, prompt_ids
from transformers import AutoModelForCausalLM

import specdemo
from specdemo import ModelPair, Settings
from specdemo.models import packing
from specdemo.models.packing import PackedLinear, unpackable_reason

LONG = Settings(gamma=4, max_new_tokens=48)


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of a test are smaller than any that gain."""
    monkeypatch.setattr(packing, "LEAST_PARAMETERS", 0)


def packed(model: nn.Module) -> nn.Module:
    """A model that is packed as a loaded one is; the argument stays as it was."""
    packing.pack(copied := copy.deepcopy(model))
    return copied


@pytest.mark.parametrize("family", [*FAMILIES, *MORE_FAMILIES])
def test_logits_and_greedy_ids_are_those_of_the_plain_weights(family: str) -> None:
    """Guards what every family does around its linear layers: biases, ties, experts, layers of other kinds."""
    model = build(family, eos=None)
    ours, ids = packed(model), torch.tensor([prompt_ids(20)])
    with torch.no_grad():
        torch.testing.assert_close(ours(ids).logits, model(ids).logits, atol=1e-4, rtol=0)
    trace = specdemo.run(ModelPair(ours), prompt_ids(20), Settings(drafter="prompt_lookup", max_new_tokens=32))
    assert trace.token_ids == generate(model, prompt_ids(20), 32)
    assert trace.engine.endswith(", packed weights")
    layers = [m for m in ours.modules() if isinstance(m, nn.Linear)]
    assert all(type(m) is PackedLinear for m in layers)
    assert bool(layers)


def test_what_cannot_gain_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards plain steps where bfloat16 is emulated, three times slower packed; other devices, types and sizes."""
    model = build("llama")
    reasons = []
    for instructions in ("amx", None):
        monkeypatch.setattr(packing, "bfloat16_instructions", lambda found=instructions: found)
        reasons.append(packing.unpackable_reason(model, "cpu", torch.bfloat16))
    assert reasons == [packing.no_product_reason(torch.bfloat16), "no bfloat16 instructions"]
    assert unpackable_reason(model, "cuda", torch.float32) == "not on a CPU"
    assert "torch.float16" in unpackable_reason(model, "cpu", torch.float16)
    monkeypatch.setattr(packing, "LEAST_PARAMETERS", 50_000_000)
    assert unpackable_reason(model, "cpu", torch.float32) == "below 50,000,000 parameters"


@pytest.mark.parametrize(("device", "dtype", "within"), [("auto", "float32", 1e-4), ("cpu", "bfloat16", 0.1)])
def test_a_loaded_pair_is_packed_and_holds_no_second_copy(
    device: str, dtype: str, within: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards memory, and that preflight and card tell what a pair takes; only a tied head is there twice."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(packing, "bfloat16_instructions", lambda: "avx512")
    name = " + ".join(map(str, checkpoint_pair(tmp_path, "qwen3")))
    pair, report = specdemo.load_pair(name, device, dtype), specdemo.preflight(name, device, dtype)
    packed = packing.no_product_reason(pair.target.dtype) is None  # narrow vectors have no product in bfloat16
    for model, (role, footprint), told in zip(pair.models, pair.footprints().items(), report.models, strict=True):
        assert packing.engine_name("direct", model) == ("direct, packed weights" if packed else "direct")
        assert bool([m for m in model.modules() if type(m) is nn.Linear]) is not packed
        assert footprint == told.weights, role
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / role, dtype=pair.target.dtype)
        tied = plain.lm_head.weight if packed and plain.config.tie_word_embeddings else torch.empty(0)
        assert footprint.nbytes == sum(t.nbytes for t in (*plain.parameters(), *plain.buffers())) + tied.nbytes
        ids = torch.tensor([prompt_ids(20)])
        with torch.no_grad():
            torch.testing.assert_close(model(ids).logits, plain(ids).logits, atol=within, rtol=0)
    for drafter in ("model", "early_exit"):
        trace = specdemo.run(pair, "A small", replace(LONG, drafter=drafter))
        assert trace.engine == packing.engine_name("direct", pair.target)
        check_consistent(trace)
    traces = specdemo.run_batch(pair, ["A small", "The quick brown"], LONG)
    assert [t.engine for t in traces] == [packing.engine_name("eager", pair.target)] * 2


@pytest.mark.parametrize(
    "use",
    [copy.deepcopy, pickle.dumps, lambda m: m.state_dict(), lambda m: m.half()],
)
def test_a_packed_model_says_what_it_is_not_for(use: Callable[[nn.Module], object]) -> None:
    """Guards a pair that was loaded by name: torch's errors name no cause, and a half-moved model would run."""
    model = build("llama")
    packing.pack(model)
    with pytest.raises(specdemo.PairError, match=r"packed for decoding.*AutoModelForCausalLM"):
        use(model)


def test_whatever_a_caller_changes_counts_in_the_next_run() -> None:
    """Guards truth: only what was loaded by name is packed, and a caller's own weights are read where they are."""
    pair = ModelPair(build("llama", eos=None))
    settings = Settings(strategy="autoregressive", max_new_tokens=16)
    before = specdemo.run(pair, [1, 20, 21], settings)
    weight = pair.target.model.layers[1].mlp.down_proj.weight
    weight.data.copy_(weight.data.roll(2, 1))  # which torch does not notice
    after = specdemo.run(pair, [1, 20, 21], settings)
    assert after.token_ids == generate(pair.target, [1, 20, 21], 16) != before.token_ids
    assert after.engine == "direct"


@pytest.mark.parametrize(
    ("operator", "said"),
    [(None, "no packed products in this torch (AttributeError)"), (functional.linear, "off by")],
)
def test_products_that_are_not_there_or_wrong_are_not_used(
    operator: Callable[..., torch.Tensor] | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against another torch: the operators are private, and may go or change."""

    def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        if operator is None:
            raise AttributeError("_linear_pointwise")
        return operator(x, weight.to_dense(), bias) + 1e-3

    monkeypatch.setattr(packing, "packed_product", product)
    assert said in packing.no_product_reason.__wrapped__(torch.float32)
