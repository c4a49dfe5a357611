"""``python -m specdemo.bench.responsive``: does the page still answer while a sweep takes the machine?

A browser (Playwright's, of ``tests/requirements.txt``) presses an example's button again and again, whose answer
comes from the server, and counts the gaps between frames; first with the page at rest, then while a γ sweep runs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from specdemo.ui.page import build, launch_options

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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.responsive", description=__doc__)
    parser.add_argument("--browser", default="/usr/bin/chromium", help="Chromium's executable")
    parser.add_argument("--seconds", type=float, default=30.0, help="to watch, at rest and in a sweep each")
    parser.add_argument("--port", type=int, default=7895)
    parser.add_argument("--json", type=Path, default=None, help="write the results here")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    app = build()
    _, url, _ = app.launch(prevent_thread_lock=True, quiet=True, server_port=args.port, **launch_options())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.get_by_role("tab", name="γ sweep").click()
        page.locator("#sweep-source").get_by_label("Builtin domains").check()
        page.evaluate(WATCH)
        page.wait_for_timeout(3000)
        found = {"at_rest": answers(page, args.seconds, sweeping=False)}
        page.locator("#sweep-run").click()
        page.wait_for_selector('#sweep-status .job-state[data-phase="running"]', timeout=60_000)
        found["in_a_sweep"] = answers(page, args.seconds, sweeping=True)
        page.locator("#sweep-stop").click()
        browser.close()
    app.close()
    print(json.dumps(found, indent=1))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
