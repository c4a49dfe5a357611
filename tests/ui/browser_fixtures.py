"""A real browser on the app, as a plugin of the tests that need one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from apps import launched
from browsing import RUN_MS, drivable, wait_until_read
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from specdemo.rounds import Round
from specdemo.runs.race import Race, race

expect.set_options(timeout=RUN_MS)  # a busy machine is late, not wrong

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--process-per-site",  # for ``context``
]
# As a page opens for the first time; its name outlasts a reload.
FORGET = "if (!name && location.protocol === 'http:') { localStorage.clear(); name = 'opened'; }"


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The app as ``python app.py`` builds it, on a free port."""
    with launched() as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser that run.sh found, else Playwright's own."""
    path = os.environ.get("SPECDEMO_TEST_BROWSER") or shutil.which("chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path or None, args=ARGUMENTS)
        yield opened
        opened.close()


def watch(page: Page, problems: list[str]) -> None:
    """Note the script errors and dialogs of a page, which fail the test."""
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """The context of all pages that need no screen of their own.

    The pages of one site share a process as long as one of them is open, and it has compiled the scripts of Gradio
    and Plotly: a further load takes a third of the time. The empty page opened here stays for that.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    first = context.new_page()
    first.route("**", lambda route: route.fulfill(body=""))
    first.goto("http://127.0.0.1/")
    yield context
    context.close()


@pytest.fixture
def blank_page(browser: Browser, context: BrowserContext) -> Iterator[Callable[..., Page]]:
    """Gives empty pages, without cookies or anything stored; a script error in one fails the test.

    Only a device that a page cannot become, such as a phone, takes a context of its own, which loads slowly.
    """
    context.clear_cookies()
    made: list[Page | BrowserContext] = []
    problems: list[str] = []

    def make(viewport: ViewportSize | None = None, media: dict[str, Any] | None = None, **device: Any) -> Page:
        if device:
            made.append(browser.new_context(viewport=viewport, **device))
            page = made[-1].new_page()
        else:
            page = context.new_page()
            made.append(page)
            if viewport:
                page.set_viewport_size(viewport)
        page.emulate_media(**media or {})
        watch(page, problems)
        page.add_init_script(FORGET)
        return page

    yield make
    for closed in made:
        closed.close()
    assert problems == []


@pytest.fixture
def open_page(blank_page: Callable[..., Page], address: str) -> Callable[..., Page]:
    """Opens the app, perhaps by a link, perhaps on a screen of its own."""

    def opened(query: str = "", **screen: object) -> Page:
        page = blank_page(**screen)
        page.goto(f"{address}?{query}" if query else address)
        wait_until_read(page)
        return page

    return opened


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """A fresh visitor on the loaded page."""
    return open_page()


@pytest.fixture(scope="session")
def disconnected(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """The context of all files from disk, with the network off; an empty file stays open as in ``context``."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_offline(True)
    (first := tmp_path_factory.mktemp("empty") / "empty.html").touch()
    context.new_page().goto(first.as_uri())
    yield context
    context.close()


@pytest.fixture
def offline(disconnected: BrowserContext) -> Iterator[Callable[[Path], Page]]:
    """Opens a file from disk with the network off; an error message or any request fails the test too."""
    opened: list[Page] = []
    problems: list[str] = []

    def open_file(path: Path) -> Page:
        page = disconnected.new_page()
        page.add_init_script("if (location.protocol === 'file:') localStorage.clear();")
        opened.append(page)
        watch(page, problems)
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else problems.append(r.url))
        page.goto(drivable(path))
        return page

    yield open_file
    for page in opened:
        page.close()
    assert problems == []


class BrakedRace:
    """A race that waits after some rounds until it is let go or stopped."""

    FREE_ROUNDS = 20

    def __init__(self, held: Race, over: Event, stop: Event) -> None:
        self._held, self._over, self._stop, self._left = held, over, stop, self.FREE_ROUNDS

    def __iter__(self) -> BrakedRace:
        return self

    def __next__(self) -> tuple[int, Round]:
        while self._left == 0 and not self._stop.is_set() and not self._over.wait(0.02):
            pass
        self._left = max(0, self._left - 1)
        return next(self._held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)


@pytest.fixture
def brake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Holds every race in the middle until it is set, so that no test depends on how long a machine takes."""
    over = Event()

    def braked(pairs: Any, prompt: Any, lanes: Any, stop: Event, earlier: Any) -> BrakedRace:
        return BrakedRace(race(pairs, prompt, lanes, stop), over, stop)

    monkeypatch.setattr("specdemo.ui.jobs.race.race", braked)
    yield over
    over.set()
