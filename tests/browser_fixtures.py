"""A real browser on the app, as a plugin of the tests that need one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from browsing import RUN_MS
from playwright.sync_api import Browser, Page, sync_playwright

from specdemo.ui.page import build, launch_options

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The app as ``python app.py`` builds it, on a free port."""
    demo = build()
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    yield url
    demo.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser that run.sh found, else Playwright's own."""
    path = os.environ.get("SPECDEMO_TEST_BROWSER") or shutil.which("chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path or None, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A fresh visitor on the loaded page; a script error or a dialog fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    visitor = context.new_page()
    problems: list[str] = []
    visitor.on("pageerror", lambda error: problems.append(str(error)))
    visitor.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    visitor.goto(address)
    visitor.locator("[data-role=speedup]").wait_for(state="attached", timeout=RUN_MS)
    yield visitor
    context.close()
    assert problems == []
