"""How often a comparison of two deployments is right: ``PYTHONPATH=. python tests/servers/twenty_comparisons.py``.

Servers of llama.cpp with the builtin pair's files, one thread each: a baseline at temperature 0.8 against a draft
model at 0.8, at 0.9, with a top-k of 5, and against another model, 20 times each; then greedy outputs against all
ways of drafting, against 8-bit weights and against another model.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import specdemo
from specdemo import ServerPair, Settings
from specdemo.runs.prompts import by_domain
from specdemo.servers.engines.llama_cpp import LlamaCpp
from specdemo.servers.llama_server import LlamaServer
from specdemo.training import gguf

DRAFT = ("-md", "draft.gguf", "--spec-type", "draft-simple", "--spec-draft-n-max", "5")
HEAD = ("-md", "head.gguf", "--spec-type", "draft-eagle3", "--spec-draft-n-max", "5")
NGRAM = ("--spec-type", "ngram-simple", "--spec-draft-n-max", "5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--runs", type=int, default=250)
    parser.add_argument("--only", nargs="*", default=["sampled", "greedy"])
    args = parser.parse_args()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        for kind, type_ in (("f32", "float32"), ("q8", "Q8_0")):
            sys.argv = ["gguf", f"{folder}/{kind}", "--type", type_]
            gguf.main()

        def serve(model: str, *flags: str) -> str:
            given = [str(Path(folder, "f32", f)) if f.endswith(".gguf") else f for f in flags]
            common = ("-m", str(Path(folder, model)), "-c", "4096", "-np", "4", "-t", "1")
            return stack.enter_context(LlamaServer((*common, *given))).url

        plain, draft = serve("f32/target.gguf"), serve("f32/target.gguf", *DRAFT)
        prompts = [found[0].prompt for found in by_domain().values()]
        if "sampled" in args.only:
            weak = serve("f32/draft.gguf")
            for name, url, changed in (
                ("0.8 against 0.8", draft, {}),
                ("0.8 against 0.9", draft, {"temperature": 0.9}),
                ("top-k off against 5", draft, {"top_k": 5}),
                ("another model", weak, {}),
            ):
                repeat(name, ServerPair(plain, url, "builtin"), prompts, changed, args)
        if "greedy" in args.only:
            settings = Settings(max_new_tokens=64)
            quantised = serve("q8/target.gguf")
            for name, base, url in (
                ("draft", plain, draft),
                ("n-grams", plain, serve("f32/target.gguf", *NGRAM)),
                ("head", plain, serve("f32/target.gguf", *HEAD)),
                ("8-bit against float32", plain, quantised),
                ("8-bit against 8-bit with a draft", quantised, serve("q8/target.gguf", *DRAFT)),
                ("another model", plain, serve("f32/draft.gguf")),
            ):
                began = time.perf_counter()
                every = [example.prompt for found in by_domain().values() for example in found]
                check = specdemo.compare_deployments(ServerPair(base, url, "builtin"), every, settings)
                outcomes = Counter(row.outcome(check.rounding) for row in check.rows)
                took = time.perf_counter() - began
                print(f"{name}: {check.outcome} in {took:.0f} s, {dict(outcomes)}. {check.text}", flush=True)
                for row in check.rows:
                    if found := row.difference:
                        print(
                            "   ", row.outcome(check.rounding), found.position, found.gap, found.change, flush=True
                        )


def repeat(name: str, pair: ServerPair, prompts: list[str], changed: dict[str, Any], args: Any) -> None:
    """``changed``: what the speculative deployment is made to sample with, whatever it is asked for."""

    def request(self: LlamaCpp, real: Any = LlamaCpp.request) -> Any:
        made = real(self)
        speculative = self.wanted.settings.strategy == "speculative"
        return replace(made, body={**made.body, **(changed if speculative else {})})

    real, LlamaCpp.request = LlamaCpp.request, request
    verdicts, pairs, powers, began = Counter(), [], [], time.perf_counter()
    for seed in range(args.times):
        settings = Settings(temperature=0.8, acceptance="sampling", seed=seed)
        found = specdemo.compare_deployments(pair, prompts, settings, runs=args.runs).certificate
        verdicts[found.verdict] += 1
        pairs.append(found.runs)
        powers.append(found.detectable and found.detectable.temperature)
    LlamaCpp.request = real
    took = (time.perf_counter() - began) / args.times
    print(f"{name}: {dict(verdicts)}, pairs {sorted(pairs)}, {took:.1f} s each, power {powers}", flush=True)


if __name__ == "__main__":
    main()
