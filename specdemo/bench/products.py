"""``python -m specdemo.bench.products``: products of a few rows with large weights, by how they are computed.

The weights are those of decoder layers and of a head, drawn at random, together larger than any cache. A figure is
the time to multiply all of them with so many rows: what a forward takes but for attention, norms and activations.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from specdemo.bench.forwards import read_bandwidth
from specdemo.bench.harness import Args, Results, columns, head, interleaved, run_bench
from specdemo.machine import bfloat16_instructions
from specdemo.models.packing import no_product_reason, pack_linear

CPU = torch.device("cpu")
GROUP = 32
"""Weights of int4 that share a scale."""
Product = Callable[[torch.Tensor], torch.Tensor]


class Weights(nn.Module):
    """Linear layers without biases: ``layers`` times those of a Qwen3 decoder layer, and a head."""

    def __init__(self, layers: int, width: int, inner: int, vocabulary: int, dtype: torch.dtype) -> None:
        super().__init__()
        size, groups = 2048, 1024
        one = [(size, width), (groups, width), (groups, width), (width, size)]
        one += [(inner, width), (inner, width), (width, inner)]
        shapes = [*(one * layers), (vocabulary, width)]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.products = nn.ModuleList(nn.Linear(n, m, bias=False, dtype=dtype) for m, n in shapes)
        self.requires_grad_(False)

    def forward(self, inputs: dict[int, torch.Tensor]) -> list[torch.Tensor]:
        """``inputs``: (rows, in) by their width."""
        return [product(inputs[product.in_features]) for product in self.products]


class _Columns(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(self.weight, x.t()).t()


class _Int8(nn.Module):
    """torch's own product with int8 weights, a scale each row."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        weight = linear.weight.float()
        scales = weight.abs().amax(1) / 127
        self.weight = (weight / scales[:, None]).round().to(torch.int8)
        self.scales = scales.to(linear.weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scales)


class _Int4(nn.Module):
    """torch's own product with int4 weights, a scale and a zero point each group."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        groups = linear.weight.float().unflatten(1, (-1, GROUP))
        scales = groups.abs().amax(2, keepdim=True) / 7
        numbers = ((groups / scales).round() + 8).flatten(1).to(torch.int32)
        self.weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
        pairs = torch.cat((scales, torch.zeros_like(scales)), 2).transpose(0, 1).contiguous()
        self.scales = pairs.to(linear.weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.weight, GROUP, self.scales)


def _replaced(weights: Weights, by: Callable[[nn.Linear], nn.Module]) -> Weights:
    weights.products = nn.ModuleList(map(by, weights.products))
    return weights


def _columns(linear: nn.Linear) -> nn.Linear:
    linear.__class__ = _Columns
    return linear


def _quantised(weights: Weights, kind: str) -> Weights:
    from optimum import quanto

    quanto.quantize(weights, weights=kind)
    quanto.freeze(weights)
    return weights


WAYS: dict[str, tuple[torch.dtype, Callable[[Weights], Callable[..., Any]]]] = {
    "float32": (torch.float32, lambda w: w),
    "float32, weight × columns": (torch.float32, lambda w: _replaced(w, _columns)),
    "float32, packed": (torch.float32, lambda w: _replaced(w, pack_linear)),
    "bfloat16": (torch.bfloat16, lambda w: w),
    "bfloat16, packed": (torch.bfloat16, lambda w: _replaced(w, pack_linear)),
    "int8 of quanto": (torch.bfloat16, lambda w: _quantised(w, "qint8")),
    "int8 of torch": (torch.bfloat16, lambda w: _replaced(w, _Int8)),
    "int4 of quanto": (torch.bfloat16, lambda w: _quantised(w, "qint4")),
    "int4 of torch": (torch.bfloat16, lambda w: _replaced(w, _Int4)),
}
"""By name: the activations' type, and what makes the products of plain weights."""


def measure(args: Args) -> Results:
    """All figures as plain data."""
    ways, left_out = {}, {}
    for name in args.ways:
        dtype, made = WAYS[name]
        if "packed" in name and (reason := no_product_reason(dtype)):
            left_out[name] = reason
            continue
        weights = Weights(args.layers, args.width, args.inner, args.vocabulary, dtype)
        ways[name] = made(weights), {p.in_features: dtype for p in weights.products}
    timed = {
        (threads, name, rows): partial(_seconds, *ways[name], threads, rows)
        for threads in args.threads
        for name in ways
        for rows in args.rows
    }
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            seconds = interleaved(timed, args.repeats, label="products")
    finally:
        torch.set_num_threads(before)
    rows = [
        {"threads": threads, "way": name, "seconds": {n: median(seconds[threads, name, n]) for n in args.rows}}
        for threads in args.threads
        for name in ways
    ]
    return {
        **head(args, CPU, "layers", "width", "inner", "vocabulary", "repeats"),
        "bfloat16": bfloat16_instructions(),
        "isa": os.environ.get("ONEDNN_MAX_CPU_ISA", "not limited"),
        "read_bandwidth": read_bandwidth(CPU),
        "left_out": left_out,
        "ways": rows,
    }


def _seconds(product: Callable[..., Any], widths: dict[int, torch.dtype], threads: int, rows: int) -> float:
    torch.set_num_threads(threads)
    inputs = {width: torch.ones(rows, width, dtype=dtype) for width, dtype in widths.items()}
    began = time.perf_counter()
    product(inputs)
    return time.perf_counter() - began


def table(found: Results) -> str:
    """The results for people."""
    ways = [{**row, "ms": {n: 1e3 * s for n, s in row["seconds"].items()}} for row in found["ways"]]
    formats = {"threads": "{threads}", "way": "{way}", **{f"{n}": f"{{ms[{n}]:.1f}}" for n in ways[0]["ms"]}}
    return (
        f"bfloat16 instructions: {found['bfloat16'] or 'none'} (oneDNN: {found['isa']}); memory read at "
        f"{found['read_bandwidth'] / 1e9:.1f} GB/s\nmilliseconds by rows, median of "
        f"{found['settings']['repeats']} interleaved repeats\n\n{columns(formats, ways)}"
        + "".join(f"\n{name}: {reason}" for name, reason in found["left_out"].items())
    )


if __name__ == "__main__":
    run_bench(
        "products",
        __doc__,
        measure,
        table,
        ways=list(WAYS),
        rows=[1, 2, 3, 5, 6, 9, 17],
        threads=sorted({1, torch.get_num_threads()}),
        layers=8,
        width=1024,
        inner=3072,
        vocabulary=32_000,
        repeats=7,
    )
