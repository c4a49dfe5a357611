"""``python -m specdemo.bench.responsive``: does the page still answer while a sweep takes the machine?

A browser (Playwright's, of ``tests/requirements.txt``) presses an example's button again and again, whose answer
comes from the server, and counts the gaps between frames; first with the page at rest, then while a γ sweep runs.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
from playwright.sync_api import Page, sync_playwright

from specdemo.bench.harness import Args, Results, as_json, head, run_bench
from specdemo.bench.running_app import app_here

WATCH = """() => {
  window.gaps = []; let last = performance.now();
  const frame = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""
ANSWER = """(before) => document.querySelector("#prompt textarea").value !== before"""


def answers(page: Page, seconds: float, sweeping: bool) -> dict[str, Any]:
    """Seconds from a press to its answer, and the longest gap between frames, for a time or while a sweep runs."""
    page.evaluate("window.gaps = []")
    waits = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until and (not sweeping or _running(page)):
        before = page.locator("#prompt textarea").input_value()
        pressed = time.perf_counter()
        page.locator("#example-chat").click()
        page.wait_for_function(ANSWER, arg=before, timeout=60_000)
        waits.append(time.perf_counter() - pressed)
        page.wait_for_timeout(300)
    gaps = page.evaluate("window.gaps")
    return {
        "presses": len(waits),
        "median_seconds": median(waits),
        "longest_seconds": max(waits),
        "longest_frame_gap_seconds": max(gaps) / 1000,
    }


def _running(page: Page) -> bool:
    return page.locator("#sweep-status .job-state").get_attribute("data-phase") in ("loading", "running")


def measure(args: Args) -> Results:
    """All figures as plain data."""
    with app_here(server_port=args.port) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.get_by_role("tab", name="Which setting?").click()
        page.locator("#sweep-source").get_by_label("Builtin domains").check()
        page.evaluate(WATCH)
        page.wait_for_timeout(3000)
        found = {"at_rest": answers(page, args.seconds, sweeping=False)}
        page.locator("#sweep-run").click()
        page.wait_for_selector('#sweep-status .job-state[data-phase="running"]', timeout=60_000)
        found["in_a_sweep"] = answers(page, args.seconds, sweeping=True)
        page.locator("#stop").click()
        browser.close()
    return {**head(args, torch.device("cpu"), "seconds"), **found}


if __name__ == "__main__":
    defaults = {"browser": "/usr/bin/chromium", "seconds": 30.0, "port": 7895}
    run_bench("responsive", __doc__, measure, as_json, **defaults)
