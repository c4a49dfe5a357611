"""What a person does on the page, for tests in a real browser."""

from __future__ import annotations

import time

from playwright.sync_api import Page, TimeoutError, expect

RUN_MS = 60_000


def set_length(page: Page, tokens: int) -> None:
    field = page.locator("#max-tokens input[type=number]")
    field.fill(str(tokens))
    field.press("Tab")


def press_run_and_wait(page: Page, phase: str = "done") -> None:
    page.locator("#run").click()
    expect(page.locator(".specdemo-race")).to_have_attribute("data-phase", phase, timeout=RUN_MS)
    expect(page.locator("#run")).to_be_enabled(timeout=RUN_MS)


def choose(page: Page, field: str, option: str) -> None:
    """Pick an option by what it begins with; a list that was opened before the option came is opened again."""
    deadline = time.monotonic() + RUN_MS / 1000
    while True:
        page.locator(f"#{field} input").click()
        try:
            page.get_by_role("option", name=option).first.click(timeout=2000)
            return
        except TimeoutError:
            if time.monotonic() > deadline:
                raise
            page.keyboard.press("Escape")


def fill_numbers(page: Page, tab: str, prefix: str, numbers: dict[str, float]) -> None:
    """Open a tab and fill in its fields, which are called ``prefix-name``."""
    page.get_by_role("tab", name=tab).click()
    for name, value in numbers.items():
        field = page.locator(f"#{prefix}-{name} input")
        field.fill(str(value))
        field.press("Tab")
