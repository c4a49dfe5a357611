"""``python -m specdemo.bench.fluid``: does the race view stay fluid while long lanes stream into it?

Two lanes of a shipped recording, repeated to ``--tokens`` tokens each and paced at ``--rate`` tokens a second, go
through the app as a run's rounds do; only the decoding is replaced. A browser (Playwright's, of
``tests/requirements.txt``) sees one run to its end and stops another near its end, on the machine as it is and
beside a busy loop on every core.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from statistics import median
from threading import Event
from typing import Any
from unittest.mock import patch

import torch
from playwright.sync_api import CDPSession, Page, sync_playwright

from specdemo.bench.harness import Args, Results, head, run_bench, verdict
from specdemo.bench.running_app import app_here
from specdemo.rounds import Round
from specdemo.trace import Trace
from specdemo.ui.tabs.recordings_panel import shipped
from specdemo.view.race_value import PHASES

BARS = {"quiet": (100, 1.0), "busy": (400, 3.0)}
"""By load: the longest task in milliseconds, and the seconds from Stop to stopped."""
STOP_AT = 0.8
"""The share of the run after which Stop is pressed."""
PHASE = """() => document.querySelector(".specdemo-race").dataset.phase"""
WATCH = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => list.getEntries().forEach((e) => window.tasks.push(e.duration)))
    .observe({ type: "longtask" });
}"""
WAIT_MS, POLL_MS = 120_000, 50
"""How long a page is waited for, and how often it is asked; asking at every frame would be work of its own."""
SHOWN = """() => Number(document.querySelector("[data-lane='0'] [data-stat=tokens]").textContent) || 0"""


def repeated(trace: Trace, tokens: int, rate: float) -> Trace:
    """The trace with its rounds again and again until it has so many tokens, on a clock of so many a second."""
    rounds: list[Round] = []
    kept = 0
    source = trace.rounds[1:]
    while kept < tokens:
        old = trace.rounds[0] if not rounds else source[(len(rounds) - 1) % len(source)]
        kept += len(old.emitted)
        rounds.append(_moved(old, len(rounds), kept / rate, len(old.emitted) / rate))
    return replace(trace, rounds=(*rounds[:-1], replace(rounds[-1], stop="length")))


def _moved(old: Round, index: int, end: float, duration: float) -> Round:
    """The round as if it had been this one of its lane; phases keep their shares of its time."""
    tokens = tuple(replace(t, round=index, seconds=end) for t in old.tokens)
    phases = {name: getattr(old, name) for name in PHASES}
    scale = duration / sum(phases.values())
    scaled = {name: scale * seconds for name, seconds in phases.items()}
    return replace(old, index=index, tokens=tokens, seconds=end, stop=None, **scaled)


class PacedRace:
    """Stands in for a race: yields the traces' rounds when their lanes' clocks have come to them."""

    def __init__(self, traces: list[Trace], stop: Event) -> None:
        self._traces, self._stop = traces, stop
        events = [(r.seconds, lane, r) for lane, trace in enumerate(traces) for r in trace.rounds]
        self._events = iter(sorted(events, key=lambda event: event[:2]))
        self._given = [0] * len(traces)
        self._began = time.perf_counter()

    def __iter__(self) -> Iterator[tuple[int, Round]]:
        return self

    def __next__(self) -> tuple[int, Round]:
        seconds, lane, round_ = next(self._events)
        if (early := self._began + seconds - time.perf_counter()) > 0:
            time.sleep(early)
        self._given[lane] += 1
        return lane, round_

    def close(self) -> None:
        """It holds nothing."""

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The recording's."""
        return self._traces[0].prompt_ids

    def traces(self) -> list[Trace]:
        """What has been yielded."""
        pairs = zip(self._traces, self._given, strict=True)
        return [replace(trace, rounds=trace.rounds[:given]) for trace, given in pairs]


def spin() -> None:
    """Keeps one core busy."""
    while True:
        pass


@contextmanager
def load(kind: str) -> Iterator[None]:
    """A busy loop on every core, unless the machine is to be as it is."""
    loops = [get_context("spawn").Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    try:
        if kind == "busy":
            for loop in loops:
                loop.start()
        yield
    finally:
        for loop in loops:
            if loop.is_alive():
                loop.kill()
                loop.join()


def to_the_end(page: Page, tokens: int) -> dict[str, float]:
    """One run: the longest task, and the main thread's milliseconds for a token early and late in the run."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate("window.tasks = []")
    _begin(page, tokens)
    seen: list[tuple[float, float]] = []
    while not seen or seen[-1][0] < 0.9 * tokens:
        seen.append((page.evaluate(SHOWN), main_thread(session)))
        page.wait_for_timeout(POLL_MS)
    page.wait_for_function(f"({PHASE})() === 'done'", timeout=WAIT_MS, polling=POLL_MS)
    page.wait_for_timeout(1500)  # what is drawn at the end
    session.detach()
    return {
        "longest_task_ms": max(page.evaluate("window.tasks"), default=0.0),
        "early_ms_a_token": _slope([s for s in seen if 0 < s[0] < 0.45 * tokens]),
        "late_ms_a_token": _slope([s for s in seen if s[0] > 0.55 * tokens]),
    }


def _begin(page: Page, tokens: int) -> None:
    """Starts a run, and waits until what is shown is no longer of the run before."""
    page.locator("#run").click()
    page.wait_for_function(f"({SHOWN})() < {tokens / 2}", timeout=WAIT_MS, polling=POLL_MS)


def main_thread(session: CDPSession) -> float:
    """Processor seconds of the page's main thread so far."""
    found = session.send("Performance.getMetrics")["metrics"]
    return next(m["value"] for m in found if m["name"] == "ThreadTime")


def _slope(seen: list[tuple[float, float]]) -> float:
    """Milliseconds a token between the first and the last sample; NaN where the page leapt over that part."""
    (from_, began), (to, ended) = (seen[0], seen[-1]) if seen else ((0, 0), (0, 0))
    return 1000 * (ended - began) / (to - from_) if to > from_ else math.nan


def stopped(page: Page, tokens: int) -> float:
    """Seconds from a press of Stop near the end of a run to its effect."""
    _begin(page, tokens)
    page.wait_for_function(f"({SHOWN})() >= {STOP_AT * tokens}", timeout=WAIT_MS, polling=POLL_MS)
    pressed = time.perf_counter()
    page.evaluate("document.querySelector('#stop').click()")
    page.wait_for_function(f"['stopped', 'done'].includes(({PHASE})())", timeout=WAIT_MS, polling=POLL_MS)
    seconds = time.perf_counter() - pressed
    page.wait_for_function("!document.querySelector('#run').disabled", timeout=WAIT_MS, polling=POLL_MS)
    return seconds


def measure(args: Args) -> Results:
    """All figures as plain data."""
    traces = [repeated(trace, args.tokens, args.rate) for trace in shipped()[0].traces]

    def race(pairs: Any, prompt: Any, lanes: Any, stop: Event) -> PacedRace:
        return PacedRace(traces, stop)

    found: dict[str, Any] = {}
    with (
        patch("specdemo.ui.jobs.race.race", race),
        app_here(server_port=args.port) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.wait_for_function("window.SpecDemoLinks?.wasRead()", timeout=WAIT_MS, polling=POLL_MS)
        page.evaluate(WATCH)
        to_the_end(page, args.tokens)  # warms up what runs for the first time, in the app and in the browser
        for kind in BARS:
            before = os.getloadavg()[0]
            with load(kind):
                runs = [to_the_end(page, args.tokens) for _ in range(args.repeats)]
                stops = [stopped(page, args.tokens) for _ in range(args.repeats)]
            found[kind] = {"load_before": before, "runs": runs, "stop_seconds": stops}
        browser.close()
    return {**head(args, torch.device("cpu"), "tokens", "rate", "repeats"), **found}


def median_known(runs: list[dict[str, float]], name: str) -> float:
    """The median over the runs in which the page did not leap over that part."""
    return median([run[name] for run in runs if not math.isnan(run[name])] or [math.nan])


def table(found: Results) -> str:
    """The results for people."""
    lines = []
    for kind, (task, stop) in BARS.items():
        runs = found[kind]["runs"]
        longest = max(run["longest_task_ms"] for run in runs)
        slowest = max(found[kind]["stop_seconds"])
        early, late = (median_known(runs, f"{part}_ms_a_token") for part in ("early", "late"))
        lines += [
            f"{kind}, load average {found[kind]['load_before']:.1f} before:",
            verdict(longest <= task, f"longest task {longest:.0f} ms (at most {task})"),
            verdict(slowest <= stop, f"Stop takes effect in {slowest:.2f} s (at most {stop:.0f})"),
            verdict(late <= 1.3 * early, f"main thread {early:.2f} ms a token early, {late:.2f} late (flat)"),
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    defaults = {"browser": "/usr/bin/chromium", "tokens": 1024, "rate": 400.0, "repeats": 3, "port": 7896}
    run_bench("fluid", __doc__, measure, table, **defaults)
