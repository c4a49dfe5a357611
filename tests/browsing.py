"""What a person does on the page, for tests in a real browser."""

from __future__ import annotations

import time

from playwright.sync_api import Page, TimeoutError, expect

RUN_MS = 60_000


def wait_until_read(page: Page) -> None:
    """Until the page stands and its controls hold what its link says, which would undo what is done before."""
    page.locator("[data-role=speedup]").wait_for(state="attached", timeout=RUN_MS)
    page.wait_for_function("window.SpecDemoLinks.wasRead()", timeout=RUN_MS)


def set_length(page: Page, tokens: int) -> None:
    field = page.locator("#max-tokens input[type=number]")
    field.fill(str(tokens))
    field.press("Tab")


def press_run_and_wait(page: Page, phase: str = "done") -> None:
    page.locator("#run").click()
    expect(page.locator(".specdemo-race")).to_have_attribute("data-phase", phase, timeout=RUN_MS)
    expect(page.locator("#run")).to_be_enabled(timeout=RUN_MS)


def choose(page: Page, field: str, option: str) -> None:
    """Pick an option by what it begins with. A list opens with the focus alone, so a new try gives it up first."""
    deadline = time.monotonic() + RUN_MS / 1000
    while True:
        page.locator(f"#{field} input").click()
        try:
            page.get_by_role("option", name=option).first.click(timeout=5000)
            return
        except TimeoutError:
            if time.monotonic() > deadline:
                raise
            page.locator(f"#{field} input").blur()


def fill_numbers(page: Page, tab: str, prefix: str, numbers: dict[str, float]) -> None:
    """Open a tab and fill in its fields, which are called ``prefix-name``."""
    page.get_by_role("tab", name=tab).click()
    for name, value in numbers.items():
        field = page.locator(f"#{prefix}-{name} input")
        field.fill(str(value))
        field.press("Tab")
