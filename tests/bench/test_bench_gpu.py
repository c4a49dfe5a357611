"""The GPU bench, but for the GPU: its models, its turns and what it concludes."""

from __future__ import annotations

import pytest
import torch
from tape import Taped

from specdemo.bench import gpu
from specdemo.bench.random_models import SHAPES, random_pair
from specdemo.decoding.engines import graph_capture, graph_pool
from specdemo.errors import SpecDemoError
from specdemo.models.pair import ModelPair


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", (6, 32, 4, 2, 8, 48, 128, False))


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs on a CPU: see test_graphs.py."""
    monkeypatch.setattr(graph_capture, "capture_on", lambda device: Taped())
    monkeypatch.setattr(graph_capture, "can_capture", lambda device: True)
    monkeypatch.setattr(graph_pool, "_of_models", type(graph_pool._of_models)())


def small(later: float = 0.05) -> ModelPair:
    return random_pair("tiny", torch.float32, later=later)


def test_the_draft_is_the_targets_first_layers_in_memory_of_its_own() -> None:
    """Guards an honest cost: weights that both models read would be in the GPU's cache for the second."""
    pair = small()
    theirs = dict(pair.target.named_parameters())
    for name, weight in pair.draft.named_parameters():
        assert torch.equal(weight, theirs[name])
        assert weight.data_ptr() != theirs[name].data_ptr()
    assert len(pair.draft.model.layers) == 2
    assert len(pair.target.model.layers) == 6


def test_smaller_later_layers_make_the_draft_right_more_often(taped: None) -> None:
    """Guards the construction: with nothing added by the later layers the two models are one."""
    found = [gpu.speculation(small(later), 4, 24, 1) for later in (0.0, 20.0)]
    rates = [row["acceptance_rate"] for each in found for row in each["rows"] if row["contender"] == gpu.GRAPHS]
    assert rates[0] == 1.0
    assert rates[1] < 0.6


def test_all_contenders_decode_the_same_number_of_tokens_by_the_engines_they_name(taped: None) -> None:
    """Guards the comparison itself."""
    pair = small()
    found = gpu.speculation(pair, 3, 16, 2)
    assert [row["engine"] for row in found["rows"]] == ["graphs", "eager", "graphs", "eager", "", ""]
    assert all(row["identical"] for row in found["rows"])
    for decode in gpu.contenders(pair, 3, 16).values():
        assert len(decode([1, 2, 3]).ids) == 16


def test_a_figure_counts_only_if_graphs_really_ran(taped: None) -> None:
    """Guards against a fallback that is reported as a figure of graphs."""
    speed = gpu.speculation(small(), 3, 12, 1)
    results = {"speculation": [speed], "cuda": None}
    speed["graphs_over_assisted"] = speed["rows"][0]["ratio"] = {"median": 2.5, "low": 2.0, "high": 3.0}
    assert [kept for kept, _ in gpu.verdicts(results)] == [True] * 3
    assert gpu.table(results).count("\nok  ") == 3
    speed["rows"][0]["engine"] = "eager: why"
    assert [kept for kept, _ in gpu.verdicts(results)] == [False] * 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(SpecDemoError, match="measures a GPU, and torch finds none"):
        gpu.measure(gpu.Args())
