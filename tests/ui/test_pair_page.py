"""Choosing, checking, loading and quantising pairs in a real browser, from a hub on loopback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from apps import launched
from browsing import RUN_MS, choose, open_more, press_run_and_wait, set_length
from checkpoints import checkpoint
from hub import Hub
from playwright.sync_api import Page, expect

from specdemo import load_pair
from specdemo.training.gguf import write_pair

pytest_plugins = ["browser_fixtures"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with one pair, and with a repository that is gated."""
    folder = tmp_path_factory.mktemp("hub")
    with Hub() as opened, pytest.MonkeyPatch.context() as patch:
        opened.add("org/big", checkpoint(folder / "big", "qwen3", hidden=256, layers=4))
        opened.add("org/small", checkpoint(folder / "small", "qwen3", layers=1, seed=1))
        opened.add("org/closed", folder / "small", gated=True)
        opened.adopt(patch, folder / "cache")
        yield opened


@pytest.fixture(scope="module")
def address(hub: Hub) -> Iterator[str]:
    """The app beside that hub."""
    with launched() as url:
        yield url


def card(page: Page, state: str) -> str:
    """The card's text once it is in that state."""
    expect(page.locator(".pair-card")).to_have_attribute("data-state", state)
    return page.locator(".pair-card").inner_text()


def name_pair(page: Page, target: str, draft: str = "") -> None:
    """Type in a pair; leaving the second field looks at it."""
    if not page.locator("#custom-target input").is_visible():
        choose(page, "pair", "Custom")
    page.locator("#custom-target input").fill(target)
    page.locator("#custom-draft input").fill(draft)
    page.locator("#custom-draft input").press("Enter")
    page.locator("#custom-draft input").blur()


def test_a_pair_from_the_hub_is_checked_downloaded_stopped_resumed_and_run(page: Page, hub: Hub) -> None:
    """The whole way of a stranger's pair; guards what is said at each step and that nothing is fetched twice."""
    assert "In memory" in card(page, "ready")
    name_pair(page, "org/big", "org/small")
    expect(page.locator(".pair-card")).to_contain_text("org/small")
    report = card(page, "possible")
    assert re.search(r"Will run: \d+ MB to download", report)
    assert "same tokenizer" in report
    assert "apache-2.0" in report
    assert "model.safetensors" not in hub.fetched("org/big")
    hub.misbehave("org/big", delay=0.2)
    page.locator("#load").click()
    expect(page.locator(".pair-card")).to_contain_text(
        re.compile(r"Downloading.*[1-9]\d* .B of \d+ MB"), timeout=RUN_MS
    )
    page.locator("#cancel-load").click()
    expect(page.locator(".pair-card")).to_contain_text("Loading was stopped")
    hub.await_silence()  # else the run would join the load before it has ended
    hub.behave("org/big")
    press_run_and_wait(page, tokens=12)
    assert any(path.endswith("/model.safetensors") and went_on for _, path, went_on in hub.requests)
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "identical")
    assert "In memory" in card(page, "ready")


def test_a_slow_load_is_not_in_the_way_of_other_pairs(page: Page, hub: Hub, tmp_path: Path) -> None:
    """Guards the card, which once went on showing the other load; and that the load goes on behind it."""
    hub.add("org/slow", checkpoint(tmp_path / "slow", "llama", hidden=256, layers=2))
    hub.misbehave("org/slow", delay=0.3)
    name_pair(page, "org/slow")
    card(page, "possible")
    page.locator("#load").click()
    expect(page.locator(".pair-card")).to_contain_text("Downloading")
    choose(page, "pair", "builtin: ")
    assert "In memory" in card(page, "ready")
    press_run_and_wait(page, tokens=4)
    assert "In memory" in card(page, "ready")
    hub.behave("org/slow")
    choose(page, "pair", "Custom")
    assert "In memory" in card(page, "ready")


WRONG_NAMES = {
    "org/nowhere": "is not on the hub",
    "org/closed": "is gated: accept its licence",
    "/no/such/folder": "there is no folder",
    "<b>bold</b> ${1+1}": "<b>bold</b> ${1+1}",
}


def test_what_is_wrong_with_a_pair_stands_in_its_card(page: Page) -> None:
    """Guards the messages, names as text, and that the page is usable after them."""
    for target, message in WRONG_NAMES.items():
        name_pair(page, target)
        expect(page.locator(".pair-card")).to_contain_text(message)
        card(page, "problem")
        if target.startswith(("org/closed", "<")):
            press_run_and_wait(page, "error")
            expect(page.locator("[data-role=message]")).to_contain_text(message)
    choose(page, "pair", "builtin: ")
    card(page, "ready")
    press_run_and_wait(page, tokens=4)


def test_a_quantised_target_races_its_unquantised_baseline(page: Page) -> None:
    """Quantisation told truthfully: bytes saved, speed lost, and no verdict between different weights."""
    open_more(page)
    choose(page, "target-quantization", "int8")
    expect(page.locator(".pair-card")).to_contain_text(re.compile(r"int8 · \d+ MB, \d+\s?% saved"))
    page.locator("#add-lane").click()
    choose(page, "lane3-method", "Plain: unquantised target")
    press_run_and_wait(page, tokens=24)
    expect(page.locator("[data-lane='2']")).to_contain_text("unquantised weights")
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", re.compile("identical|tie"))
    expect(page.locator("[data-role=why]")).to_contain_text(re.compile(r"int8 weights (make|leave) the target"))
    choose(page, "lane3-method", "None")
    page.get_by_role("tab", name="Lane 1").click()
    choose(page, "lane1-method", "Plain: unquantised target")
    press_run_and_wait(page)
    lanes = ("draft model with int8 weights", "plain with unquantised weights")
    forms = "^(slower than|as fast as|the speed of) {1}|{0} (is as fast as|and) {1}"  # the third on a busy machine
    comparison = re.compile(forms.format(*lanes))
    expect(page.locator("[data-role=comparison]")).to_have_text(comparison)
    expect(page.locator("[data-role=why]")).to_contain_text("No plain lane has the int8 weights")
    choose(page, "target-quantization", "as they are")
    expect(page.locator("#lane1-method input")).to_have_value("Plain: the target alone")


def test_gguf_files_are_raced_in_llama_cpp(page: Page, tmp_path: Path) -> None:
    """From a file to a finished race in three presses: the list, *Custom*, and with the name typed in, Run."""
    write_pair(load_pair("builtin", "cpu", "float32"), tmp_path, "float32")
    set_length(page, 12)
    choose(page, "pair", "Custom")
    expect(page.locator("#custom-target input")).to_be_focused()
    page.keyboard.insert_text(str(tmp_path / "target.gguf"))
    press_run_and_wait(page)
    expect(page.locator("[data-lane='1']").first).to_contain_text("Prompt lookup")
    expect(page.locator("#lane2-method input")).to_have_value("Speculative: prompt lookup")
    name_pair(page, str(tmp_path / "target.gguf"), str(tmp_path / "draft.gguf"))
    page.get_by_text("same vocabulary").first.wait_for()  # the target's own card may come before
    assert "chat template" in card(page, "possible")
    press_run_and_wait(page)
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "identical")
    expect(page.locator("[data-lane='1']").first).to_contain_text("llama.cpp")
