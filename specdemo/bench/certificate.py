"""``python -m specdemo.bench.certificate``: how often each rule passes, and how soon a lossy one is found.

One test a seed and rule, on the pair at temperature 1, each from runs of its own. What is done is written after
every test, and a second call with the same file goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch

from specdemo.losslessness.certify import ERROR_RATE, TOKENS, certify
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import by_domain
from specdemo.settings import Settings

RULES = ("naive", "top_k", "typical", "sampling", "token_match", "block")
STRIDE = 1_000_003  # between the seeds of tests


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.certificate", description=__doc__)
    parser.add_argument("--pair", default="builtin")
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    parser.add_argument("--domain", default=next(iter(by_domain())), help="whose first prompt is continued")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--runs", type=int, default=150, help="pairs of runs a test, at most")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of a run")
    parser.add_argument("--gamma", type=int, default=5)
    parser.add_argument("--error-rate", type=float, default=ERROR_RATE)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="of one thread each")
    parser.add_argument("--json", type=Path, required=True, help="write the results here, test by test")
    return parser.parse_args()


@cache
def _pair(name: str) -> ModelPair:
    torch.set_num_threads(1)
    return load_pair(name)


def one(asked: dict[str, Any], rule: str, seed: int) -> dict[str, Any]:
    """One test, in a process of its own."""
    pair = _pair(asked["pair"])
    settings = Settings(acceptance=rule, temperature=1.0, gamma=asked["gamma"], seed=seed * STRIDE)
    prompt = by_domain()[asked["domain"]][0].prompt
    found = certify(pair, prompt, settings, asked["runs"], asked["tokens"], asked["error_rate"])
    return {
        "rule": rule,
        "seed": seed,
        "verdict": found.verdict,
        "runs": found.runs,
        "p_value": found.p_value,
        "seconds": found.seconds,
        "detectable": found.detectable and {"share": found.detectable.share, "shift": found.detectable.shift},
    }


def summary(tests: list[dict[str, Any]]) -> dict[str, Any]:
    """Verdicts of each rule, with the pairs and the seconds that a test took."""
    rows = {}
    for rule in dict.fromkeys(t["rule"] for t in tests):
        mine = [t for t in tests if t["rule"] == rule]
        shifts = [t["detectable"]["shift"] for t in mine if t["detectable"]]
        rows[rule] = {
            "tests": len(mine),
            **{v: sum(t["verdict"] == v for t in mine) for v in ("passes", "differs", "undecided")},
            "median_runs": median(t["runs"] for t in mine),
            "most_runs": max(t["runs"] for t in mine),
            "median_seconds": median(t["seconds"] for t in mine),
            "least_p_value": min(t["p_value"] for t in mine),
            "median_detectable_shift": median(shifts) if shifts else None,
        }
    return rows


def main() -> None:
    args = arguments()
    asked = {
        "pair": args.pair,
        "domain": args.domain,
        "runs": args.runs,
        "tokens": args.tokens,
        "gamma": args.gamma,
        "error_rate": args.error_rate,
        "temperature": 1.0,
    }
    tests: list[dict[str, Any]] = []
    if args.json.exists():
        found = json.loads(args.json.read_text(encoding="utf-8"))
        if found["settings"] != asked:
            raise SystemExit(f"{args.json} is of other settings; give another file.")
        tests = found["tests"]
    done = {(t["rule"], t["seed"]) for t in tests}
    todo = [(rule, seed) for seed in range(args.seeds) for rule in args.rules if (rule, seed) not in done]
    with ProcessPoolExecutor(args.processes) as pool:
        found = pool.map(one, *zip(*((asked, *t) for t in todo), strict=True)) if todo else ()
        for test in found:
            tests.append(test)
            results = {
                "machine": machine_of(torch.device("cpu")),
                "settings": asked,
                "summary": summary(tests),
                "tests": tests,
            }
            args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for rule, row in summary(tests).items():
        print(
            f"{rule:<12} {row['passes']:>3} pass, {row['differs']:>3} differ of {row['tests']}; "
            f"median {row['median_runs']:.0f} pairs (most {row['most_runs']}), {row['median_seconds']:.1f} s"
        )


if __name__ == "__main__":
    main()
