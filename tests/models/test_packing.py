"""Packed weights: the same numbers, no second copy of a loaded pair's, nothing done to a caller's own."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import checkpoint_pair
from torch import nn
from torch.nn import functional
from toys import FAMILIES, MORE_FAMILIES, build, check_consistent, endless_pair, generate, prompt_ids, raced
from transformers import AutoModelForCausalLM

import specdemo
from specdemo import ModelPair, Settings
from specdemo.models import packing
from specdemo.models.packing import PackedLinear, packed_beside, unpackable_reason

LONG = Settings(gamma=4, max_new_tokens=48)


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of a test are smaller than any that gain."""
    monkeypatch.setattr(packing, "LEAST_PARAMETERS", 0)


@pytest.mark.parametrize("family", [*FAMILIES, *MORE_FAMILIES])
def test_logits_and_greedy_ids_are_those_of_the_plain_weights(family: str) -> None:
    """Guards what every family does around its linear layers: biases, ties, experts, layers of other kinds."""
    model = build(family, eos=None)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    packed, ids = packed_beside(model), torch.tensor([prompt_ids(20)])
    with torch.no_grad():
        torch.testing.assert_close(packed(ids).logits, model(ids).logits, atol=1e-4, rtol=0)
    trace = specdemo.run(ModelPair(model), prompt_ids(20), Settings(drafter="prompt_lookup", max_new_tokens=32))
    assert trace.token_ids == generate(model, prompt_ids(20), 32)
    layers = [m for m in packed.modules() if isinstance(m, nn.Linear)]
    assert all(type(m) is PackedLinear for m in layers)
    assert bool(layers)
    assert not any(isinstance(m, PackedLinear) for m in model.modules())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_bfloat16_is_not_packed_for_a_processor_that_emulates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards plain steps there, which packed weights would make three times slower."""
    model = build("llama")
    reasons = []
    for instructions in ("amx", None):
        monkeypatch.setattr(packing, "bfloat16_instructions", lambda found=instructions: found)
        reasons.append(packing.unpackable_reason(model, "cpu", torch.bfloat16))
    assert reasons == [packing.no_product_reason(torch.bfloat16), "no bfloat16 instructions"]


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


def test_lanes_of_a_callers_pair_share_one_packed_copy_as_long_as_its_weights_stay() -> None:
    """Guards truth: what a caller changes counts in the next run, even behind torch's back; and memory."""
    pair = ModelPair(build("llama", eos=None))
    lanes = [Settings(strategy="autoregressive", max_new_tokens=16), replace(LONG, drafter="early_exit")]
    traces = raced(pair, [1, 20, 21], lanes)
    assert all(t.engine == "direct, packed copies of the weights" for t in traces)
    copied = packed_beside(pair.target)
    assert packed_beside(pair.target) is copied
    weight = pair.target.model.layers[1].mlp.down_proj.weight
    for behind in (False, True):
        with torch.no_grad():
            (weight.data if behind else weight).mul_(2)
        run = specdemo.run(pair, [1, 20, 21], lanes[0])
        assert run.token_ids == generate(pair.target, [1, 20, 21], 16)
    assert packed_beside(pair.target) is not copied
    gone = weakref.ref(packed_beside(pair.target))
    del pair, traces, copied, weight, run
    gc.collect()
    assert gone() is None


CHANGES: dict[str, Callable[[nn.Module, int], None]] = {
    "a row behind torch's back": lambda model, token: model.lm_head.weight.data[token].zero_(),
    "a bias": lambda model, token: setattr(
        model.lm_head, "bias", nn.Parameter(torch.eye(len(model.lm_head.weight))[9] * 99)
    ),
    "a norm": lambda model, token: setattr(model.model, "norm", nn.Tanh()),
    "a table": lambda model, token: model.set_input_embeddings(nn.Embedding(*model.lm_head.weight.shape)),
    "a number": lambda model, token: setattr(model.model.layers[0].self_attn, "scaling", 9.0),
    "a method": lambda model, token: setattr(model.model.layers[0].mlp, "forward", lambda x: 9 * x),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_a_caller_changes_counts_in_the_next_run(change: str) -> None:
    """Guards truth: a packed copy shares the rest of its model only as that was when it was made."""
    torch.manual_seed(0)
    pair = ModelPair(build("llama", eos=None))
    settings = Settings(strategy="autoregressive", max_new_tokens=16)
    before = specdemo.run(pair, [1, 20, 21], settings).token_ids
    CHANGES[change](pair.target, before[0])
    expected = generate(pair.target, [1, 20, 21], 16)
    assert expected != before
    assert specdemo.run(pair, [1, 20, 21], settings).token_ids == expected


def test_without_room_a_callers_model_runs_as_it_is_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against swapping."""
    pair = endless_pair("qwen2")
    monkeypatch.setattr(packing, "free_memory", lambda device: 1000)
    trace = specdemo.run(pair, [1, 20], LONG)
    assert trace.engine.startswith("direct: no memory for packed weights beside its own (0.0 GB)")


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
    packing.no_product_reason.cache_clear()
    model = build("llama")
    try:
        assert said in unpackable_reason(model, "cpu", torch.float32)
        assert packed_beside(model) is model
    finally:
        packing.no_product_reason.cache_clear()


def test_what_cannot_gain_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards small models, and other devices and types."""
    model = build("llama")
    assert unpackable_reason(model, "cuda", torch.float32) == "not on a CPU"
    assert "torch.float16" in unpackable_reason(model, "cpu", torch.float16)
    monkeypatch.setattr(packing, "LEAST_PARAMETERS", 50_000_000)
    assert unpackable_reason(model, "cpu", torch.float32) == "below 50,000,000 parameters"
