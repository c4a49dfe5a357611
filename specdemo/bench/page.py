"""``python -m specdemo.bench.page``: start-up, first token, long lanes that stream, answers while a sweep runs.

A browser (Playwright's, of ``tests/requirements.txt``) is the visitor:

* The app starts in a process of its own, and Run is pressed on the loaded pair.
* Two lanes of a shipped recording, repeated to ``--tokens`` tokens each and paced at ``--rate`` tokens a second,
  go through the app as a run's rounds do; only the decoding is replaced. One run is seen to its end and another
  stopped near its end, on the machine as it is and beside a busy loop on every core.
* An example's button, which the server answers, is pressed again and again: at rest, then during a sweep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from statistics import median
from threading import Event
from typing import Any
from unittest.mock import patch

import torch
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from specdemo.bench.harness import Args, Results, busy_cores, head, run_bench, verdict
from specdemo.bench.running_app import app_here, app_process
from specdemo.rounds import Round
from specdemo.trace import Trace
from specdemo.ui.tabs.recordings_panel import shipped
from specdemo.view.race_value import PHASES

LOADS = {"quiet": (nullcontext, 100, 1.0), "busy": (busy_cores, 400, 3.0)}
"""What runs beside; bars for the longest task in milliseconds and the seconds from Stop to stopped."""
STOP_AT = 0.8
"""The share of the run after which Stop is pressed."""
WAIT_MS, POLL_MS = 120_000, 50
"""How long a page is waited for, and how often it is asked; asking at every frame would be work of its own."""
WATCH = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => list.getEntries().forEach((e) => window.tasks.push(e.duration)))
    .observe({ type: "longtask" });
}"""
PHASE = """document.querySelector(".specdemo-race").dataset.phase"""
SHOWN = """(Number(document.querySelector("[data-lane='0'] [data-stat=tokens]").textContent) || 0)"""
READ = "window.SpecDemoLinks?.wasRead()"
IDLE = "!document.querySelector('#run').disabled"
ANSWER = """(before) => document.querySelector("#prompt textarea").value !== before"""


def wait_for(page: Page, condition: str, **options: Any) -> None:
    """Wait until the page keeps a condition."""
    page.wait_for_function(condition, timeout=WAIT_MS, polling=POLL_MS, **options)


def open_page(browser: Browser, url: str) -> Page:
    """The app's page, once it is ready."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(url)
    wait_for(page, READ)
    page.evaluate(WATCH)
    return page


def begin(page: Page, tokens: int) -> None:
    """Start a run, and wait until what is shown is no longer of the run before."""
    page.locator("#run").click()
    wait_for(page, f"{SHOWN} < {tokens / 2}")


def start_up(browser: Browser, args: Args) -> dict[str, float]:
    """Seconds from ``python app.py`` to a page that is ready, and from Run to the first token of a loaded pair."""
    began = time.perf_counter()
    with app_process(args.port) as (url, _):
        page = open_page(browser, url)
        found = {"page_seconds": time.perf_counter() - began}
        waits = []
        for _ in range(args.repeats + 1):  # the first run loads the pair
            pressed = time.perf_counter()
            begin(page, 2)
            wait_for(page, f"{SHOWN} > 0")
            waits.append(time.perf_counter() - pressed)
            wait_for(page, IDLE)
        page.close()
    return found | {"first_token_seconds": median(waits[1:])}


def repeated(trace: Trace, tokens: int, rate: float) -> Trace:
    """The trace with its rounds again and again until it has so many tokens, on a clock of so many a second."""
    rounds: list[Round] = []
    count = 0
    source = trace.rounds[1:]
    while count < tokens:
        old = trace.rounds[0] if not rounds else source[(len(rounds) - 1) % len(source)]
        count += len(old.emitted)
        rounds.append(_moved(old, len(rounds), count / rate, len(old.emitted) / rate))
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

    def __init__(self, traces: list[Trace]) -> None:
        self._traces = traces
        self.prompt_ids = traces[0].prompt_ids
        self._events = sorted(
            ((r.seconds, n, r) for n, t in enumerate(traces) for r in t.rounds), key=lambda e: e[:2]
        )
        self._given = [0] * len(traces)

    def __iter__(self) -> Iterator[tuple[int, Round]]:
        began = time.perf_counter()
        for seconds, lane, round_ in self._events:
            time.sleep(max(0.0, began + seconds - time.perf_counter()))
            self._given[lane] += 1
            yield lane, round_

    def close(self) -> None:
        """It holds nothing."""

    def traces(self) -> list[Trace]:
        """What has been yielded."""
        return [replace(t, rounds=t.rounds[:n]) for t, n in zip(self._traces, self._given, strict=True)]


@contextmanager
def paced(tokens: int, rate: float) -> Iterator[None]:
    """Races are a shipped recording's while this is entered."""
    traces = [repeated(trace, tokens, rate) for trace in shipped()[0].traces]

    def race(pairs: Any, prompt: Any, lanes: Any, stop: Event) -> PacedRace:
        return PacedRace(traces)

    with patch("specdemo.ui.jobs.race.race", race):
        yield


def to_the_end(page: Page, tokens: int) -> dict[str, float]:
    """One run: the longest task, and the main thread's milliseconds for a token early and late in the run."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate("window.tasks = []")
    begin(page, tokens)
    seen: list[tuple[float, float]] = []
    while not seen or seen[-1][0] < 0.9 * tokens:
        seen.append((page.evaluate(SHOWN), main_thread(session)))
        page.wait_for_timeout(POLL_MS)
    wait_for(page, f"{PHASE} === 'done'")
    wait_for(page, IDLE)
    session.detach()
    return {
        "longest_task_ms": max(page.evaluate("window.tasks"), default=0.0),
        "early_ms_a_token": _slope([s for s in seen if 0 < s[0] < 0.45 * tokens]),
        "late_ms_a_token": _slope([s for s in seen if s[0] > 0.55 * tokens]),
    }


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
    begin(page, tokens)
    wait_for(page, f"{SHOWN} >= {STOP_AT * tokens}")
    pressed = time.perf_counter()
    page.evaluate("document.querySelector('#stop').click()")
    wait_for(page, f"['stopped', 'done'].includes({PHASE})")
    seconds = time.perf_counter() - pressed
    wait_for(page, IDLE)
    return seconds


def answers(page: Page, seconds: float) -> list[float]:
    """Seconds from a press to its answer, again and again for a time."""
    waits = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        before = page.locator("#prompt textarea").input_value()
        pressed = time.perf_counter()
        page.locator("#example-chat").click()
        wait_for(page, ANSWER, arg=before)
        waits.append(time.perf_counter() - pressed)
    return waits


def responsive(page: Page, seconds: float) -> dict[str, list[float]]:
    """The answers' times at rest and while a sweep of the builtin domains runs."""
    page.get_by_role("tab", name="Which setting?").click()
    page.locator("#sweep-source").get_by_label("Builtin domains").check()
    rest = answers(page, seconds)
    page.locator("#sweep-run").click()
    page.wait_for_selector('#sweep-status .job-state[data-phase="running"]', timeout=WAIT_MS)
    found = {"at_rest": rest, "in_a_sweep": answers(page, seconds)}
    page.locator("#stop").click()
    return found


def measure(args: Args) -> Results:
    """All figures as plain data."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        found: dict[str, Any] = {"start_up": start_up(browser, args), "streaming": {}}
        with app_here(server_port=args.port + 1) as url:
            page = open_page(browser, url)
            with paced(args.tokens, args.rate):
                to_the_end(
                    page, args.tokens
                )  # warms up what runs for the first time, in the app and in the browser
                for name, (load, *_) in LOADS.items():
                    with load():
                        found["streaming"][name] = {
                            "runs": [to_the_end(page, args.tokens) for _ in range(args.repeats)],
                            "stop_seconds": [stopped(page, args.tokens) for _ in range(args.repeats)],
                        }
            found["answers"] = responsive(page, args.seconds)
        browser.close()
    return {**head(args, torch.device("cpu"), "tokens", "rate", "seconds", "repeats"), **found}


def table(found: Results) -> str:
    """The results for people."""
    start = found["start_up"]
    lines = [
        f"page ready after {start['page_seconds']:.1f} s",
        f"first token {start['first_token_seconds']:.2f} s after Run",
    ]
    for name, (_, task, stop) in LOADS.items():
        runs = found["streaming"][name]["runs"]
        longest = max(run["longest_task_ms"] for run in runs)
        slowest = max(found["streaming"][name]["stop_seconds"])
        early, late = (
            median([r[key] for r in runs if not math.isnan(r[key])] or [math.nan])
            for key in ("early_ms_a_token", "late_ms_a_token")
        )
        lines += [
            verdict(longest <= task, f"{name}: longest task {longest:.0f} ms (at most {task})"),
            verdict(slowest <= stop, f"{name}: Stop takes effect in {slowest:.2f} s (at most {stop:.0f})"),
            verdict(
                late <= 1.3 * early, f"{name}: main thread {early:.2f} ms a token early, {late:.2f} late (flat)"
            ),
        ]
    for name, waits in found["answers"].items():
        when = name.replace("_", " ")
        lines.append(f"a press is answered in {median(waits):.2f} s (longest {max(waits):.2f}) {when}")
    return "\n".join(lines)


if __name__ == "__main__":
    defaults = {"browser": "/usr/bin/chromium", "tokens": 1024, "rate": 400.0, "seconds": 30.0, "repeats": 3}
    run_bench("page", __doc__, measure, table, **defaults, port=7896)
