"""``python -m specdemo.bench.page``: start-up, first token, and what the page costs a lane.

The visitor is a process of its own, but no browser, which would take the cores that are measured.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch

from specdemo.bench import tab
from specdemo.bench.contenders import alone_seconds, race_seconds
from specdemo.bench.harness import Args, Results, head, interleaved, run_bench
from specdemo.bench.running_app import app_here, app_process
from specdemo.models.request import request_pair
from specdemo.runs.store import PairStore
from specdemo.settings import Settings


def start_up(port: int, panel: dict[str, Any]) -> tuple[float, float]:
    """Seconds from ``python app.py`` to a page, and from Run to the first token once the pair is loaded."""
    start = time.perf_counter()
    with app_process(port) as (url, _):
        seconds = time.perf_counter() - start
        tab.race(url, **panel)
        return seconds, median(tab.race(url, **panel)[0] for _ in range(5))


def cost_of_page(
    prompt: str, lanes: list[Settings], panel: dict[str, Any], repeats: int
) -> dict[str, list[list[float]]]:
    """Lane clocks in the page, and in a bare race, over ``specdemo.run`` alone: by lane, one ratio a repeat.

    All three run in one process and one thread by turns: two processes on one machine differ by more than the
    page costs.
    """
    store = PairStore()
    spawning = get_context("spawn")
    with app_here(store) as url, ProcessPoolExecutor(1, mp_context=spawning) as visitor:
        with store.using(request_pair("builtin")) as load:
            pair = load.future.result()

        def alone() -> list[float]:
            return store.thread.submit(alone_seconds, pair, prompt, lanes).result()

        ways = {
            "before": alone,
            "race": lambda: store.thread.submit(race_seconds, pair, prompt, lanes).result(),
            "page": lambda: visitor.submit(tab.race, url, **panel).result()[1],
            "after": alone,
        }
        clocks = interleaved(ways, repeats)

    def over_alone(name: str) -> list[list[float]]:
        repeats = zip(clocks["before"], clocks[name], clocks["after"], strict=True)
        ratios = [[2 * s / (b + a) for b, s, a in zip(*repeat, strict=True)] for repeat in repeats]
        return [list(lane) for lane in zip(*ratios, strict=True)]

    return {name: over_alone(name) for name in ("page", "race")}


def measure(args: Args) -> Results:
    """All figures as plain data."""
    lanes = [
        Settings(strategy="autoregressive", max_new_tokens=args.tokens, ignore_eos=True),
        Settings(gamma=args.gamma, max_new_tokens=args.tokens, ignore_eos=True),
    ]
    panel = {"prompt": args.prompt, "max__tokens": args.tokens, "ignore__eos": True, "lane2__gamma": args.gamma}
    page_seconds, first_token_seconds = start_up(args.port, panel)
    ratios = cost_of_page(args.prompt, lanes, panel, args.repeats)
    return {
        **head(args, torch.device("cpu"), "gamma", "tokens", "repeats"),
        "page_seconds": page_seconds,
        "first_token_seconds": first_token_seconds,
        "over_run": {name: [median(lane) for lane in by_lane] for name, by_lane in ratios.items()},
        "all": ratios,
    }


def table(found: dict[str, Any]) -> str:
    """The results for people."""
    lines = [
        f"page usable after {found['page_seconds']:.1f} s",
        f"first token {found['first_token_seconds']:.2f} s after Run",
    ]
    for name, (plain, speculative) in found["over_run"].items():
        lines.append(f"lane clock in the {name} / specdemo.run: plain {plain:.3f}, speculative {speculative:.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    prompt = "Book a table for two near the harbour on Friday evening."
    run_bench("page", __doc__, measure, table, port=7899, prompt=prompt, gamma=4, tokens=256, repeats=5)
