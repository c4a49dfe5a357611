"""``python -m specdemo.bench.contexts``: what a token costs behind a short and a long text.

A random model of Llama's shape decodes behind contexts of several lengths: with our cache and forward, with our
cache alone, and as transformers does by itself, on its ``DynamicCache``. All three read the same keys and values,
and their logits are compared.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from specdemo.bench.traffic import read_bandwidth, step_bytes
from specdemo.decoding.engines.eager import Runner
from specdemo.machine import machine_of

CONTEXTS = (128, 512, 2048, 8192)
OURS, CACHE_ALONE, THEIRS = "ours", "our cache", "transformers"
LEAST_GAIN = 1.3
SEED = 0

Step = Callable[[int], torch.Tensor]
"""Feeds one id, returns the logits (vocabulary,)."""


def random_model(layers: int, width: int, heads: int, groups: int, room: int) -> PreTrainedModel:
    """A model of Llama's shape that never learned anything; its steps take the time of one that has."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=room,
    )
    return LlamaForCausalLM(config).eval()


class Contender:
    """One way to decode, behind a context of random keys and values that all contenders are given."""

    def __init__(self, name: str, model: PreTrainedModel, context: int) -> None:
        self.name, self._model, self._context = name, model, context
        self._runner = None if name == THEIRS else Runner(model, engine="auto" if name == OURS else "eager")
        self._cache = DynamicCache() if self._runner is None else self._runner._cache
        _fill(self._cache, model, context)
        if self._runner is not None:
            self._runner.length = context

    def decode(self, first: int, count: int) -> tuple[float, list[torch.Tensor]]:
        """Median seconds of ``count`` greedy steps, and their logits; the cache is as before afterwards."""
        seconds, said = [], []
        token = first
        for _ in range(count):
            began = time.perf_counter()
            logits = self._step(token)
            token = int(logits.argmax())
            seconds.append(time.perf_counter() - began)
            said.append(logits)
        if self._runner is not None:
            self._runner.rollback_to(self._context)
        else:
            for layer in self._cache.layers:
                layer.crop(-count)
        return median(seconds), said

    def _step(self, token: int) -> torch.Tensor:
        if self._runner is not None:
            return self._runner.forward([token])[0]
        with torch.inference_mode():
            ids = torch.tensor([[token]])
            return self._model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits[0, -1]


def _fill(cache: Any, model: PreTrainedModel, context: int) -> None:
    config, generator = model.config, torch.Generator().manual_seed(SEED)
    shape = (1, config.num_key_value_heads, context, config.head_dim)
    with torch.inference_mode():
        for layer in range(config.num_hidden_layers):
            cache.update(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator), layer)


def measure(model: PreTrainedModel, contexts: list[int], steps: int, repeats: int) -> list[dict[str, Any]]:
    """A row a context; contenders and contexts take turns, so a machine that slows down slows all of them."""
    contenders = {c: [Contender(name, model, c) for name in (OURS, CACHE_ALONE, THEIRS)] for c in contexts}
    seconds: dict[tuple[int, str], list[float]] = {}
    differences = dict.fromkeys(contexts, 0.0)
    for repeat in range(repeats + 1):
        for context, rivals in contenders.items():
            said = {}
            for rival in rivals:
                took, said[rival.name] = rival.decode(17, steps)
                if repeat:  # the first round warms up
                    seconds.setdefault((context, rival.name), []).append(took)
            for ours, theirs in zip(said[OURS], said[THEIRS], strict=True):
                differences[context] = max(differences[context], float((ours - theirs).abs().max()))
    return [
        {
            "context": context,
            "seconds": {r.name: median(seconds[context, r.name]) for r in rivals},
            "spread": {r.name: [min(s := seconds[context, r.name]), max(s)] for r in rivals},
            "bytes": step_bytes(model, context),
            "largest_difference": differences[context],
        }
        for context, rivals in contenders.items()
    ]


def conclusion(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Growth of a token's cost against the shortest context, ours and theirs, and the gain at the longest."""
    first, last = rows[0]["seconds"], rows[-1]["seconds"]
    growth = {name: [row["seconds"][name] / first[name] for row in rows] for name in (OURS, CACHE_ALONE, THEIRS)}
    return {
        "growth": growth,
        "gain_at_longest": last[THEIRS] / last[OURS],
        "no_worse_anywhere": all(row["seconds"][OURS] <= row["seconds"][THEIRS] for row in rows)
        and all(ours <= theirs for ours, theirs in zip(growth[OURS], growth[THEIRS], strict=True)),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.contexts", description=__doc__)
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--groups", type=int, default=8, help="heads of keys and values")
    parser.add_argument("--steps", type=int, default=8, help="tokens a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    contexts = sorted(args.contexts)
    model = random_model(args.layers, args.width, args.heads, args.groups, 2 * contexts[-1])
    rows = measure(model, contexts, args.steps, args.repeats)
    shape = {name: getattr(args, name) for name in ("layers", "width", "heads", "groups", "steps", "repeats")}
    results = {
        "date": date.today().isoformat(),
        "machine": machine_of(model.device),
        "settings": {**shape, "dtype": "float32"},
        "read_bandwidth": read_bandwidth(model.device),
        "contexts": rows,
        **conclusion(rows),
    }
    print(table(results))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    machine, shape = results["machine"], results["settings"]
    lines = [
        f"{shape['layers']} layers, {shape['width']} wide, {shape['heads']} heads, {shape['groups']} groups, "
        f"float32, {machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, "
        f"transformers {machine['transformers']}",
        f"memory read at {results['read_bandwidth'] / 1e9:.1f} GB/s; milliseconds a token, "
        f"median (least to most) of {shape['repeats']} interleaved repeats",
        "",
        f"{'context':>8}{OURS:>22}{CACHE_ALONE:>22}{THEIRS:>22}{'GB/s ours':>11}{'gain':>7}{'Δ logits':>10}",
    ]
    for row in results["contexts"]:
        cells = ""
        for name in (OURS, CACHE_ALONE, THEIRS):
            low, high = row["spread"][name]
            cells += f"{1e3 * row['seconds'][name]:>8.2f} ({1e3 * low:.2f} to {1e3 * high:.2f})".rjust(22)
        rate = row["bytes"] / row["seconds"][OURS] / 1e9
        gain = row["seconds"][THEIRS] / row["seconds"][OURS]
        lines.append(f"{row['context']:>8}{cells}{rate:>11.1f}{gain:>6.2f}×{row['largest_difference']:>10.1e}")
    growth = ", ".join(f"{name} {values[-1]:.2f}×" for name, values in results["growth"].items())
    met = results["gain_at_longest"] >= LEAST_GAIN and results["no_worse_anywhere"]
    lines += ["", f"growth from the shortest to the longest: {growth}"]
    lines.append(
        f"{'ok  ' if met else 'MISS'} {results['gain_at_longest']:.2f}× transformers at the longest context"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
