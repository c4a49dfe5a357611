"""``python -m specdemo.bench.page``: start-up, first token, long lanes that stream.

The app runs in a process of its own, and a browser (Playwright's, of ``tests/requirements.txt``) is the visitor.
Run is pressed on the builtin pair, for two lanes of ``--tokens`` tokens each: one run is seen to its end, another
is stopped near its end.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from specdemo.bench.harness import Args, Results, app_process, run_bench, verdict

MOST_TASK_MS, MOST_STOP = 100, 1.0
"""Bars for the longest task, and for the seconds from Stop to stopped."""
FLAT = 1.3
"""How many times the share of the main thread that the page takes early in a run it may take late."""
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


def wait_for(page: Page, condition: str) -> None:
    page.wait_for_function(condition, timeout=WAIT_MS, polling=POLL_MS)


def open_page(browser: Browser, url: str, tokens: int) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{url}#length={tokens}&ignore-eos=1")
    wait_for(page, READ)
    page.evaluate(WATCH)
    return page


def first_token(page: Page, tokens: int) -> float:
    """Seconds from a press of Run to the first token of that run."""
    pressed = time.perf_counter()
    page.locator("#run").click()
    wait_for(page, f"{SHOWN} < {tokens / 2}")
    wait_for(page, f"{SHOWN} > 0")
    return time.perf_counter() - pressed


def to_the_end(page: Page, tokens: int) -> dict[str, float]:
    """One run: its first token, its longest task, and the shares of the main thread's time early and late."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate("window.tasks = []")
    first = first_token(page, tokens)
    marks = [(time.perf_counter(), main_thread(session))]
    for share in (0.45, 0.55, 0.9):
        wait_for(page, f"{SHOWN} >= {share * tokens}")
        marks.append((time.perf_counter(), main_thread(session)))
    wait_for(page, f"{PHASE} === 'done' && {IDLE}")
    session.detach()
    early, late = ((marks[n + 1][1] - marks[n][1]) / (marks[n + 1][0] - marks[n][0]) for n in (0, 2))
    longest = max(page.evaluate("window.tasks"), default=0.0)
    return {"first_token": first, "longest_task_ms": longest, "early": early, "late": late}


def main_thread(session: CDPSession) -> float:
    """Processor seconds of the page's main thread so far."""
    found = session.send("Performance.getMetrics")["metrics"]
    return next(m["value"] for m in found if m["name"] == "ThreadTime")


def stopped(page: Page, tokens: int) -> float:
    """Seconds from a press of Stop near the end of a run to its effect."""
    first_token(page, tokens)
    wait_for(page, f"{SHOWN} >= {STOP_AT * tokens}")
    pressed = time.perf_counter()
    page.evaluate("document.querySelector('#stop').click()")
    wait_for(page, f"['stopped', 'done'].includes({PHASE})")
    seconds = time.perf_counter() - pressed
    wait_for(page, IDLE)
    return seconds


def measure(args: Args) -> Results:
    tokens, repeats = args.tokens, range(args.repeats)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        began = time.perf_counter()
        with app_process(args.port) as url:
            page = open_page(browser, url, tokens)
            found: dict[str, Any] = {"page_seconds": time.perf_counter() - began}
            to_the_end(page, tokens)  # loads the pair, and warms up what runs for the first time
            found["runs"] = [to_the_end(page, tokens) for _ in repeats]
            found["stop_seconds"] = [stopped(page, tokens) for _ in repeats]
        browser.close()
    return found


def table(found: Results) -> str:
    runs, stop = found["runs"], max(found["stop_seconds"])
    first, early, late = (median(run[key] for run in runs) for key in ("first_token", "early", "late"))
    longest = max(run["longest_task_ms"] for run in runs)
    lines = (
        f"page ready after {found['page_seconds']:.1f} s",
        f"first token {first:.2f} s after Run",
        verdict(longest <= MOST_TASK_MS, f"longest task {longest:.0f} ms (at most {MOST_TASK_MS})"),
        verdict(stop <= MOST_STOP, f"Stop takes effect in {stop:.2f} s (at most {MOST_STOP:.0f})"),
        verdict(late <= FLAT * early, f"main thread busy {early:.0%} early, {late:.0%} late (flat)"),
    )
    return "\n".join(lines)


if __name__ == "__main__":
    options = {"browser": "/usr/bin/chromium", "tokens": 900, "repeats": 3, "port": 7896}
    run_bench("page", __doc__, measure, table, **options)
