"""Whether a busy machine leads to wrong advice: ``PYTHONPATH=. python tests/runs/beside_busy_loops.py``.

Sweeps and advices of the builtin pair run beside a program that never rests on each core. A grid of all
contenders, measured before on the machine as it is, judges what they print: no speed-up above the tokens a round,
and no setting recommended that the grid does not find faster than plain decoding and within 8 % of the fastest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, islice

import torch

import specdemo
from specdemo import Settings
from specdemo.analysis.report import Report
from specdemo.bench.advisor import grid
from specdemo.runs.prompts import by_domain
from specdemo.ui.state.state import Sweep

NEAR = 0.92
GAMMAS, REPEATS = (2, 4, 8), Sweep().repeats  # as often as the page repeats a sweep
TOKENS = 24
SETTINGS = Settings(max_new_tokens=TOKENS)
PLAIN = replace(SETTINGS, strategy="autoregressive")
SWEPT = {repr(replace(SETTINGS, gamma=gamma)): replace(SETTINGS, gamma=gamma) for gamma in GAMMAS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--budget", type=float, default=25.0)
    parser.add_argument("--repeats", type=int, default=2, help="of the quiet grid")
    parser.add_argument("--only", choices=("sweep", "advice"), help="both unless given")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pair = specdemo.load_pair("builtin")
    prompts = [some[0].prompt for some in by_domain().values()]
    lanes = {repr(PLAIN): PLAIN} | SWEPT
    specdemo.sweep(pair, prompts[0], SETTINGS, gammas=GAMMAS)  # which warms up
    if args.only != "sweep":
        contenders = specdemo.advise(pair, prompts[0], SETTINGS, budget_seconds=5).contenders
        lanes |= {repr(c.settings(SETTINGS)): c.settings(SETTINGS) for c in contenders}
    quiet = {prompt: grid(pair, lanes, [prompt], args.repeats, "quiet grid") for prompt in prompts}
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        for prompt in islice(cycle(prompts), args.times):
            if args.only != "advice":
                sweep = specdemo.sweep(pair, prompt, SETTINGS, gammas=GAMMAS, repeats=REPEATS)
                chosen = sweep.best_gamma and replace(SETTINGS, gamma=sweep.best_gamma)
                judge("sweep", sweep, chosen, quiet[prompt])
            if args.only != "sweep":
                advice = specdemo.advise(pair, prompt, SETTINGS, budget_seconds=args.budget)
                judge("advice", advice, advice.settings() if advice.pays else None, quiet[prompt])
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def judge(kind: str, report: Report, chosen: Settings | None, quiet: Mapping[str, float]) -> None:
    """Print what a report says, what its recommendation is worth on the quiet machine, and whether it is right."""
    shown = [(row.speedup, row.mean_acceptance_length or 1.0) for row in report.shown if row.speedup]
    above = sum(speedup > tau for speedup, tau in shown)
    worth = chosen and quiet[repr(chosen)]
    rivals = [speedup for lane, speedup in quiet.items() if kind == "advice" or lane in SWEPT]
    best = max(rivals)
    ok = not above and (worth is None or worth > max(1.0, NEAR * best))
    said = "noisy" if report.noisy else "nothing recommended"
    if chosen is not None:
        said = f"γ {chosen.gamma} worth {worth:.2f}x"
    print(
        f"{'ok  ' if ok else 'MISS'} {kind}: {said}, best of the grid {best:.2f}x, {len(shown)} speed-ups, "
        f"{above} above their tokens a round, {len(report.runs)} runs",
        flush=True,
    )


if __name__ == "__main__":
    main()
