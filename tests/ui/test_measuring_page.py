"""The tabs that measure in a real browser, on the builtin pair: a setting, batches, losslessness."""

from __future__ import annotations

import csv
import json
import re
from math import inf
from pathlib import Path

import pytest
from browsing import LOOK_MS, RUN_MS, choose, download, fill_numbers, open_more, set_length, wait_until_free
from playwright.sync_api import Locator, Page, expect

from specdemo import Certificate

pytest_plugins = ["browser_fixtures"]

HOSTILE = "<img src=x onerror=document.title='broken'> ${alert(1)} {{7*7}}"
TABS = {"sweep": "Which setting?", "batch": "Batch"}
TEST_MS = 4 * RUN_MS  # dozens of runs, on a machine that may be busy


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else this machine does; what a busy one shows is in tests/analysis/test_disturbance.py."""
    for place in ("analysis.report", "analysis.diagnosis", "ui.jobs.batch"):
        monkeypatch.setattr(f"specdemo.{place}.disturbance", lambda *_: None)
    monkeypatch.setattr("specdemo.analysis.sweep_report.RESTLESS", inf)


def fill(page: Page, tab: str, tokens: int | None = None, **numbers: float) -> None:
    fill_numbers(page, TABS[tab], tab, numbers)
    if tokens is not None:
        set_length(page, tokens)


def ended(page: Page, tab: str, phase: str) -> str:
    """The line under the tab's buttons once its job has ended so."""
    over = "([tab, phase]) => document.querySelector(`#${tab}-status .job-state`)?.dataset.phase === phase"
    page.wait_for_function(over, arg=[tab, phase], polling=LOOK_MS, timeout=RUN_MS)
    wait_until_free(page, f"{tab}-run")
    return page.locator(f"#{tab}-status .job-state").inner_text()


def sweep_ended(page: Page, phase: str) -> str:
    """The same of a sweep that is started now; the line of the sweep before does not count."""
    page.evaluate("document.querySelector('#sweep-status .job-state')?.setAttribute('data-old', '')")
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-status .job-state[data-old]")).to_have_count(0)
    return ended(page, "sweep", phase)


def points(page: Page, figure: str) -> list[list[float]]:
    """The x values of every series of a figure, as Plotly holds them in the page."""
    page.wait_for_selector(f"#sweep-{figure} .js-plotly-plot", timeout=RUN_MS)
    return page.evaluate(
        "id => document.querySelector(`#${id} .js-plotly-plot`).data.map(s => Array.from(s.x))", f"sweep-{figure}"
    )


def test_a_sweep_shows_its_advice_figures_table_and_files(page: Page) -> None:
    """The whole way from the button to the files; guards every seam, and that what is shown is what is saved."""
    open_more(page, "lane2")
    choose(page, "lane2-tree-nodes", "12 tokens")
    fill(page, "sweep", to=3, repeats=1, tokens=16)
    expect(page.locator("#sweep-drafts")).to_contain_text("Drafts as lane 2 of the panel does: draft model")
    assert "3 runs (1 prompt, 1 repeat)" in sweep_ended(page, "done")
    headline = page.locator("#sweep-headline").inner_text()
    assert re.search(
        r"Draft [23] tokens a round \(γ = [23]\): \d\.\d\d× as fast|Do not speculate|is open", headline
    )
    for figure in ("speed", "speedup"):
        series = points(page, figure)
        assert series, figure
        assert {x for xs in series for x in xs} <= {2, 3}, figure
    assert points(page, "speedup")[1] == [2, 3]
    record = json.loads(download(page, "#sweep-json"))
    rows = record["rows"]
    lines = list(csv.DictReader(download(page, "#sweep-csv").decode().splitlines()))
    assert [float(line["speedup"]) for line in lines] == [row["speedup"] for row in rows]
    offered = page.locator("#sweep-use")
    if headline.startswith("Draft"):  # it pays on this machine, today
        offered.click()
        best = record["best_gamma"]
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
    fill(page, "sweep", repeats=20, tokens=32)
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-status .job-state")).to_contain_text(re.compile(r"Run \d+ of 160 .* left"))
    expect(page.locator("#sweep-headline")).to_contain_text("So far: ")  # the example has given way
    page.locator("#stop").click()
    assert "Stopped" in ended(page, "sweep", "stopped")
    expect(page.locator("#sweep-headline")).to_contain_text("So far: ")
    assert points(page, "speedup")[1][0] == 2
    fill(page, "sweep", to=2, repeats=1, tokens=8)
    sweep_ended(page, "done")


def test_own_prompts_are_read_or_refused_with_a_reason(page: Page, tmp_path: Path) -> None:
    """Guards the messages, file contents as text, and that the tab is usable after them."""
    fill(page, "sweep", to=2, repeats=1, tokens=8)
    colour = page.locator("#sweep-drafts p").evaluate("e => getComputedStyle(e).color")
    page.get_by_label("My own").check()
    expect(page.locator("#sweep-drafts")).to_have_text("Prompt: there is none; write one, or choose a file.")
    expect(page.locator("#sweep-drafts p")).to_have_css("color", colour)  # nothing is wrong with what nobody wrote
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "fine"}\n{"question": "<b>bold</b>"}\n', encoding="utf-8")
    page.locator("#sweep-file input[type=file]").set_input_files(bad)
    expect(page.locator("#sweep-file .file-preview")).to_contain_text("bad")
    assert "bad.jsonl, line 2 has no text" in sweep_ended(page, "error")
    page.locator(
        "#sweep-file button[aria-label='Remove this file'], #sweep-file [aria-label='Clear']"
    ).first.click()
    page.locator("#sweep-own textarea").fill("Once upon a time\nthere was\n\nA farmer has 40 cows.")
    page.locator("#sweep-own textarea").press("Tab")
    assert "4 runs (2 prompts, 1 repeat)" in sweep_ended(page, "done")
    choose(page, "lane2-method", "Plain: the target alone")
    expect(page.locator("#sweep-drafts")).to_contain_text("No lane drafts")
    assert "set one to “Speculative: …” in the panel" in sweep_ended(page, "error")


def test_the_advisor_recommends_and_hands_over_lines_and_files(page: Page) -> None:
    """From the choice of view to the files; Stop keeps what is known."""
    page.get_by_role("tab", name="Which setting?").click()
    page.get_by_label("Every method").check()
    expect(page.locator("#sweep-from")).to_be_hidden()
    expect(page.locator("#sweep-results")).to_be_hidden()  # its example answers another question
    fill(page, "sweep", tokens=8, budget=600)
    expect(page.locator("#sweep-drafts")).to_contain_text("Tries every method on 1 prompt")
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-status .job-state")).to_contain_text(
        re.compile(r"Tried .* on prompt 1; \d+ settings in the race")
    )
    expect(page.locator("#advice-headline")).to_contain_text("So far: ")
    page.locator("#stop").click()
    assert "Stopped" in ended(page, "sweep", "stopped")
    expect(page.locator("#advice-chart .advice-forest")).to_contain_text("plain decoding")
    expect(page.locator("#sweep-results")).to_be_hidden()
    code = re.compile("from transformers import|transformers has no EAGLE-3 head")  # whichever is fastest here
    expect(page.locator("#advice-code")).to_contain_text(code)
    opened = page.locator("#advice-code .cm-content").filter(visible=True)
    expect(opened).to_contain_text(re.compile("from transformers import|vllm serve"))
    for ending, start in (("json", "{"), ("csv", "method")):
        assert download(page, f"#advice-{ending}").decode().startswith(start)
    page.get_by_label("Every γ of one method").check()
    expect(page.locator("#advice-chart")).to_be_hidden()
    expect(page.locator("#sweep-results")).to_be_visible()
    page.get_by_label("Every method").check()
    expect(page.locator("#advice-chart")).to_be_visible()


def test_a_batch_shows_every_row_twice_and_its_figures(page: Page) -> None:
    """The whole way from the button to the table; guards rows that are mixed up, and markup in a prompt."""
    fill(page, "batch", rows=3, tokens=12)
    page.locator("#batch-source").get_by_label("My own").check()
    page.locator("#batch-own textarea").fill(f"Once upon a time\n{HOSTILE}\nمرحبا 你好 🐢")
    page.locator("#batch-own textarea").press("Tab")
    page.locator("#batch-run").click()
    assert ended(page, "batch", "done") == "Done: 3 rows, 36 tokens plain and 36 tokens drafted."
    expect(page.locator("#batch-sizes")).to_be_hidden()
    assert page.title() != "broken"
    view = page.locator("#batch-view")
    cells = view.locator(".race-lane")
    expect(cells).to_have_count(6)
    assert cells.nth(2).locator(".race-detail").inner_text() == HOSTILE
    expect(view.locator(".specdemo-race")).to_have_attribute("data-phase", "done")
    for number in range(3):
        row = [cells.nth(2 * number), cells.nth(2 * number + 1)]
        assert [cell.locator("h3").inner_text().split(":")[0] for cell in row] == [f"Row {number + 1}"] * 2
        texts = ["".join(cell.locator(".t:not(.t-rejected)").all_text_contents()) for cell in row]
        assert texts[0] == texts[1] != ""
        for cell in row:
            assert cell.locator("[data-stat=tokens]").inner_text() == "12"
            assert re.fullmatch(r"\d+\.\d\d s", cell.locator("[data-stat=seconds]").inner_text())
            assert re.fullmatch(r"[\d.]+", cell.locator("[data-stat=tokens_per_second]").inner_text())
    expect(view.locator("[data-role=verdict]")).to_contain_text(
        "all 3 rows: identical to plain, checked at all 36 tokens"
    )
    assert re.fullmatch(r"\d+\.\d\d×", view.locator("[data-role=speedup]").inner_text())
    expect(view.locator("[data-role=comparison]")).to_contain_text(
        re.compile(r"All 3 rows together: Plain \d+ tok/s, ")
    )
    expect(view.locator("[data-role=why]")).to_contain_text("a round keeps")
    expect(view.locator(".race-chart")).to_be_hidden()
    expect(view.locator("[data-role=repeat]")).to_be_hidden()
    view.locator(".race-figures summary").click()
    expect(view.locator("[data-role=figures]")).to_contain_text("tokens/s of the batch")
    expect(view.locator("[data-role=figures] tr").first).to_have_text(re.compile("Plain"))


def test_sizes_are_measured_and_saved(page: Page) -> None:
    """Guards the plot, and that the file says what the table shows."""
    fill(page, "batch", rows=2, tokens=8, repeats=1)
    page.locator("#batch-measure").click()
    assert ended(page, "batch", "done").startswith("Done: 6 batches (1 repeat), plain and drafted in turns")
    page.wait_for_selector("#batch-sizes-plot .js-plotly-plot", timeout=RUN_MS)
    record = json.loads(download(page, "#batch-sizes-json"))
    shown = page.locator("#batch-sizes tbody tr").all()
    assert [line.locator("td").nth(0).inner_text() for line in shown] == ["1", "2"]
    assert [line.locator("td").nth(1).inner_text() for line in shown] == [
        f"{row['speedup']:.2f}×" for row in record["rows"]
    ]
    expect(page.locator("#batch-sizes .measured-headline p")).to_contain_text(record["conclusion"])


def test_what_a_batch_cannot_do_is_said_and_stop_ends_it(page: Page) -> None:
    """Guards the messages, and that the tab is usable after them."""
    fill(page, "batch", rows=99)
    page.locator("#batch-run").click()
    assert "Rows: must be a whole number from 1 to 16, not 99" in ended(page, "batch", "error")
    fill(page, "batch", rows=16, tokens=1000)
    page.locator("#batch-run").click()
    page.wait_for_selector("#batch-view .t", timeout=RUN_MS)
    page.locator("#stop").click()
    assert "Stopped. What was decoded until then is shown." in ended(page, "batch", "stopped")
    expect(page.locator("#batch-view .specdemo-race")).to_have_attribute("data-phase", "stopped")
    choose(page, "lane2-method", "Speculative: early exit")
    said = "Drafts as lane 2 of the panel does: draft model (early exit has no batch), "
    expect(page.locator("#batch-drafts")).to_contain_text(said)


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


def test_naive_is_rejected_live(tab: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tab's reason to be; guards evidence, statement, bars and the file, while it runs and after.

    What the test itself can tell is shown in tests/losslessness; here it is content with less evidence.
    """
    monkeypatch.setattr("specdemo.ui.jobs.losslessness.ERROR_RATE", 0.05)
    first = tab.locator("#losslessness-view")
    for part in ("Example", "Nothing of yours", "Checked: naive · lossy", "Differs", "reached, 1,000 needed"):
        expect(first).to_contain_text(part)
    colour = first.locator(".verdict").evaluate("e => getComputedStyle(e).color")  # that of no verdict
    choose(tab, "losslessness-rule", "naive")
    choose(tab, "losslessness-drafter", "draft model")
    tab.locator("#losslessness-start").click()
    view = result(tab, "running")
    expect(view.locator(".verdict")).to_have_attribute("data-verdict", "running")
    expect(view.locator("figure").first).to_contain_text("All tokens after the first")
    view = result(tab, "done")
    expect(view.locator(".verdict")).to_contain_text("Differs")
    expect(view.locator(".verdict")).not_to_have_css("color", colour)
    expect(view).to_contain_text(
        re.compile(r"at most once in [\d,]+ tests. Most visibly at “.+”: [\d.]+% of tokens")
    )
    found = Certificate.from_json(download(tab, "#losslessness-save").decode())
    assert (found.verdict, found.pair, found.settings.acceptance) == ("differs", "builtin", "naive")
    assert found.prompt_ids
    assert view.locator(".tables u").count() == 2 * sum(len(table.outcomes) for table in found.tables)


def test_a_check_stopped_on_the_way_keeps_what_it_knows_and_the_tab_goes_on(tab: Page) -> None:
    """Guards Stop, the partial result, a message for what cannot be tested, and a run after it."""
    tab.locator("#losslessness-start").click()
    expect(tab.locator(".losslessness .meter").first).to_contain_text(re.compile(r"[2-9] of 250"), timeout=TEST_MS)
    tab.locator("#stop").click()
    view = result(tab, "stopped")
    expect(view.locator(".verdict")).to_contain_text("Stopped: undecided")
    expect(view).to_contain_text(re.compile(r"No difference found yet, after \d+ of 250 pairs"))
    tab.locator("#losslessness-rule input").click()
    expect(tab.get_by_role("option", name="exact match")).to_have_count(0)  # it has no meaning when sampling
    tab.keyboard.press("Escape")
    expect(tab.locator("#losslessness-plan")).to_contain_text("They continue “Can you find me a movie?”")
    tab.locator("#prompt textarea").fill("")
    tab.locator("#losslessness-start").click()
    expect(result(tab, "error")).to_contain_text("Prompt: it is empty; write something")


def test_the_greedy_check_finds_exact_match_identical_and_top_k_diverged(tab: Page) -> None:
    """Guards the strip of positions, and that a lossy rule is told from rounding."""
    tab.get_by_label("greedy", exact=True).check()
    expect(tab.locator("#losslessness-runs")).to_be_hidden()
    set_length(tab, 32)  # of a sampled check it is no setting
    expect(tab.locator("#losslessness-rule input")).to_have_value("exact match · lossless")
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
