"""``python -m specdemo.bench.certificate``: how often each rule passes, and how soon a lossy one is found.

One test a seed and rule, on the pair at temperature 1, each from runs of its own. What is done is written after
every test, and a second call with the same file goes on where the first one ended.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from statistics import median
from typing import Any

import torch

from specdemo.bench.harness import Args, Results, head, median_of, run_bench, write
from specdemo.losslessness.certify import ERROR_RATE, TOKENS, certify
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import by_domain
from specdemo.settings import ACCEPTANCE_RULES, Settings

STRIDE = 1_000_003  # between the seeds of tests


@cache
def _pair(name: str) -> ModelPair:
    torch.set_num_threads(1)
    return load_pair(name)


def one(settings: dict[str, Any], rule: str, seed: int) -> dict[str, Any]:
    """One test, in a process of its own."""
    pair = _pair(settings["pair"])
    lane = Settings(acceptance=rule, temperature=1.0, gamma=settings["gamma"], seed=seed * STRIDE)
    prompt = by_domain()[settings["domain"]][0].prompt
    found = certify(pair, prompt, lane, settings["runs"], settings["tokens"], settings["error_rate"])
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
        of_rule = [t for t in tests if t["rule"] == rule]
        rows[rule] = {
            "tests": len(of_rule),
            **{v: sum(t["verdict"] == v for t in of_rule) for v in ("passes", "differs", "undecided")},
            "median_runs": median(t["runs"] for t in of_rule),
            "most_runs": max(t["runs"] for t in of_rule),
            "median_seconds": median(t["seconds"] for t in of_rule),
            "least_p_value": min(t["p_value"] for t in of_rule),
            "median_detectable_shift": median_of(t["detectable"]["shift"] for t in of_rule if t["detectable"]),
        }
    return rows


def results(args: Args) -> Results:
    """All tests, those of earlier calls included, and the summary."""
    if args.json is None:
        sys.exit("--json FILE is needed: the results are kept there test by test.")
    args.domain = args.domain or next(iter(by_domain()))
    kept = ("pair", "domain", "runs", "tokens", "gamma", "error_rate")
    found = {**head(args, torch.device("cpu"), *kept, temperature=1.0), "summary": {}, "tests": []}
    settings, tests = found["settings"], found["tests"]
    if args.json.exists():
        earlier = json.loads(args.json.read_text(encoding="utf-8"))
        if earlier["settings"] != settings:
            sys.exit(f"{args.json} is of other settings; give another file.")
        tests += earlier["tests"]
    done = {(t["rule"], t["seed"]) for t in tests}
    todo = [(rule, seed) for seed in range(args.seeds) for rule in args.rules if (rule, seed) not in done]
    with ProcessPoolExecutor(args.processes) as pool:
        for job in [pool.submit(one, settings, rule, seed) for rule, seed in todo]:
            tests.append(job.result())
            write(args.json, {**found, "summary": summary(tests)})
    return {**found, "summary": summary(tests)}


def table(found: dict[str, Any]) -> str:
    """The results for people."""
    return "\n".join(
        f"{rule:<12} {row['passes']:>3} pass, {row['differs']:>3} differ of {row['tests']}; "
        f"median {row['median_runs']:.0f} pairs (most {row['most_runs']}), {row['median_seconds']:.1f} s"
        for rule, row in found["summary"].items()
    )


if __name__ == "__main__":
    run_bench(
        "certificate",
        __doc__,
        results,
        table,
        pair="builtin",
        rules=[rule for rule in ACCEPTANCE_RULES if rule != "exact"],  # which compares, and cannot sample
        domain=None,
        seeds=100,
        runs=150,
        tokens=TOKENS,
        gamma=5,
        error_rate=ERROR_RATE,
        processes=None,
    )
