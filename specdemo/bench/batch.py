"""``python -m specdemo.bench.batch``: drafted batches against plain ones by size, their bookkeeping and memory."""

from __future__ import annotations

import argparse
import copy
import json
import time
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch

from specdemo.bench.forward_time import ForwardTime
from specdemo.decoding.batch.drafters import BatchModelDrafter
from specdemo.decoding.batch.loop import batched_speculative
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import run_batch
from specdemo.runs.batch_sizes import SIZES, batch_sizes
from specdemo.runs.encode import encode_all
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import examples
from specdemo.runs.single import lane_clock, open_lane
from specdemo.settings import Settings

LEAST_SPEEDUP, MOST_BOOKKEEPING, AT = 1.3, 0.10, 8
ROUNDS = 500


def bookkeeping(pair: ModelPair, prompts: list[str], settings: Settings, repeats: int) -> dict[str, Any]:
    """Share of a batch's time that passes outside model forwards, medians over the repeats.

    ``of_the_clock`` is of the lane clock, on which speeds are measured; ``of_the_wall`` also counts what it leaves
    out, the writing down of traces.
    """
    clock, wall = [], []
    for _ in range(repeats):
        with ForwardTime(pair) as forwards:
            began = time.perf_counter()
            traces = run_batch(pair, prompts, settings)
            took = time.perf_counter() - began
        clock.append(1 - forwards.seconds / max(t.rounds[-1].seconds for t in traces))
        wall.append(1 - forwards.seconds / took)
    return {"of_the_clock": median(clock), "of_the_wall": median(wall), "all": clock}


def memory(pair: ModelPair, prompts: list[str], gamma: int) -> list[dict[str, float]]:
    """Bytes of both KV caches a live token, every 50 rounds, with a draft that is hardly ever right.

    Such rounds keep one token of γ+1 that were computed: where what was rejected stayed behind, memory would grow
    γ+1 times as fast as the text.
    """
    draft = copy.deepcopy(pair.draft)
    with torch.no_grad():
        for weights in draft.parameters():
            weights.copy_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    settings = Settings(gamma=gamma, max_new_tokens=2 * ROUNDS)
    clock = lane_clock(pair)
    lanes = [open_lane(pair, ids, settings, clock) for ids in encode_all(pair, prompts)]
    for lane in lanes:
        lane.eos_ids = frozenset()  # an end would cut the measurement short
    runners = [RaggedRunner(model, len(lanes)) for model in (pair.target, draft)]
    found = []
    steps = batched_speculative(lanes, runners[0], BatchModelDrafter(runners[1]), clock)
    for number, _ in enumerate(steps):
        live = sum(len(lane.committed) for lane in lanes if lane.stop is None)
        if number and number % 50 == 0 and live:
            held = sum(runner.held for runner in runners)
            found.append({"round": number, "live_tokens": live, "bytes": held, "bytes_a_token": held / live})
        if number == ROUNDS:
            break
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.batch", description=__doc__)
    parser.add_argument("--pair", default="builtin")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--gamma", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="tokens a row")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    pair = load_pair(args.pair)
    prompts = [example.prompt for example in examples()]
    settings = Settings(gamma=args.gamma, max_new_tokens=args.tokens)
    report = batch_sizes(pair, prompts, settings, args.sizes, args.repeats)
    eight = (prompts * AT)[:AT]
    shares = bookkeeping(pair, eight, settings, args.repeats)
    held = memory(pair, prompts[:2], args.gamma)
    print(f"{'rows':>5}{'plain':>9}{'drafted':>9}{'speed-up':>10}{'τ':>7}{'padding':>9}{'idle':>7}")
    for row in report.rows:
        print(
            f"{row.size:>5}{row.plain_tokens_per_second:>9.1f}{row.tokens_per_second:>9.1f}{row.speedup:>9.2f}×"
            f"{row.mean_acceptance_length:>7.2f}{row.padding:>9.1%}{row.idle_slots:>7.1%}"
        )
    print(report.conclusion)
    at = next((row.speedup for row in report.rows if row.size == AT), None)
    if at is not None:
        print(f"{'ok  ' if at >= LEAST_SPEEDUP else 'MISS'} {at:.2f}× with {AT} rows (bar {LEAST_SPEEDUP}×)")
    print(
        f"{'ok  ' if shares['of_the_clock'] <= MOST_BOOKKEEPING else 'MISS'} outside model forwards "
        f"{shares['of_the_clock']:.1%} of the clock, {shares['of_the_wall']:.1%} with traces written, {AT} rows"
    )
    print("bytes of cache a live token: " + ", ".join(f"{h['bytes_a_token']:.0f} at {h['round']}" for h in held))
    if args.json:
        results = {
            "date": date.today().isoformat(),
            "machine": machine_of(pair.device),
            "settings": {"gamma": args.gamma, "tokens": args.tokens, "repeats": args.repeats, "temperature": 0},
            "sizes": json.loads(report.to_json())["rows"],
            "conclusion": report.conclusion,
            "bookkeeping": shares,
            "memory": held,
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
