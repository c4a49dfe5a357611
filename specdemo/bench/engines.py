"""``python -m specdemo.bench.engines``: one pair in three engines, with and without speculation, one thread each.

This project, transformers and llama.cpp decode the same prompts with the same weights, in turns. An engine's
speed-up is over its own plain decoding: what is left of a difference between two speeds is the engine, not the
method. Needs the tests' requirements (``xllamacpp`` and ``gguf``).
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from specdemo.bench.contenders import Contender, Sample, Samples, assisted_generate, generate, ours
from specdemo.bench.harness import Args, Results, columns, extremes, head, interleaved, load, run_bench
from specdemo.bench.random_models import CPU
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.servers.llama_server import llama_server
from specdemo.servers.pair import ServerPair
from specdemo.settings import Settings
from specdemo.training.gguf import write_head, write_model

PROMPTS = (
    "Anna went to the shop because",
    "User: What is a good way to spend a rainy afternoon?\nAssistant:",
    "def largest(numbers):\n",
    "A train leaves at 9 and arrives at 12. It travels",
    "The old house at the end of the street",
    "User: Can you book a room for two nights?\nAssistant:",
    "class Stack:\n    def __init__(self):\n",
    "Sam has 7 apples and gives 3 away. He then buys",
)
"""Written before any of them was decoded, and none was left out afterwards."""
PLAIN_OF = {
    "specdemo, drafted": "specdemo",
    "transformers, assisted": "transformers",
    "specdemo, head": "specdemo",
    "llama.cpp, draft-simple": "llama.cpp",
    "llama.cpp, draft-eagle3": "llama.cpp",
    "llama.cpp, ngram-simple": "llama.cpp",
}
"""Each speculative contender, and the plain one of its engine."""


def measure(args: Args) -> Results:
    """All figures as plain data."""
    pair = load(args)
    prompts = [list(encode(pair, prompt, chat=False)) for prompt in PROMPTS]

    def all_prompts(decode: Contender) -> list[Sample]:
        return [decode(ids) for ids in prompts[: args.prompts]]

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        contenders = _contenders(pair, Path(folder), args, stack)
        ways = {way: partial(all_prompts, decode) for way, decode in contenders.items()}
        runs = Samples(interleaved(ways, args.repeats, label=pair.name))
    first = [sample.ids for sample in runs.of["specdemo"][0]]
    return {
        **head(args, CPU, "dtype", "gamma", "tokens", "repeats", "threads"),
        "rows": [{"contender": way, **_figures(runs, way, first)} for way in contenders],
    }


def _contenders(pair: ModelPair, folder: Path, args: Args, stack: ExitStack) -> dict[str, Contender]:
    """All ways to decode; the stack ends the servers."""
    files = {role: folder / f"{role}.gguf" for role in ("target", "draft", "head")}
    for role in ("target", "draft"):
        write_model(files[role], getattr(pair, role), pair.tokenizer, args.dtype)
    plain = Settings(strategy="autoregressive", max_new_tokens=args.tokens, chat=False)
    drafted = Settings(gamma=args.gamma, max_new_tokens=args.tokens, chat=False)

    def llama_cpp(settings: Settings, kind: str = "none", *flags: str) -> Contender:
        common = ("-t", str(args.threads), "-c", str(2 * (args.tokens + 512)), "--spec-type", kind)
        url = stack.enter_context(llama_server(files["target"], *common, *flags)).url
        return ours(ServerPair(*((url, None) if settings is plain else (None, url)), "pair"), settings)

    length = ("--spec-draft-n-max", str(args.gamma))
    contenders = {
        "specdemo": ours(pair, plain),
        "specdemo, drafted": ours(pair, drafted),
        "transformers": generate(pair, args.tokens),
        "transformers, assisted": assisted_generate(pair, args.tokens, args.gamma),
        "llama.cpp": llama_cpp(plain),
        "llama.cpp, draft-simple": llama_cpp(drafted, "draft-simple", "-md", str(files["draft"]), *length),
        "llama.cpp, ngram-simple": llama_cpp(drafted, "ngram-simple", "--spec-ngram-simple-size-n", "3"),
    }
    if pair.head is not None:
        write_head(files["head"], pair.head, pair.tokenizer, args.dtype)
        contenders["specdemo, head"] = ours(pair, replace(drafted, drafter="eagle3"))
        eagle3 = llama_cpp(drafted, "draft-eagle3", "-md", str(files["head"]), *length)
        contenders["llama.cpp, draft-eagle3"] = eagle3
    return contenders


def _figures(runs: Samples, way: str, first: list[list[int]]) -> dict[str, Any]:
    plain = PLAIN_OF.get(way)
    figures = {
        "tokens_per_second": runs.tokens_per_second(way),
        "over_specdemo": runs.ratio("specdemo", way),
        "speedup": runs.ratio(plain, way) if plain else None,
        "speedup_spread": extremes(runs.ratios(plain, way)) if plain else None,
        "same_outputs": sum(s.ids == ids for s, ids in zip(runs.of[way][0], first, strict=True)),
        "outputs": len(first),
        "acceptance_rate": None,
        "mean_acceptance_length": None,
    }
    traces = runs.traces(way)
    if plain and None not in traces:
        counted = [trace.metrics() for trace in traces]
        proposed, rounds = sum(m.proposed for m in counted), sum(m.rounds for m in counted)
        figures["acceptance_rate"] = sum(m.accepted for m in counted) / proposed if proposed else None
        figures["mean_acceptance_length"] = sum(m.emitted for m in counted) / rounds
    return figures


def table(found: Results) -> str:
    """The results for people."""
    said = found["settings"]
    formats = {
        "engine": "{contender}",
        "tokens/s": "{tokens_per_second:.1f}",
        "of our plain": "{over_specdemo:.2f}×",
        "speed-up in its engine": "{gain}",
        "accepted": "{accepted}",
        "τ": "{tau}",
        "same ids": "{same_outputs}/{outputs}",
    }
    return (
        f"{found['pair']}, {said['dtype']}, greedy, {said['tokens']} tokens, γ = {said['gamma']}, "
        f"{said['threads']} thread, medians of {said['repeats']} interleaved repeats, prefill included\n"
        + columns(formats, ({**row, **_texts(row)} for row in found["rows"]))
    )


def _texts(row: dict[str, Any]) -> dict[str, str]:
    rate, tau, gain = (row[name] for name in ("acceptance_rate", "mean_acceptance_length", "speedup"))
    ends = row["speedup_spread"]
    return {
        "gain": "" if gain is None else f"{gain:.2f}× ({ends[0]:.2f} to {ends[1]:.2f})",
        "accepted": "" if rate is None else f"{rate:.2f}",
        "tau": "" if tau is None else f"{tau:.2f}",
    }


if __name__ == "__main__":
    run_bench(
        "engines",
        __doc__,
        measure,
        table,
        pair="builtin",
        device="cpu",
        dtype="float32",
        gamma=5,
        tokens=64,
        prompts=len(PROMPTS),
        repeats=5,
        threads=1,
    )
