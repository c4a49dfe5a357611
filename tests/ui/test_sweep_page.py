"""The tab that finds a setting in a real browser, on the builtin pair: the γ sweep, and the advisor."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from browsing import RUN_MS, choose, fill_numbers, set_length
from playwright.sync_api import Page, expect

pytest_plugins = ["browser_fixtures"]


def fill(page: Page, tokens: int | None = None, **numbers: int) -> None:
    fill_numbers(page, "Which setting?", "sweep", numbers)
    if tokens is not None:
        set_length(page, tokens)


def press_run_and_wait(page: Page, phase: str) -> str:
    """The line under the buttons once the sweep has ended so; the line of the sweep before does not count."""
    page.evaluate("document.querySelector('#sweep-status .job-state')?.setAttribute('data-old', '')")
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-status .job-state[data-old]")).to_have_count(0, timeout=RUN_MS)
    return ended(page, phase)


def ended(page: Page, phase: str) -> str:
    expect(page.locator("#sweep-status .job-state")).to_have_attribute("data-phase", phase, timeout=RUN_MS)
    expect(page.locator("#sweep-run")).to_be_enabled(timeout=RUN_MS)
    return page.locator("#sweep-status .job-state").inner_text()


def points(page: Page, figure: str) -> list[list[float]]:
    """The x values of every series of a figure, as Plotly holds them in the page."""
    page.wait_for_selector(f"#sweep-{figure} .js-plotly-plot", timeout=RUN_MS)
    return page.evaluate(
        "id => document.querySelector(`#${id} .js-plotly-plot`).data.map(s => Array.from(s.x))", f"sweep-{figure}"
    )


def test_a_sweep_shows_its_advice_figures_table_and_files(page: Page, tmp_path: Path) -> None:
    """The whole way from the button to the files; guards every seam, and that what is shown is what is saved."""
    choose(page, "lane2-tree-nodes", "12 tokens")
    fill(page, to=3, repeats=1, tokens=16)
    expect(page.locator("#sweep-drafts")).to_contain_text("Drafts as lane 2 of the panel does: EAGLE-3 head")
    assert "3 runs (1 prompt, 1 repeat)" in press_run_and_wait(page, "done")
    headline = page.locator("#sweep-headline").inner_text()
    assert re.search(
        r"Draft [23] tokens a round \(γ = [23]\): \d\.\d\d× as fast|Do not speculate|is open", headline
    )
    for figure in ("speed", "speedup", "accepted", "time"):
        series = points(page, figure)
        assert series, figure
        assert {x for xs in series for x in xs} <= {2, 3}, figure
    assert points(page, "speedup")[1] == [2, 3]
    with page.expect_download() as download:
        page.locator("#sweep-json").click()
    download.value.save_as(tmp_path / "sweep.json")
    with page.expect_download() as download:
        page.locator("#sweep-csv").click()
    download.value.save_as(tmp_path / "sweep.csv")
    rows = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))["rows"]
    lines = list(csv.DictReader((tmp_path / "sweep.csv").read_text(encoding="utf-8").splitlines()))
    assert [float(line["speedup"]) for line in lines] == [row["speedup"] for row in rows]
    offered = page.locator("#sweep-use")
    if headline.startswith("γ"):  # it pays on this machine, today
        offered.click()
        best = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))["best_gamma"]
        expect(page.locator("#lane2-gamma input[type=number]")).to_have_value(str(best))
        expect(offered).to_have_text(f"Lane 2 now drafts γ = {best}")
        expect(page.locator("#lane2-tree-nodes input")).to_have_value("none: one guess a position")
    for place, row in enumerate(rows):
        shown = page.locator("#sweep-table tbody tr").nth(place).locator("td").all_inner_texts()
        texts = [text.strip() for text in shown]
        assert texts[0] == str(row["gamma"])
        assert texts[1] == f"{row['speedup']:.2f}×"
        assert f"{row['acceptance_rate']:.1%}" in texts


def test_a_sweep_that_is_stopped_keeps_what_it_measured(page: Page) -> None:
    """Stop mid-way, then run anew: partial results stay, and nothing is left locked."""
    fill(page, repeats=20, tokens=32)
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-status .job-state")).to_contain_text(re.compile(r"Run \d+ of 160 .* left"))
    expect(page.locator("#sweep-headline")).to_contain_text("So far: ")  # the example has given way
    page.locator("#stop").click()
    assert "Stopped" in ended(page, "stopped")
    expect(page.locator("#sweep-headline")).to_contain_text("So far: ")
    assert points(page, "speedup")[1][0] == 2
    fill(page, to=2, repeats=1, tokens=8)
    press_run_and_wait(page, "done")


def test_own_prompts_are_read_or_refused_with_a_reason(page: Page, tmp_path: Path) -> None:
    """Guards the messages, file contents as text, and that the tab is usable after them."""
    fill(page, to=2, repeats=1, tokens=8)
    page.get_by_label("My own").check()
    assert "Prompt: there is none; write one a line" in press_run_and_wait(page, "error")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "fine"}\n{"question": "<b>bold</b>"}\n', encoding="utf-8")
    page.locator("#sweep-file input[type=file]").set_input_files(bad)
    expect(page.locator("#sweep-file .file-preview")).to_contain_text("bad", timeout=RUN_MS)
    assert "bad.jsonl, line 2 has no text" in press_run_and_wait(page, "error")
    page.locator(
        "#sweep-file button[aria-label='Remove this file'], #sweep-file [aria-label='Clear']"
    ).first.click()
    page.locator("#sweep-own textarea").fill("Once upon a time\n\nA farmer has 40 cows.")
    page.locator("#sweep-own textarea").press("Tab")
    assert "4 runs (2 prompts, 1 repeat)" in press_run_and_wait(page, "done")
    fill(page, to=99)
    assert "γ to: must be a whole number from 1 to 16, not 99" in press_run_and_wait(page, "error")
    fill(page, **{"from": 5, "to": 2})
    assert "γ: goes from 5 to 2; put the smaller one first" in press_run_and_wait(page, "error")
    choose(page, "lane2-method", "Plain: the target alone")
    expect(page.locator("#sweep-drafts")).to_contain_text("No lane drafts")
    fill(page, **{"from": 2, "to": 2})
    assert "set one to “Speculative: …” in the panel" in press_run_and_wait(page, "error")


def test_the_advisor_recommends_and_hands_over_lines_and_files(page: Page, tmp_path: Path) -> None:
    """From the choice of view to the files; Stop keeps what is known."""
    page.get_by_role("tab", name="Which setting?").click()
    page.get_by_label("Every method").check()
    expect(page.locator("#sweep-from")).to_be_hidden()
    expect(page.locator("#sweep-results")).to_be_hidden()  # its example answers another question
    fill(page, tokens=8, budget=600)
    expect(page.locator("#sweep-drafts")).to_contain_text("Tries every method on 1 prompt")
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-status .job-state")).to_contain_text(
        re.compile(r"Tried .* on prompt 1; \d+ settings in the race")
    )
    expect(page.locator("#advice-headline")).to_contain_text("So far: ")
    page.locator("#stop").click()
    assert "Stopped" in ended(page, "stopped")
    expect(page.locator("#advice-chart .advice-forest")).to_contain_text("plain decoding")
    expect(page.locator("#sweep-results")).to_be_hidden()
    code = re.compile("from transformers import|transformers has no EAGLE-3 head")  # whichever is fastest here
    expect(page.locator("#advice-code")).to_contain_text(code)
    for ending, start in (("json", "{"), ("csv", "method")):
        with page.expect_download() as download:
            page.locator(f"#advice-{ending}").click()
        download.value.save_as(tmp_path / f"report.{ending}")
        assert (tmp_path / f"report.{ending}").read_text(encoding="utf-8").startswith(start)
    page.get_by_label("Every γ of one method").check()
    expect(page.locator("#advice-chart")).to_be_hidden()
    expect(page.locator("#sweep-results")).to_be_visible()
    page.get_by_label("Every method").check()
    expect(page.locator("#advice-chart")).to_be_visible()
