"""Runs on device types that no engine here knows: an Apple GPU, and one that torch has a module for."""

from __future__ import annotations

import pytest
import torch
from other_device import OtherDevice
from toys import endless_pair, prompt_ids, skilled_head

import specdemo
from specdemo import ModelPair, Settings
from specdemo.models import loading
from specdemo.models.compatibility import check_quantization
from specdemo.models.packing import unpackable_reason
from specdemo.settings import LOSSLESS_RULES, LOSSY_RULES

SAMPLED = {"temperature": 0.8, "top_k": 20, "top_p": 0.95, "seed": 3}
WAYS = [
    ("mps", {"strategy": "autoregressive", **SAMPLED}),
    ("mps", {"drafter": "model", "repetition_penalty": 1.2}),
    ("mps", {"drafter": "model", "adaptive_gamma": True, "engine": "graphs"}),
    ("mps", {"drafter": "prompt_lookup", "lookup_ngram": 1}),
    ("mps", {"drafter": "early_exit", "exit_layer": 1}),
    ("mps", {"drafter": "eagle3"}),
    ("mps", {"drafter": "eagle3", "tree_nodes": 6}),
    ("mps", {"strategy": "assisted", **SAMPLED, "acceptance": "sampling"}),
    *(("mps", {"acceptance": rule, **SAMPLED}) for rule in [*LOSSLESS_RULES, *LOSSY_RULES][1:]),
    ("mps", {"acceptance": "sampling", **SAMPLED, "tree_nodes": 6}),
    ("xpu", {"drafter": "model"}),
    ("xpu", {"strategy": "assisted"}),
]


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    toy = endless_pair("llama")
    return ModelPair(toy.target, toy.draft, None, head=skilled_head(toy.target))


@pytest.mark.parametrize(("kind", "way"), WAYS, ids=str)
def test_every_way_to_decode_gives_the_tokens_of_the_cpu(
    kind: str, way: dict[str, object], pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards tables of device types, float64, and tensors, draws and clocks of the wrong device."""
    settings = Settings(**way, max_new_tokens=12)
    expected = specdemo.run(pair, prompt_ids(9), settings)
    with OtherDevice(kind, monkeypatch) as device:
        trace = specdemo.run(device.moved(pair), prompt_ids(9), settings)
    assert trace.token_ids == expected.token_ids
    assert trace.engine.startswith("eager")
    assert device.waits > len(trace.rounds)


def test_batches_and_losslessness_run_there_too(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the tabs beside the race: rows in one cache, evidence in float64, the number of threads."""
    greedy = Settings(max_new_tokens=12)
    sampled = Settings(acceptance="sampling", **SAMPLED, max_new_tokens=12)
    with OtherDevice("mps", monkeypatch) as device:
        there, ids = device.moved(pair), [prompt_ids(9), prompt_ids(4)]
        for settings in (greedy, sampled):
            rows, own = specdemo.run_batch(there, ids, settings), specdemo.run_batch(pair, ids, settings)
            assert [row.token_ids for row in rows] == [row.token_ids for row in own]
        found = [specdemo.certify(p, prompt_ids(9), sampled, runs=2, tokens=8).evidence for p in (there, pair)]
        assert specdemo.check_greedy(there, specdemo.run(there, prompt_ids(9), greedy)).outcome == "identical"
        assert specdemo.quickest_threads(there) == torch.get_num_threads()
    assert found[0] == pytest.approx(found[1])


def test_the_default_pair_is_loaded_and_raced_on_an_apple_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards what a Mac does when nothing is chosen; its memory is what Metal recommends at the most."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 10**9)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 1000)
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: None)
    monkeypatch.setattr(loading, "is_accelerate_available", lambda: False)  # it reads straight onto a real device
    ways = ({"strategy": "autoregressive"}, {"drafter": "model"}, {"drafter": "eagle3"})
    lanes = [Settings(**way, max_new_tokens=8) for way in ways]
    with OtherDevice("mps", monkeypatch):
        report = specdemo.preflight("builtin")
        assert (report.device, report.memory_free, report.problems) == ("mps", 10**9 - 1000, ())
        racing = specdemo.race(specdemo.load_pair(), "Book a table.", lanes)
        list(racing)
    assert len({tuple(trace.token_ids) for trace in racing.traces()}) == 1
    assert {trace.engine for trace in racing.traces()} == {"eager"}
    with pytest.raises(specdemo.PairError, match="an Apple GPU has no float8"):
        check_quantization("float8", "auto", torch.bfloat16)
    assert unpackable_reason(endless_pair("llama").target, "auto", torch.float32) == "not on a CPU"
