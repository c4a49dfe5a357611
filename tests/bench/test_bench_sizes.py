"""The benches of large weights: the ways give the same products, and figures follow from what was timed."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from specdemo.bench import products, sizes
from specdemo.bench.random_models import QWEN3
from specdemo.errors import SpecDemoError
from specdemo.models.packing import no_product_reason

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("name", [*products.WAYS])
def test_all_ways_multiply_with_the_same_weights(name: str) -> None:
    """Guards the comparison; quantised weights are as near as their bits allow."""
    dtype, made = products.WAYS[name]
    if "packed" in name and no_product_reason(dtype):  # narrow vectors have no such product in bfloat16
        with pytest.raises(RuntimeError, match="mkldnn"):
            made(products.Weights(1, 64, 64, 64, dtype))
        return
    shape = {"layers": 1, "width": 256, "inner": 512, "vocabulary": 320}
    inputs = {size: torch.randn(3, size, dtype=dtype) for size in (256, 512, 2048)}
    with torch.no_grad():
        expected = products.Weights(**shape, dtype=dtype)(inputs)
        found = made(products.Weights(**shape, dtype=dtype))(inputs)
    near = 0.2 if "int4" in name else TOLERANCE[dtype]
    for one, other in zip(expected, found, strict=True):
        assert (one - other).abs().max() <= near * one.abs().max()


def test_products_has_a_row_for_each_way_and_number_of_threads() -> None:
    args = Namespace(
        ways=["float32", "float32, packed"],
        rows=[1, 6],
        threads=[1, 2],
        layers=1,
        width=64,
        inner=64,
        vocabulary=64,
        repeats=2,
    )
    found = products.measure(args)
    assert [(row["threads"], row["way"]) for row in found["ways"]] == [
        (threads, way) for threads in args.threads for way in args.ways
    ]
    assert all(row["seconds"].keys() == {1, 6} for row in found["ways"])
    assert "float32, packed" in products.table(found)


def test_sizes_compares_the_same_tokens_and_judges_every_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the table on a model that is just large enough to be packed."""
    monkeypatch.setitem(QWEN3, "tiny", (3, 128, 2, 1, 256, 1000))
    monkeypatch.setattr("specdemo.models.packing.LEAST_PARAMETERS", 1)
    args = Namespace(
        sizes=["tiny"], dtypes=["float32"], threads=[1], rows=[1, 6], gamma=5, context=8, tokens=8, repeats=2
    )
    with pytest.raises(SpecDemoError, match=r"no 0\.1B; choose from 0\.6B"):
        sizes.measure(Namespace(sizes=["0.1B"]))
    found = sizes.measure(args)
    (row,) = found["rows"]
    assert row["ways"]["as it is"]["engine"] == "direct"
    assert row["ways"]["packed"]["engine"] == "direct, packed weights"
    assert row["identical"]
    assert row["ways"]["packed"]["v"].keys() == {1, 6}
    table = sizes.table(found)
    assert sum(line.startswith(("ok", "MISS")) for line in table.splitlines()) == len(sizes.BARS)
