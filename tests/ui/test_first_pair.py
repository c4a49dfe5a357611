"""What is said of the builtin pair under the prompt, and which real models are offered beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from specdemo.ui.panel import first_pair
from specdemo.ui.panel.first_pair import EXPECT, offers, real_pairs

pytest_plugins = ["browser_fixtures"]


@pytest.mark.parametrize(
    ("memory", "device", "llama", "found"),
    [
        (30, "cpu", True, ["qwen3-gguf", "gpt2", "smollm2"]),
        (30, "cuda", True, ["gpt2", "smollm2"]),
        (30, "cpu", False, ["gpt2", "smollm2"]),
        (3, "cpu", True, ["qwen3-gguf", "gpt2"]),
        (0.2, "cpu", True, []),
    ],
)
def test_real_models_are_offered_that_this_machine_holds(
    monkeypatch: pytest.MonkeyPatch, memory: float, device: str, llama: bool, found: list[str]
) -> None:
    """Guards what would only be refused later, and a GPU, on which GGUF files are not the quickest."""
    monkeypatch.setattr(first_pair, "room", lambda: memory * 1e9)
    monkeypatch.setattr(first_pair, "best_device", lambda: device)
    monkeypatch.setattr(first_pair, "is_here", lambda: llama)
    assert [entry.id for entry in real_pairs()] == found
    assert ("2.6 GB to download, about 7 min at 50 Mbit/s" in offers()) == ("qwen3-gguf" in found)
    assert found or "too little free memory" in offers()


def test_one_press_goes_to_a_real_model_and_keeps_the_prompt(open_page: Callable[..., Page]) -> None:
    """On a phone, by the keyboard: the line, the list, and the pair's card."""
    page = open_page("length=8", viewport={"width": 390, "height": 844})
    prompt = page.locator("#prompt textarea")
    expect(page.locator("#expect")).to_have_text(EXPECT)
    prompt.fill("Say Reykjavik and <i>judo</i>")
    summary = page.locator("#real-models summary")
    summary.focus()
    page.keyboard.press("Enter")
    offered = page.locator("#real-models [data-pair]")
    expect(offered.first).to_contain_text("min at 50 Mbit/s")
    name = offered.first.get_attribute("data-pair")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("(name) => window.SpecDemoLinks.value('pair') === name", arg=name)
    expect(page.locator("#pair-card")).to_be_in_viewport()
    expect(page.locator("#first-pair")).to_be_hidden()
    expect(prompt).to_have_value("Say Reykjavik and <i>judo</i>")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
