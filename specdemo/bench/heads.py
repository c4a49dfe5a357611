"""``python -m specdemo.bench.heads``: what a draft step of an EAGLE-3 head costs, and where a round's time goes.

Target and head have random weights, so the head is hardly ever right: its forwards take the time of trained ones,
its acceptance means nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from transformers import Qwen3Config

from specdemo.bench.harness import Args, Results, columns, head, run_bench
from specdemo.bench.random_models import CPU, ENDLESS, QWEN3, SEED, random_model
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.head import HeadRunner
from specdemo.models.eagle3_config import shaped_like
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.packing import pack, unpackable_reason
from specdemo.models.pair import ModelPair
from specdemo.models.request import DTYPES
from specdemo.runs.single import run
from specdemo.settings import Settings

DRAFT_VOCABULARY = 32_000
"""Of most published heads."""


def random_head_pair(size: str, dtype: torch.dtype) -> ModelPair:
    """A Qwen3-shaped target on the CPU with a head of the shape of its published ones, packed as loaded pairs are.

    Args:
        size: one of ``QWEN3``.
        dtype: of both.
    """
    target = random_model(Qwen3Config, QWEN3[size], CPU, dtype, head_dim=128, tie_word_embeddings=True, **ENDLESS)
    shape = target.config
    config = shaped_like(shape, "a random head", shape.intermediate_size, DRAFT_VOCABULARY)
    torch.manual_seed(SEED)
    made = Eagle3Head(config).to(dtype).requires_grad_(False).eval()
    made.target_ids = torch.randperm(shape.vocab_size)[:DRAFT_VOCABULARY].sort().values
    for model in (target, made):
        if unpackable_reason(model, "cpu", dtype) is None:
            pack(model)
    return ModelPair(target, None, None, name=f"random Qwen3-{size} and head", head=made)


@contextmanager
def timed_forwards() -> Iterator[list[float]]:
    """The seconds of every forward of a target or a head inside, projections of features included."""
    spent: list[float] = []

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **options)
            finally:
                spent.append(time.perf_counter() - began)

        return call

    methods = ((EagerRunner, "forward"), (HeadRunner, "forward"), (HeadRunner, "project"))
    patches = [patch.object(kind, name, timed(getattr(kind, name))) for kind, name in methods]
    for each in patches:
        each.start()
    try:
        yield spent
    finally:
        for each in patches:
            each.stop()


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = random_head_pair(args.size, DTYPES[args.dtype])
    ids = list(range(100, 100 + args.context))
    lanes = [
        Settings(strategy="autoregressive", max_new_tokens=args.tokens),
        Settings(drafter="eagle3", gamma=args.gamma, max_new_tokens=args.tokens),
    ]
    for settings in lanes:
        run(pair, ids, settings)
    rows = []
    for _ in range(args.repeats):
        plain = run(pair, ids, lanes[0])
        with timed_forwards() as spent:
            lane = run(pair, ids, lanes[1])
        figures = lane.metrics(plain)
        rows.append(
            {
                "engine": lane.engine,
                "step": plain.metrics().tpot,
                "draft_step": figures.draft_seconds / figures.proposed,
                "c": figures.draft_cost,
                "v": figures.verify_cost,
                "outside": 1 - sum(spent) / figures.seconds,
            }
        )
    found = {key: median(row[key] for row in rows) for key in ("step", "draft_step", "c", "v", "outside")}
    return {
        **head(args, CPU, "size", "dtype", "gamma", "tokens", "context", "repeats"),
        "pair": pair.name,
        "engine": rows[0]["engine"],
        "head_parameters": sum(p.numel() for p in pair.head.parameters()),
        **found,
        "all": rows,
    }


COLUMNS = {
    "dtype": "{dtype}",
    "γ": "{gamma}",
    "target step": "{step_ms:.0f} ms",
    "draft step": "{draft_ms:.1f} ms",
    "c": "{c:.3f}",
    "v(γ)": "{v:.2f}",
    "outside forwards": "{outside:.1%}",
}


def table(found: Results) -> str:
    """The results for people."""
    row = {**found, **found["settings"], "step_ms": 1e3 * found["step"], "draft_ms": 1e3 * found["draft_step"]}
    return (
        f"{found['pair']} ({found['head_parameters'] / 1e6:.0f}M parameters), {found['engine']}; medians of "
        f"{found['settings']['repeats']} runs\n\n{columns(COLUMNS, [row])}"
    )


if __name__ == "__main__":
    defaults = {"dtype": "float32", "gamma": 5, "tokens": 12, "context": 64, "repeats": 3, "threads": 1}
    run_bench("heads", __doc__, measure, table, size="1.7B", **defaults)
