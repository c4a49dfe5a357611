"""What only a machine with a GPU can show; elsewhere the same code is tested on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import endless_pair, generate, prompt_ids

import specdemo
from specdemo import ModelPair, Settings
from specdemo.settings import DRAFTERS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_cuda(model: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(model).to("cuda")


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_ids_equal_generate_on_the_gpu(drafter: str) -> None:
    """Guards device placement of every tensor the loop makes."""
    pair = ModelPair(on_cuda(endless_pair("llama").target), on_cuda(endless_pair("llama").draft), None)
    expected = generate(endless_pair("llama").target, prompt_ids(9), 48)
    trace = specdemo.run(pair, prompt_ids(9), Settings(drafter=drafter, gamma=4, max_new_tokens=48))
    assert trace.token_ids == expected


@pytest.mark.parametrize("draft_on_gpu", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_draft_may_run_on_another_device_than_the_target(draft_on_gpu: bool, temperature: float) -> None:
    """Guards the seam: tokens and logits cross it, and the draws are made on one side."""
    target, draft = endless_pair("llama").target, endless_pair("llama").draft
    pair = ModelPair(target, on_cuda(draft), None) if draft_on_gpu else ModelPair(on_cuda(target), draft, None)
    settings = Settings(acceptance="sampling", temperature=temperature, gamma=4, max_new_tokens=48)
    trace = specdemo.run(pair, prompt_ids(9), settings)
    assert len(trace.token_ids) == 48
    if temperature == 0:
        assert trace.token_ids == generate(target, prompt_ids(9), 48)


@pytest.mark.parametrize("options", [{}, {"acceptance": "sampling", "temperature": 1.0}])
def test_rows_of_a_batch_are_their_own_runs_on_the_gpu(options: dict[str, object]) -> None:
    """Guards the ragged cache's places, masks and indices, which must be made where the model is."""
    pair = ModelPair(on_cuda(endless_pair("llama").target), on_cuda(endless_pair("llama").draft), None)
    ids = [prompt_ids(9), prompt_ids(40), prompt_ids(1)]
    for prompt, trace in zip(
        ids, specdemo.run_batch(pair, ids, Settings(max_new_tokens=32, **options)), strict=True
    ):
        assert trace.token_ids == specdemo.run(pair, prompt, trace.settings).token_ids
