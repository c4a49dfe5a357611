"""The bench of large weights: the ways give the same tokens, and figures follow from what was timed."""

from __future__ import annotations

from argparse import Namespace

import pytest

from specdemo.bench import sizes, trees
from specdemo.bench.random_models import QWEN3
from specdemo.errors import SpecDemoError


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape that is just large enough to be packed."""
    monkeypatch.setitem(QWEN3, "tiny", (8, 128, 2, 1, 256, 1000))
    monkeypatch.setattr("specdemo.models.packing.LEAST_PARAMETERS", 1)


def test_sizes_compares_the_same_tokens() -> None:
    args = {
        "dtypes": ["float32"],
        "threads": [1],
        "rows": [1, 6],
        "gamma": 5,
        "context": 8,
        "tokens": 8,
        "repeats": 2,
    }
    with pytest.raises(SpecDemoError, match=r"no 0\.1B; choose from 0\.6B"):
        sizes.measure(Namespace(sizes=["0.1B"]))
    found = sizes.measure(Namespace(sizes=["tiny"], **args))
    (row,) = found["rows"]
    assert row["weights"]["as torch has it"]["engine"] == "direct"
    assert row["weights"]["packed"]["engine"] == "direct, packed weights"
    assert row["identical"]
    assert row["head_cost"] > 0
    assert row["weights"]["packed"]["v"].keys() == {1, 6}
    assert "c of the head" in sizes.table(found)


def test_a_chain_and_a_tree_of_as_many_tokens_are_checked() -> None:
    (row,) = trees.checks("tiny", "float32", 8, [4], 1)["rows"]
    assert row["tree_steps"] / row["chain_steps"] == pytest.approx(row["tree"] / row["chain"])
