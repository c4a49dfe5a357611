"""The forward without transformers' modules: the same logits, and only for models known to the last detail."""

from __future__ import annotations

import copy
from collections.abc import Callable

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llama_models import CASES, CONFIGS, model_of
from torch import nn
from toys import FIRST_PLAIN, MORE_FAMILIES, build, endless_pair, prompt_ids
from transformers import PreTrainedModel

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding.engines import llama_layout as direct_layout
from specdemo.decoding.engines.eager import Runner
from specdemo.decoding.engines.llama_check import obstacle
from specdemo.decoding.engines.llama_layout import LEAST_BYTES, Layout, layout_for

MOVES = st.lists(
    st.tuples(st.lists(st.integers(FIRST_PLAIN, 63), min_size=1, max_size=9), st.integers(0, 12)),
    min_size=1,
    max_size=6,
)


LAYOUTS = (Layout(), Layout(columns=True), Layout(columns=True, twice=True))


@pytest.mark.parametrize("layout", LAYOUTS, ids=["rows", "columns", "twice"])
@pytest.mark.parametrize(("family", "shape"), CASES)
def test_logits_equal_transformers_after_any_feeding_and_rollback(
    family: str, shape: str, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the whole arithmetic: groups, biases, head norms, kinds of positions, masks behind a context."""
    model = model_of(family, shape)
    assert obstacle(model) is None
    monkeypatch.setattr("specdemo.decoding.engines.llama.layout_for", lambda weights: layout)

    @given(MOVES)
    @hypothesis.settings(max_examples=12)
    def check(moves: list[tuple[list[int], int]]) -> None:
        ours, theirs = Runner(model), Runner(model, engine="eager")
        assert (ours.engine, theirs.engine) == ("direct", "eager")
        for feed, surplus in moves:
            got, expected = (runner.forward(feed, keep=len(feed)) for runner in (ours, theirs))
            assert got.dtype == torch.float32
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
            for runner in (ours, theirs):
                runner.rollback_to(max(1, runner.length - surplus))

    check()


@pytest.mark.parametrize("family", CONFIGS)
def test_in_16_bit_it_is_no_further_from_the_truth_than_transformers(family: str) -> None:
    """Guards the order of roundings: float32 says what is right, and both may err alike."""
    exact, rounded = model_of(family, "grouped"), model_of(family, "grouped", torch.bfloat16)
    exact.load_state_dict(rounded.state_dict())
    ids = list(prompt_ids(40))
    truth = Runner(exact, engine="eager").forward(ids, keep=40)
    ours, theirs = (
        (Runner(rounded, engine=engine).forward(ids, keep=40) - truth).square().mean().sqrt()
        for engine in ("auto", "eager")
    )
    assert Runner(rounded).engine == "direct"
    assert ours <= 1.25 * theirs


def test_it_reads_the_callers_own_weights() -> None:
    """Guards memory and truth: what a caller changes between two runs counts in the second."""
    model = model_of("llama", "grouped")
    before = {name: (weights.data_ptr(), weights.clone()) for name, weights in model.named_parameters()}
    runner = Runner(model)
    runner.forward([20, 21, 22])
    for name, weights in model.named_parameters():
        assert weights.data_ptr() == before[name][0]
        assert torch.equal(weights, before[name][1])
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(2)
    after = (Runner(model, engine=engine).forward([20, 21, 22]) for engine in ("auto", "eager"))
    torch.testing.assert_close(*after, atol=1e-5, rtol=1e-5)


def test_no_logits_are_made_where_none_are_asked_for() -> None:
    """Guards the draft's prefill."""
    for engine in ("auto", "eager"):
        runner = Runner(model_of("qwen2", "grouped"), engine=engine)
        assert runner.forward([20, 21, 22], keep=0).shape == (0, 64)
        assert runner.length == 3


def test_an_id_beyond_a_narrow_drafts_embeddings_is_taken_for_the_last() -> None:
    model = model_of("llama", "grouped")
    logits = [Runner(model, engine=engine).forward([20, 99]) for engine in ("auto", "eager")]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)


def test_early_exit_shares_a_cache_between_two_direct_forwards() -> None:
    """Guards the first layers, which the draft fills and takes back while the target's others stay behind."""
    pair = ModelPair(model_of("llama", "grouped"), None, None)
    plain = Settings(strategy="autoregressive", max_new_tokens=32)
    drafted = Settings(drafter="early_exit", exit_layer=1, gamma=3, max_new_tokens=32)
    traces = [specdemo.run(pair, prompt_ids(9), settings) for settings in (plain, drafted)]
    assert traces[0].token_ids == traces[1].token_ids


# --- the layout of the products -----------------------------------------------------------------------------


def test_a_layout_is_found_once_a_process() -> None:
    """Guards repeatability: two runs of one seed must not multiply in two ways."""
    side = int((LEAST_BYTES / 4) ** 0.5) + 1
    weights = [torch.ones(side, side)]
    assert layout_for(weights) is layout_for([torch.zeros(side, side)])
    assert {layout_for(weights) for _ in range(5)} == {layout_for(weights)}


def test_weights_too_small_to_tell_are_multiplied_as_rows() -> None:
    """Guards the time before a lane of a toy model, and its repeatability."""
    assert layout_for([torch.ones(32, 32)]) == Layout()


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"rows": (1.0, 2.0), "columns": (1.5, 1.0)}, Layout(columns=True)),
        ({"rows": (1.0, 2.0), "columns": (0.5, 1.0)}, Layout(columns=True, twice=True)),
        ({"rows": (1.0, 1.0), "columns": (0.5, 0.95)}, Layout()),
        ({"rows": (1.0, 1.0), "columns": (2.0, 2.0)}, Layout()),
    ],
)
def test_the_faster_way_is_chosen(
    seconds: dict[str, tuple[float, float]], expected: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the choice itself, on a clock that each trial moves on by a known time: (one token, five)."""
    clock = [0.0]

    def way(name: str) -> Callable[[object, int], None]:
        def trial(weights: object, count: int) -> None:
            clock[0] += seconds[name][count == 5]

        return trial

    for name in ("rows", "columns"):
        monkeypatch.setattr(direct_layout, f"_{name}", way(name))
    monkeypatch.setattr(direct_layout.time, "perf_counter", lambda: clock[0])
    assert direct_layout._try([torch.ones(2, 2)]) == expected


# --- models that are left to transformers -------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", *MORE_FAMILIES])
def test_other_architectures_and_windows_are_left_to_transformers(family: str) -> None:
    """``mistral`` among them, whose models here have a window."""
    model = build(family)
    assert obstacle(model) is not None
    assert Runner(model).engine == "eager"


class _Foreign(nn.Linear):
    """A layer that its class alone tells apart."""


def _hook(model: PreTrainedModel) -> None:
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def _hook_before(model: PreTrainedModel) -> None:
    model.register_forward_pre_hook(lambda *_: None)


def _replaced_forward(model: PreTrainedModel) -> None:
    model.model.norm.forward = lambda x: 2 * x


def _replaced_layer(model: PreTrainedModel) -> None:
    model.model.layers[0].mlp.up_proj = _Foreign(32, 48, bias=False)


def _other_activation(model: PreTrainedModel) -> None:
    model.model.layers[2].mlp.act_fn = nn.GELU()


def _mixed_types(model: PreTrainedModel) -> None:
    model.model.layers[0].to(torch.bfloat16)


def _half(model: PreTrainedModel) -> None:
    model.half()


def _eager(model: PreTrainedModel) -> None:
    model.set_attn_implementation("eager")


def _parametrised(model: PreTrainedModel) -> None:
    nn.utils.parametrizations.weight_norm(model.model.layers[0].mlp.up_proj)


def _quantised(model: PreTrainedModel) -> None:
    model.hf_quantizer = object()


def _dynamic_positions(model: PreTrainedModel) -> None:
    model.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}


CHANGES = (
    _hook,
    _hook_before,
    _replaced_forward,
    _replaced_layer,
    _other_activation,
    _mixed_types,
    _half,
    _eager,
    _parametrised,
    _quantised,
    _dynamic_positions,
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_as_it_was_built_is_left_to_transformers(
    change: Callable[[PreTrainedModel], None],
) -> None:
    """Guards adapters, patches, quantised and offloaded weights: their own code must run."""
    model = copy.deepcopy(model_of("llama", "grouped"))
    assert obstacle(model) is None
    change(model)
    assert obstacle(model) is not None


def test_the_builtin_pair_runs_directly() -> None:
    pair = specdemo.load_pair("builtin")
    assert [obstacle(model) for model in (pair.target, pair.draft)] == [None, None]


def test_a_toy_pair_of_the_other_tests_runs_directly_too() -> None:
    """Guards the tests of greedy equality: they compare the direct forward with ``generate``."""
    for family in ("llama", "qwen2", "qwen3"):
        assert Runner(endless_pair(family).target).engine == "direct"
