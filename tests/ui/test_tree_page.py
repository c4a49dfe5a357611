"""The picture of a draft tree, in an exported replay: what is drawn, what the text hides, and whom it follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from browsing import seek, wait_for_frames, wait_for_phase
from playwright.sync_api import Page, expect
from toys import endless_pair, prompt_ids

import specdemo
from specdemo import Settings
from specdemo.analysis.reasons import saved as saved_text

pytest_plugins = ["browser_fixtures"]

COUNT_DRAWN = """(picture) => {
  window.drawn = 0;
  new MutationObserver((changes) => { drawn += changes.length; }).observe(picture, { childList: true });
}"""


def test_a_round_can_be_opened_as_a_picture(offline: Callable[[Path], Page], tmp_path: Path) -> None:
    """Guards what is drawn of each round, that second guesses are hidden in the text, and the walk by keys."""
    pair = endless_pair("llama")
    fields = {"gamma": 4, "max_new_tokens": 40}
    plain = specdemo.run(pair, prompt_ids(9), Settings(strategy="autoregressive", max_new_tokens=40))
    tree = specdemo.run(pair, prompt_ids(9), Settings(tree_nodes=9, **fields))
    assert specdemo.Trace.from_json(tree.to_json()) == tree
    rounds = [r for r in tree.rounds if r.is_tree]
    saved = next(r for r in rounds if r.saved)
    figures = tree.metrics(plain)
    assert figures.saved_rounds == sum(r.saved for r in rounds) > 0
    assert f"{figures.saved_rounds} of {figures.rounds} rounds" in saved_text(figures)
    specdemo.export_html([plain, tree], tmp_path / "replay.html")
    page = offline(tmp_path / "replay.html")
    card, text = page.locator("[data-role=tree]"), page.locator("[data-lane='1'] [data-role=tokens]")
    wait_for_phase(page, "done")
    expect(card).to_be_hidden()
    read = [t for r in tree.rounds for t in r.reading]
    branches = sum(len(r.tokens) for r in tree.rounds) - len(read)
    assert text.locator(".t-branch").count() == branches > 0
    expect(text.locator(".t-branch").first).to_be_hidden()
    page.locator("[data-role=show-branches]").check()
    expect(text.locator(".t-branch").first).to_be_visible()
    page.locator("[data-role=show-branches]").uncheck()
    page.locator("[data-role=show-tree]").check()
    for seen in (text, card, page.locator("[data-action=back]")):
        expect(seen).to_be_in_viewport(ratio=1)
    expect(card.locator("h3")).to_have_text(f"Round {rounds[-1].index}: a tree of {rounds[-1].drafted} guesses")
    text.press("Home")
    for _ in range(saved.index):
        text.press("ArrowDown")
    expect(card.locator("h3")).to_have_text(f"Round {saved.index}: a tree of {saved.drafted} guesses")
    expect(card.locator(".tree-text")).to_contain_text("A later guess saved the round")
    drawn = card.locator(".tree-node").evaluate_all("nodes => nodes.map((node) => node.dataset.kind)")
    assert drawn == ["root", *(t.kind for t in saved.tokens)]
    assert card.locator("path").count() == len(saved.tokens)
    text.press("Escape")
    expect(card.locator("h3")).to_have_text(f"Round {rounds[-1].index}: a tree of {rounds[-1].drafted} guesses")
    back, scroll = page.locator("[data-action=back]"), card.locator(".tree-scroll")
    scroll.evaluate(COUNT_DRAWN)
    while page.evaluate("window.drawn") == 0:
        back.click()
        wait_for_frames(page)
    assert page.evaluate("window.drawn") == 1, "a step back draws the round that is now the last, and no other"
    seek(page, 0)
    expect(card.locator(".tree-text")).to_have_text("None of the rounds so far drafted a tree.")
    expect(card.locator(".tree-node")).to_have_count(0)
    card.get_by_role("button", name="Close").click()
    expect(card).to_be_hidden()


def test_a_round_is_taken_apart_as_what_it_drafted(offline: Callable[[Path], Page], tmp_path: Path) -> None:
    """Guards the flat list against a tree, two cards with different rounds, and trees of lanes nobody can tell."""
    pair = endless_pair("llama")
    chosen = (Settings(gamma=4, tree_nodes=9), Settings(gamma=3, tree_nodes=5), Settings(gamma=3))
    traces = [specdemo.run(pair, prompt_ids(9), replace(s, max_new_tokens=24)) for s in chosen]
    specdemo.export_html(traces, tmp_path / "replay.html")
    page = offline(tmp_path / "replay.html")
    wait_for_phase(page, "done")
    tree, apart = page.locator("[data-role=tree]"), page.locator("[data-role=apart]")
    names = page.locator(".race-lane h3").all_inner_texts()
    shown = sorted(((n, r) for n, t in enumerate(traces) for r in t.rounds), key=lambda each: each[1].seconds)
    seen = set()
    page.locator("[data-action=apart]").click()
    expect(apart.locator("h3")).to_contain_text("taken apart")  # at the end the lesson, of a chain
    while len(seen) < len(chosen):
        page.locator("[data-action=back]").click()
        shown.pop()
        lane, last = next((n, r) for n, r in reversed(shown) if r.drafted)
        page.locator("[data-action=apart]").click()
        expect(tree).to_be_visible(visible=last.is_tree)
        expect(apart).to_be_visible(visible=not last.is_tree)
        if last.is_tree:
            guesses = "1 guess" if last.drafted == 1 else f"{last.drafted} guesses"
            expect(tree.locator("h3")).to_have_text(f"Round {last.index}: a tree of {guesses} · {names[lane]}")
        else:
            expect(apart.locator("h3")).to_have_text(f"Round {last.index}, taken apart · {names[lane]}")
        seen.add(lane)
