"""``python -m specdemo.bench.trees``: draft trees against chains, and what checking a tree costs.

Chains of every γ and trees of every size take turns on all prompts, none of which is left out. Each domain's
figures are those of its best chain and its best tree, chosen on the same prompts. Then trees of several sizes are
checked by a target of a Qwen3 shape with random weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from specdemo.bench.contenders import Contender, Sample, Samples, ours
from specdemo.bench.forwards import TOKEN, filled_runner, now
from specdemo.bench.harness import (
    Args,
    Results,
    columns,
    extremes,
    head,
    interleaved,
    load,
    prompts_of,
    run_bench,
    spread,
)
from specdemo.bench.random_models import packed, random_qwen3
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.tree import Tree
from specdemo.models.pair import ModelPair
from specdemo.models.request import DTYPES
from specdemo.runs.encode import encode
from specdemo.settings import Settings

PLAIN = "plain"


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    fields = {"drafter": args.drafter, "max_new_tokens": args.tokens}
    ways: dict[Any, Settings] = {PLAIN: Settings(strategy="autoregressive", max_new_tokens=args.tokens)}
    ways |= {(g, 0): Settings(gamma=g, **fields) for g in args.gammas}
    ways |= {(g, n): Settings(gamma=g, tree_nodes=n, **fields) for g in args.gammas for n in args.nodes if n > g}
    prompts = prompts_of(args, args.prompts)
    found = {name: _domain(pair, name, texts, ways, args.repeats) for name, texts in prompts.items()}
    return {
        **head(args, pair.device, "drafter", "gammas", "nodes", "tokens", "repeats", temperature=0),
        "dtype": pair.dtype,
        "prompts": "held-out tasks" if args.corpus else "example prompts",
        "domains": list(found.values()),
        "checks": checks(args.size, args.dtype, args.context, args.checked, args.steps) if args.size else None,
    }


def _domain(
    pair: ModelPair, name: str, prompts: Sequence[str], ways: dict[Any, Settings], repeats: int
) -> dict[str, Any]:
    ids = [encode(pair, prompt) for prompt in prompts]

    def all_prompts(decode: Contender) -> list[Sample]:
        return [decode(each) for each in ids]

    contenders = {way: partial(all_prompts, ours(pair, settings)) for way, settings in ways.items()}
    runs = Samples(interleaved(contenders, repeats, 1, f"trees, {name}"))
    figures = {way: _figures(runs, way) for way in ways if way != PLAIN}
    chains, trees = ([way for way in figures if bool(way[1]) == tree] for tree in (False, True))
    best = [max(some, key=lambda way: figures[way]["speedup"]) for some in (chains, trees)]
    return {
        "domain": name,
        "prompts": len(prompts),
        "identical": all(
            a.ids == b.ids for way in figures for a, b in zip(runs.of[PLAIN][0], runs.of[way][0], strict=True)
        ),
        "chain": {"gamma": best[0][0], **figures[best[0]]},
        "tree": {"gamma": best[1][0], "nodes": best[1][1], **figures[best[1]]},
        "tree_over_chain": runs.ratio(*best),
        "tree_over_chain_spread": extremes(runs.ratios(*best)),
        "ways": [{"gamma": g, "nodes": n, **figures[g, n]} for g, n in (*chains, *trees)],
    }


def _figures(runs: Samples, way: Any) -> dict[str, Any]:
    """Tokens a round over all prompts, and speed-up over plain."""
    metrics = [trace.metrics() for trace in runs.traces(way)]
    rounds = sum(m.rounds or 0 for m in metrics)
    return {
        "tokens_a_round": sum(m.emitted or 0 for m in metrics) / rounds if rounds else 1.0,
        "saved_rounds": sum(m.saved_rounds or 0 for m in metrics) / rounds if rounds else 0.0,
        "speedup": runs.ratio(PLAIN, way),
        "speedup_spread": extremes(runs.ratios(PLAIN, way)),
    }


def checks(size: str, dtype: str, context: int, nodes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Seconds of a verify by drafted tokens: of a chain, and of a tree of as many with two guesses a position."""
    runner = filled_runner(packed(random_qwen3(size, DTYPES[dtype])), context)
    kinds = ("chain", "tree")
    forms = {(n, kind): partial(_check, runner, n, kind == "tree") for n in (0, *nodes) for kind in kinds}
    seconds = {form: median(found) for form, found in interleaved(forms, repeats, 1, "checks").items()}
    rows = [
        {"nodes": n, "chain": seconds[n, "chain"], "tree": seconds[n, "tree"]}
        | {f"{kind}_steps": seconds[n, kind] / seconds[0, "chain"] for kind in kinds}
        for n in nodes
    ]
    return {"size": size, "dtype": dtype, "engine": runner.engine, "context": context, "rows": rows}


def _check(runner: EagerRunner, nodes: int, tree: bool) -> float:
    """Seconds of one verify; the runner is as before."""
    length, drafted = runner.length, torch.full((nodes,), TOKEN)
    parents = [max(0, slot - 2) for slot in range(1, nodes + 1)]
    tree_mask = Tree(parents).mask(length) if tree and nodes else None
    began = now(runner.device)
    runner.forward([TOKEN], nodes + 1, drafted, tree_mask)
    took = now(runner.device) - began
    runner.rollback_to(length)
    return took


DOMAIN = {
    "domain": "{domain}",
    "chain γ": "{chain[gamma]}",
    "τ": "{chain[tokens_a_round]:.2f}",
    "speed-up": spread("chain[speedup]", "chain[speedup_spread]"),
    "tree": "{tree[nodes]}, depth {tree[gamma]}",
    "τ of the tree": "{tree[tokens_a_round]:.2f}",
    "its speed-up": spread("tree[speedup]", "tree[speedup_spread]"),
    "tree/chain": spread("tree_over_chain", "tree_over_chain_spread"),
    "saved": "{tree[saved_rounds]:.0%}",
    "identical": "{identical}",
}
CHECK = {
    "drafted": "{nodes}",
    "chain, ms": "{chain_ms:.1f}",
    "steps": "{chain_steps:.2f}",
    "tree, ms": "{tree_ms:.1f}",
    "steps of it": "{tree_steps:.2f}",
}


def table(results: Results) -> str:
    """The results for people."""
    settings, checked = results["settings"], results["checks"]
    lines = [
        f"{results['pair']}, {results['dtype']}, {settings['drafter']}; greedy, {settings['tokens']} tokens, "
        f"{results['prompts']}, median of {settings['repeats']} interleaved runs (least to most)",
        "",
        columns(DOMAIN, results["domains"]),
    ]
    if checked:
        rows = [{**r, "chain_ms": 1000 * r["chain"], "tree_ms": 1000 * r["tree"]} for r in checked["rows"]]
        lines += [
            "",
            f"one verify, random Qwen3-{checked['size']} in {checked['dtype']}, {checked['engine']} engine, "
            f"{checked['context']} tokens before it; in plain steps",
            columns(CHECK, rows),
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_bench(
        "trees",
        __doc__,
        measure,
        table,
        pair="builtin",
        drafter="model",
        gammas=[2, 3, 4, 5, 6, 8],
        nodes=[4, 6, 8, 12, 16, 24, 32],
        tokens=128,
        repeats=5,
        prompts=4,
        corpus=None,
        size="1.7B",
        dtype="float32",
        checked=[1, 2, 4, 8, 16, 32],
        context=256,
        steps=7,
        threads=1,
    )
