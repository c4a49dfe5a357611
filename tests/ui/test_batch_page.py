"""The batch tab in a real browser, on the builtin pair."""

from __future__ import annotations

import json
import re
from pathlib import Path

from browsing import RUN_MS, choose, fill_numbers, set_length
from playwright.sync_api import Page, expect

pytest_plugins = ["browser_fixtures"]

HOSTILE = "<img src=x onerror=document.title='broken'> ${alert(1)} {{7*7}}"


def fill(page: Page, tokens: int | None = None, **numbers: float) -> None:
    fill_numbers(page, "Batch", "batch", numbers)
    if tokens is not None:
        set_length(page, tokens)


def ended(page: Page, phase: str) -> str:
    expect(page.locator("#batch-status .job-state")).to_have_attribute("data-phase", phase)
    expect(page.locator("#batch-run")).to_be_enabled()
    return page.locator("#batch-status").inner_text()


def test_a_batch_shows_every_row_twice_and_its_figures(page: Page) -> None:
    """The whole way from the button to the table; guards rows that are mixed up, and markup in a prompt."""
    fill(page, rows=3, tokens=12)
    page.locator("#batch-source").get_by_label("My own").check()
    page.locator("#batch-own textarea").fill(f"Once upon a time\n{HOSTILE}\nمرحبا 你好 🐢")
    page.locator("#batch-own textarea").press("Tab")
    page.locator("#batch-run").click()
    assert ended(page, "done") == "Done: 3 rows, 36 tokens plain and 36 tokens drafted."
    expect(page.locator("#batch-sizes")).to_be_hidden()
    assert page.title() != "broken"
    rows = page.locator(".batch-row")
    assert rows.count() == 3
    assert rows.nth(1).locator(".batch-label span").inner_text() == HOSTILE
    for number in range(3):
        texts = [
            "".join(cell.locator(".t:not(.t-rejected)").all_text_contents())
            for cell in rows.nth(number).locator(".batch-cell").all()
        ]
        assert texts[0] == texts[1] != ""
        notes = rows.nth(number).locator(".batch-note").all_inner_texts()
        assert all(re.search(r"12 tokens · [\d,]+ tok/s · full length at \d+\.\d\d s", note) for note in notes)
    expect(page.locator('[data-role="batch-verdict"]')).to_contain_text(
        "all 3 rows: identical output, checked at all 36 tokens"
    )
    assert re.fullmatch(r"\d+\.\d\d×", page.locator('[data-role="batch-speedup"]').inner_text())
    expect(page.locator('[data-role="batch-why"]')).to_contain_text("a round keeps")
    page.locator(".specdemo-batch summary").click()
    expect(page.locator('[data-role="batch-figures"]')).to_contain_text("tokens/s of the batch")


def test_sizes_are_measured_and_saved(page: Page, tmp_path: Path) -> None:
    """Guards the plot, and that the file says what the table shows."""
    fill(page, rows=2, tokens=8, repeats=1)
    page.locator("#batch-measure").click()
    assert ended(page, "done").startswith("Done: 6 batches (1 repeat), plain and drafted in turns")
    page.wait_for_selector("#batch-sizes-plot .js-plotly-plot", timeout=RUN_MS)
    with page.expect_download() as download:
        page.locator("#batch-sizes-json").click()
    download.value.save_as(tmp_path / "sizes.json")
    record = json.loads((tmp_path / "sizes.json").read_text(encoding="utf-8"))
    shown = page.locator("#batch-sizes tbody tr").all()
    assert [line.locator("td").nth(0).inner_text() for line in shown] == ["1", "2"]
    assert [line.locator("td").nth(1).inner_text() for line in shown] == [
        f"{row['speedup']:.2f}×" for row in record["rows"]
    ]
    expect(page.locator("#batch-sizes .measured-headline p")).to_contain_text(record["conclusion"])


def test_what_a_batch_cannot_do_is_said_and_stop_ends_it(page: Page) -> None:
    """Guards the messages, and that the tab is usable after them."""
    fill(page, rows=99)
    page.locator("#batch-run").click()
    assert "Rows: must be a whole number from 1 to 16, not 99" in ended(page, "error")
    fill(page, rows=1.5)
    page.locator("#batch-run").click()
    expect(page.locator("#batch-status")).to_contain_text("Rows: must be a whole number from 1 to 16, not 1.5")
    fill(page, rows=1, tokens=1)
    page.locator("#batch-run").click()
    expect(page.locator("#batch-status")).to_contain_text("Length: must be a whole number from 2 to 1,024")
    ended(page, "error")
    fill(page, rows=16, tokens=1000)
    page.locator("#batch-run").click()
    page.wait_for_selector(".batch-cell .t", timeout=RUN_MS)
    page.locator("#stop").click()
    assert "Stopped. What was decoded until then is shown." in ended(page, "stopped")
    assert page.locator(".batch-row").first.locator(".batch-note").first.inner_text().endswith("stopped")
    choose(page, "lane2-method", "Speculative: early exit")
    said = "Drafts as lane 2 of the panel does: draft model (early exit has no batch), "
    expect(page.locator("#batch-drafts")).to_contain_text(said)
