"""What only a machine with a GPU can show; elsewhere the same code is tested on the CPU."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tape import OTHERS, SAMPLED
from toys import endless_pair, generate, prompt_ids, raced

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.graph_pool import graphs_of
from specdemo.decoding.engines.graph_runner import GraphRunner
from specdemo.decoding.engines.graph_workspace import GraphWorkspace

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_cuda(model: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(model).to("cuda")


def cuda_pair(family: str) -> ModelPair:
    return ModelPair(on_cuda(endless_pair(family).target), on_cuda(endless_pair(family).draft), None)


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
    pair = cuda_pair("llama")
    ids = [prompt_ids(9), prompt_ids(40), prompt_ids(1)]
    for prompt, trace in zip(
        ids, specdemo.run_batch(pair, ids, Settings(max_new_tokens=32, **options)), strict=True
    ):
        assert trace.token_ids == specdemo.run(pair, prompt, trace.settings).token_ids


# --- CUDA graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_graphs_give_eagers_greedy_ids(family: str, gamma: int) -> None:
    """Guards capture and replay themselves; 200 tokens cross from the first stage into the second."""
    settings = Settings(gamma=gamma, max_new_tokens=200)
    assert both(cuda_pair(family), settings) == generate(endless_pair(family).target, prompt_ids(9), 200)


@pytest.mark.parametrize("options", OTHERS, ids=str)
def test_every_way_to_decode_by_graphs_gives_eagers_ids(options: dict[str, object]) -> None:
    both(cuda_pair("llama"), Settings(**options, max_new_tokens=48), "auto")


@pytest.mark.parametrize("options", SAMPLED, ids=str)
def test_a_seed_draws_by_graphs_what_it_draws_eagerly(options: dict[str, object]) -> None:
    """Guards draws that depend on how the logits came to be."""
    for seed in range(5):
        both(cuda_pair("llama"), Settings(**{"gamma": 4, "temperature": 1.0, "seed": seed, **options}))


def both(pair: ModelPair, settings: Settings, engine: str = "graphs") -> list[int]:
    """The ids that graphs and eager forwards agree on; nothing may have fallen back."""
    traces = [specdemo.run(pair, prompt_ids(9), replace(settings, engine=e)) for e in (engine, "eager")]
    assert traces[0].token_ids == traces[1].token_ids
    assert [t.engine for t in traces] == ["graphs", "eager"]
    return traces[0].token_ids


def test_lanes_of_a_race_by_graphs_are_their_own_runs() -> None:
    """Guards memory that stays in place between lanes that take turns on the same models."""
    pair, ids, target = cuda_pair("llama"), list(prompt_ids(9)), endless_pair("llama").target
    ways = (
        {"strategy": "autoregressive"},
        {"gamma": 3},
        {"gamma": 6, "acceptance": "sampling", "temperature": 1.0},
    )
    lanes = [Settings(**way, max_new_tokens=60) for way in ways]
    plain, greedy, sampled = (t.token_ids for t in raced(pair, ids, lanes))
    assert plain == greedy == generate(target, ids, 60)
    assert sampled == specdemo.run(pair, ids, lanes[2]).token_ids


def test_a_capture_that_cannot_be_leaves_the_gpu_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the real thing: what waits for the device ends a capture, and the old stream must be back."""
    original = GraphWorkspace.run

    def waits(self: GraphWorkspace, tokens: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            tokens.sum().item()
        return original(self, tokens, *args, **kwargs)

    monkeypatch.setattr(GraphWorkspace, "run", waits)
    pair, before = cuda_pair("llama"), torch.cuda.current_stream()
    trace = specdemo.run(pair, prompt_ids(9), Settings(gamma=4, max_new_tokens=40, engine="graphs"))
    assert trace.token_ids == generate(endless_pair("llama").target, prompt_ids(9), 40)
    assert "eager: graphs failed" in trace.engine
    assert torch.cuda.current_stream() == before
    # Another model's captures go well afterwards.
    monkeypatch.undo()
    again = specdemo.run(cuda_pair("qwen2"), prompt_ids(9), Settings(max_new_tokens=40, engine="graphs"))
    assert again.engine == "graphs"


def test_drafts_and_verifies_by_graphs_never_wait_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards replays: a forward that asks the device for something is an error here."""
    calls = []

    def strictly(call: Callable[..., object]) -> Callable[..., object]:
        def called(self: GraphRunner, *args: object, **kwargs: object) -> object:
            calls.append(self)
            prefill = self.length == 0
            torch.cuda.set_sync_debug_mode("default" if prefill else "error")
            try:
                return call(self, *args, **kwargs)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return called

    monkeypatch.setattr(GraphRunner, "forward", strictly(GraphRunner.forward))
    for options in ({}, {"acceptance": "sampling", "temperature": 1.0, "top_k": 20}):
        specdemo.run(cuda_pair("llama"), prompt_ids(9), Settings(**options, max_new_tokens=40, engine="graphs"))
    assert len(calls) > 20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bit_graphs_are_no_further_from_the_truth_than_eager(dtype: torch.dtype) -> None:
    """Guards the order of roundings on a GPU, half precision among them."""
    exact = on_cuda(endless_pair("qwen3").target)
    rounded = copy.deepcopy(exact).to(dtype)
    exact.load_state_dict({name: weight.float() for name, weight in rounded.state_dict().items()})
    truth, theirs = (EagerRunner(model, engine="eager") for model in (exact, rounded))
    ours = GraphRunner(rounded, graphs_of(rounded).take(rounded, 128), (1, 5))
    errors = {"ours": 0.0, "theirs": 0.0}
    for begin in range(0, 60, 5):
        ids = prompt_ids(60)[begin : begin + 5]
        right = truth.forward(ids, keep=5).logits
        errors["ours"] += float((ours.forward(ids, keep=5).logits - right).square().mean())
        errors["theirs"] += float((theirs.forward(ids, keep=5).logits - right).square().mean())
    assert errors["ours"] <= 1.5 * errors["theirs"]


def test_memory_of_graphs_goes_with_the_model() -> None:
    """Guards a server that loads one pair after the other."""

    def used() -> int:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    specdemo.run(cuda_pair("llama"), prompt_ids(9), Settings(max_new_tokens=40, engine="graphs"))
    before = used()
    for _ in range(5):
        specdemo.run(cuda_pair("llama"), prompt_ids(9), Settings(max_new_tokens=40, engine="graphs"))
    assert used() <= before + 4_000_000
