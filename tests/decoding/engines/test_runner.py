"""One model, its cache and its rollback: the cache always holds what a fresh forward would have seen."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from toys import FAMILIES, build, endless_pair, generate, perturbed, prompt_ids

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.eager_forward import evaluating


def fresh_logits(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """The next-token logits of one full forward without a cache."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
@pytest.mark.parametrize("gamma", [1, 4])
def test_after_every_round_the_next_logits_equal_a_fresh_forward(
    family: str, gamma: int, runners: Callable[[], list]
) -> None:
    """Guards the rollback of both models: a cache one token long or short still gives plausible text."""
    # Narrower weights than elsewhere: wide ones amplify float32's rounding to 1e-5 itself on some CPUs.
    target = build(family, eos=None, scale=0.2)
    pair = ModelPair(target, perturbed(target), None)
    committed = list(prompt_ids(11))
    counts = set()
    for round_ in specdemo.stream(pair, committed, Settings(gamma=gamma, max_new_tokens=24)):
        committed += [token.id for token in round_.emitted]
        counts.add(round_.accepted)
        target, draft = runners()
        assert target.length == len(committed) - 1, "the cache holds all committed tokens but the last"
        for runner, model in ((target, pair.target), (draft, pair.draft)):
            held = runner.length
            assert held <= len(committed) - 1
            logits = runner.forward(committed[held:]).logits[0]
            torch.testing.assert_close(logits, fresh_logits(model, committed), atol=1e-5, rtol=0)
            runner.rollback_to(held)
    assert len(counts) > 1, "rounds must differ in how many tokens they keep"


@pytest.fixture
def runner() -> EagerRunner:
    runner = EagerRunner(endless_pair("llama").target)
    runner.forward([20, 21, 22, 23])
    return runner


@pytest.mark.parametrize("length", [5, 99, -1])
def test_rollback_out_of_bounds_is_a_value_error(runner: EagerRunner, length: int) -> None:
    """Guards against transformers' silent emptying of a cache that is cropped too far."""
    with pytest.raises(ValueError, match="roll back"):
        runner.rollback_to(length)
    assert runner.length == 4


@pytest.mark.parametrize("length", [0, 1, 3, 4])
def test_rollback_forgets_exactly_the_rest(runner: EagerRunner, length: int) -> None:
    """Guards the relative crop, down to an empty cache, and against ``[:-0]``, which would empty it."""
    runner.rollback_to(length)
    ids = [*[20, 21, 22, 23][:length], 30, 31]
    logits = runner.forward([30, 31]).logits[0]
    assert runner.length == length + 2
    torch.testing.assert_close(logits, fresh_logits(runner.model, ids), atol=1e-5, rtol=1e-5)


def test_keep_returns_the_last_rows(runner: EagerRunner) -> None:
    """Guards the verify: row i must be the prediction after i drafted tokens."""
    rows = runner.forward([24, 25, 26], keep=3).logits
    for i in range(3):
        expected = fresh_logits(runner.model, [20, 21, 22, 23, 24, 25, 26][: 5 + i])
        torch.testing.assert_close(rows[i], expected, atol=1e-5, rtol=1e-5)


def test_evaluating_restores_a_mixture_of_training_and_evaluation() -> None:
    """Guards layers that their owner had frozen, after an error too."""
    model = build("gpt2", dropout=0.5).train()
    model.transformer.h[0].eval()
    before = {name: module.training for name, module in model.named_modules()}
    with suppress(RuntimeError), evaluating(list(model.modules())):
        assert not any(module.training for module in model.modules())
        raise RuntimeError("halfway")
    assert {name: module.training for name, module in model.named_modules()} == before


def test_a_submodule_in_training_mode_does_not_drop_out() -> None:
    """Guards the other mixture: the model says evaluation, one of its layers still says training."""
    model = build("gpt2", dropout=0.5, eos=None)
    expected = generate(model, prompt_ids(5), 12)
    model.transformer.h[0].train()
    settings = Settings(strategy="autoregressive", max_new_tokens=12)
    assert specdemo.run(ModelPair(model, None, None), prompt_ids(5), settings).token_ids == expected
    assert model.transformer.h[0].training


@pytest.mark.parametrize("strategy", ["autoregressive", "speculative"])
def test_closing_a_stream_frees_its_caches(strategy: str, runners: Callable[[], list]) -> None:
    """Guards memory in a server: a stopped run must not keep its caches until the next one."""
    rounds = specdemo.stream(endless_pair("llama"), prompt_ids(9), Settings(strategy=strategy, gamma=3))
    next(rounds)
    next(rounds)
    assert all(runner is not None for runner in runners())
    rounds.close()
    gc.collect()
    assert len(runners()) >= 1
    assert all(runner is None for runner in runners())
