"""What a person does on the page, for tests in a real browser."""

from __future__ import annotations

import time
from pathlib import Path

from playwright.sync_api import Locator, Page, TimeoutError

RUN_MS = 60_000
LOOK_MS = 50


def wait_until_read(page: Page) -> None:
    """Until the page stands and its controls hold what its link says."""
    page.locator("[data-role=speedup]").wait_for(state="attached", timeout=RUN_MS)
    page.wait_for_function("window.SpecDemoLinks.wasRead()", timeout=RUN_MS)


def open_more(page: Page, of: str = "run") -> None:
    """Open what is under *More* of the run, or of a lane."""
    button = page.locator(f"#{of}-more > button")
    if "open" not in (button.get_attribute("class") or "").split():
        button.click()
        wait_until_set(page.locator(f"#{of}-more input").first)


def wait_until_set(control: Locator) -> None:
    """Until a new control holds its value: Gradio sets it once more in the frame after it appeared."""
    control.wait_for()
    control.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def set_length(page: Page, tokens: int) -> None:
    open_more(page)
    fill(page.locator("#max-tokens input[type=number]"), tokens)
    page.wait_for_function("(tokens) => window.SpecDemoLinks.value('length') === tokens", arg=tokens)


def fill(field: Locator, value: float | str) -> None:
    """Fill in a field and leave it, which is when the page hears of it."""
    field.fill(str(value))
    field.press("Tab")


def wait_for_phase(page: Page, phase: str) -> None:
    """Until a race is in that phase. Playwright's ``expect`` would look for it but once a second in the end."""
    here = "(phase) => document.querySelector('.specdemo-race')?.dataset.phase === phase"
    page.wait_for_function(here, arg=phase, polling=LOOK_MS, timeout=RUN_MS)


def wait_until_free(page: Page, button: str = "run") -> None:
    """Until a button can be pressed."""
    free = "(id) => document.getElementById(id)?.disabled === false"
    page.wait_for_function(free, arg=button, polling=LOOK_MS, timeout=RUN_MS)


def wait_for_tokens(page: Page, lane: int, count: int) -> None:
    """Until a lane shows more than ``count`` tokens."""
    enough = "([lane, count]) => document.querySelectorAll(`[data-lane='${lane}'] .t`).length > count"
    page.wait_for_function(enough, arg=[lane, count], timeout=RUN_MS)


def press_run_and_wait(page: Page, phase: str = "done", *, tokens: int | None = None) -> None:
    """Run a race, of this length if one is given, until it has ended so and the next can be run."""
    if tokens is not None:
        set_length(page, tokens)
    page.locator("#run").click()
    wait_for_phase(page, phase)
    wait_until_free(page)


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
        wait_until_set(field)
        fill(field, value)


def download(page: Page, button: str) -> bytes:
    """What a button saves."""
    with page.expect_download(timeout=RUN_MS) as waiting:
        page.locator(button).click()
    return Path(waiting.value.path()).read_bytes()


def shown_tokens(page: Page, lane: int) -> list[list[str]]:
    """Kind and text of every token of a lane, as they stand on the page."""
    return page.locator(f"[data-lane='{lane}'] .t").evaluate_all(
        "es => es.map(e => [[...e.classList].find(c => c.startsWith('t-')).slice(2), e.textContent])"
    )


def seek(page: Page, seconds: float) -> None:
    """Move the player's slider to a moment."""
    page.locator("[data-role=seek]").evaluate(
        "(e, at) => { e.value = at; e.dispatchEvent(new Event('input')); }", seconds
    )


def wait_for_frames(page: Page) -> None:
    """Until what the page set out to do with its next frame is done."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_for_chart(page: Page, points: int = 1) -> None:
    """Until the chart, which draws a few times a second, shows more points of each of the first two lanes."""
    page.wait_for_function(CHART_HAS, arg=points, timeout=RUN_MS)


CHART_HAS = """(points) => {
  const { data } = document.querySelector("[data-role=chart]");
  return data?.length > 1 && data.slice(0, 2).every((series) => series.x.length > points);
}"""


def drivable(path: Path) -> str:
    """The address of a saved page as a test can drive it: Playwright evaluates texts, which the page forbids."""
    text = path.read_text(encoding="utf-8")
    if "'unsafe-eval'" not in text:
        path = path.with_name(f"drivable-{path.name}")
        path.write_text(text.replace("; style-src", " 'unsafe-eval'; style-src", 1), encoding="utf-8")
    return path.as_uri()
