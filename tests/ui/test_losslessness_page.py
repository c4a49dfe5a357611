"""The losslessness tab in a real browser, on the builtin pair."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browsing import RUN_MS, choose, set_length
from playwright.sync_api import Locator, Page, expect

from specdemo import Certificate

pytest_plugins = ["browser_fixtures"]
TEST_MS = 4 * RUN_MS  # dozens of runs, on a machine that may be busy


@pytest.fixture
def tab(page: Page) -> Page:
    page.get_by_role("tab", name="Losslessness").click()
    page.locator("#losslessness-start").wait_for()
    return page


def result(page: Page, phase: str) -> Locator:
    """The view, once it is in that phase and Check can be pressed again."""
    view = page.locator(".losslessness")
    expect(view).to_have_attribute("data-phase", phase, timeout=TEST_MS)
    if phase != "running":
        expect(page.locator("#losslessness-start")).to_be_enabled(timeout=RUN_MS)
    return view


def test_naive_is_rejected_live(tab: Page, tmp_path: Path) -> None:
    """The tab's reason to be; guards evidence, statement, bars and the file, while it runs and after."""
    tab.locator("#example-stories").click()  # where the target is not sure of its words
    choose(tab, "losslessness-rule", "naive")
    choose(tab, "losslessness-drafter", "draft model")
    tab.locator("#losslessness-start").click()
    view = result(tab, "running")
    expect(view.locator(".verdict")).to_have_attribute("data-verdict", "running", timeout=RUN_MS)
    expect(view.locator("figure").first).to_contain_text("All tokens after the first")
    view = result(tab, "done")
    expect(view.locator(".verdict")).to_contain_text("Differs")
    expect(view).to_contain_text(
        re.compile(r"at most once in [\d,]+ tests. Most visibly at “.+”: [\d.]+% of tokens")
    )
    with tab.expect_download() as download:
        tab.locator("#losslessness-save").click()
    download.value.save_as(tmp_path / "certificate.json")
    found = Certificate.from_json((tmp_path / "certificate.json").read_text(encoding="utf-8"))
    assert (found.verdict, found.pair, found.settings.acceptance) == ("differs", "builtin", "naive")
    assert found.prompt_ids
    assert view.locator(".tables u").count() == 2 * sum(len(table.outcomes) for table in found.tables)


def test_a_check_stopped_on_the_way_keeps_what_it_knows_and_the_tab_goes_on(tab: Page) -> None:
    """Guards Stop, the partial result, a message for what cannot be tested, and a run after it."""
    tab.locator("#losslessness-start").click()
    expect(tab.locator(".losslessness .meter").first).to_contain_text(re.compile(r"[2-9] of 200"), timeout=TEST_MS)
    tab.locator("#stop").click()
    view = result(tab, "stopped")
    expect(view.locator(".verdict")).to_contain_text("Stopped: undecided")
    expect(view).to_contain_text(re.compile(r"No difference found yet, after \d+ of 200 pairs"))
    tab.locator("#losslessness-rule input").click()
    expect(tab.get_by_role("option", name="exact match")).to_have_count(0)  # it has no meaning when sampling
    tab.keyboard.press("Escape")
    tab.locator("#prompt textarea").fill("")
    tab.locator("#losslessness-start").click()
    expect(result(tab, "error")).to_contain_text("Prompt: it is empty; write something")


def test_the_greedy_check_finds_exact_match_identical_and_top_k_diverged(tab: Page) -> None:
    """Guards the strip of positions, and that a lossy rule is told from rounding."""
    tab.get_by_label("greedy", exact=True).check()
    expect(tab.locator("#losslessness-runs")).to_be_hidden()
    set_length(tab, 32)  # of a sampled check it is no setting
    expect(tab.locator("#losslessness-rule input")).to_have_value("exact match · lossless", timeout=RUN_MS)
    expect(tab.locator(".losslessness-intro")).to_contain_text("One run continues")
    tab.locator("#losslessness-start").click()
    view = result(tab, "done")
    expect(view.locator(".verdict")).to_contain_text("Identical")
    expect(view.locator(".strip span")).to_have_count(32)
    choose(tab, "losslessness-drafter", "early exit")  # often another token than the target's best
    choose(tab, "losslessness-rule", "among top k")
    tab.locator("#losslessness-start").click()
    expect(view.locator(".verdict")).to_contain_text("Diverged")
    result(tab, "done")
    assert view.locator(".strip span[data-outcome=diverged]").count() == view.locator("tbody tr").count()
