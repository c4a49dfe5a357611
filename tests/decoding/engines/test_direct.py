"""The forward without transformers' modules: the same logits, and only for models known to the last detail."""

from __future__ import annotations

import copy
from collections.abc import Callable

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llama_models import CASES, model_of
from torch import nn
from toys import FIRST_PLAIN, MORE_FAMILIES, build, endless_pair, prompt_ids
from transformers import PreTrainedModel

import specdemo
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.llama_check import unsupported_reason
from specdemo.models import packing

PACKED = ", packed weights"
MOVES = st.lists(
    st.tuples(st.lists(st.integers(FIRST_PLAIN, 63), min_size=1, max_size=9), st.integers(0, 12)),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize(("family", "shape"), CASES)
def test_logits_equal_transformers_after_any_feeding_and_rollback(family: str, shape: str, packed: bool) -> None:
    """Guards the whole arithmetic: groups, biases, head norms, kinds of positions, masks behind a context."""
    model = model_of(family, shape)
    run = copy.deepcopy(model)
    if packed:
        packing.pack(run)
    assert unsupported_reason(run) is None

    @given(MOVES)
    @hypothesis.settings(max_examples=12)
    def check(moves: list[tuple[list[int], int]]) -> None:
        ours, theirs = EagerRunner(run), EagerRunner(model, engine="eager")
        assert (ours.engine, theirs.engine) == (f"direct{PACKED if packed else ''}", "eager")
        for feed, surplus in moves:
            got, expected = (runner.forward(feed, keep=len(feed)).logits for runner in (ours, theirs))
            assert got.dtype == torch.float32
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
            for runner in (ours, theirs):
                runner.rollback_to(max(1, runner.length - surplus))

    check()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_in_16_bit_it_is_no_further_from_the_truth_than_transformers(family: str, packed: bool) -> None:
    """Guards the order of roundings: float32 says what is right, and both may err alike."""
    exact, rounded = model_of(family, "grouped"), model_of(family, "grouped", torch.bfloat16)
    exact.load_state_dict(rounded.state_dict())
    possible = packed and packing.no_product_reason(torch.bfloat16) is None
    run = copy.deepcopy(rounded)
    if possible:
        packing.pack(run)
    ids = list(prompt_ids(40))
    truth = EagerRunner(exact, engine="eager").forward(ids, keep=40).logits
    ours, theirs = (
        (EagerRunner(model, engine=engine).forward(ids, keep=40).logits - truth).square().mean().sqrt()
        for model, engine in ((run, "auto"), (rounded, "eager"))
    )
    assert EagerRunner(run).engine == f"direct{PACKED if possible else ''}"
    assert ours <= 1.25 * theirs


def test_no_logits_are_made_where_none_are_asked_for() -> None:
    """Guards the draft's prefill."""
    for engine in ("auto", "eager"):
        runner = EagerRunner(model_of("qwen2", "grouped"), engine=engine)
        assert runner.forward([20, 21, 22], keep=0).logits.shape == (0, 64)
        assert runner.length == 3


def test_the_builtin_pair_and_the_toys_run_directly() -> None:
    """Guards the tests of greedy equality: they compare the direct forward with ``generate``."""
    pairs = [specdemo.load_pair("builtin"), *(endless_pair(family) for family in ("llama", "qwen2", "qwen3"))]
    assert {EagerRunner(model).engine for pair in pairs for model in pair.models} == {"direct"}


# --- models that are left to transformers -------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", *MORE_FAMILIES])
def test_other_architectures_and_windows_are_left_to_transformers(family: str) -> None:
    """``mistral`` among them, whose models here have a window."""
    model = build(family)
    assert unsupported_reason(model) is not None
    assert EagerRunner(model).engine == "eager"


class _Foreign(nn.Linear):
    """A layer that its class alone tells apart."""


def _layer(model: PreTrainedModel) -> nn.Module:
    return model.model.layers[1]


CHANGES: dict[str, Callable[[PreTrainedModel], object]] = {
    "a hook": lambda model: _layer(model).mlp.register_forward_hook(lambda *_: None),
    "a hook before": lambda model: model.register_forward_pre_hook(lambda *_: None),
    "a forward of its own": lambda model: setattr(model.model.norm, "forward", lambda x: 2 * x),
    "another layer": lambda model: setattr(_layer(model).mlp, "up_proj", _Foreign(32, 48, bias=False)),
    "another activation": lambda model: setattr(_layer(model).mlp, "act_fn", nn.GELU()),
    "mixed types": lambda model: _layer(model).to(torch.bfloat16),
    "half precision": lambda model: model.half(),
    "eager attention": lambda model: model.set_attn_implementation("eager"),
    "a parametrisation": lambda model: nn.utils.parametrizations.weight_norm(_layer(model).mlp.up_proj),
    "a quantiser": lambda model: setattr(model, "hf_quantizer", object()),
    "another scale": lambda model: setattr(_layer(model).self_attn, "scaling", 9.0),
    "no mask": lambda model: [setattr(layer.self_attn, "is_causal", False) for layer in model.model.layers],
    "dynamic positions": lambda model: setattr(
        model.config, "rope_parameters", {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_as_it_was_built_is_left_to_transformers(change: str) -> None:
    """Guards adapters, patches, quantised and offloaded weights: their own code must run."""
    model = copy.deepcopy(model_of("llama", "grouped"))
    assert unsupported_reason(model) is None
    CHANGES[change](model)
    assert unsupported_reason(model) is not None


def test_what_torch_does_around_every_module_is_left_to_transformers() -> None:
    """Guards hooks on all modules at once, and ``torch.autocast``."""
    model = model_of("llama", "grouped")
    everywhere = nn.modules.module
    for hook in (everywhere.register_module_forward_hook, everywhere.register_module_forward_pre_hook):
        with hook(lambda *_: None):
            assert unsupported_reason(model) == "a hook on every module"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert unsupported_reason(model) == "autocast is on"
    assert unsupported_reason(model) is None
