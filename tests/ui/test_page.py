"""The app in a real browser, on the builtin pair."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Event

import pytest
from browsing import (
    RUN_MS,
    choose,
    download,
    fill,
    open_more,
    press_run_and_wait,
    set_length,
    shown_tokens,
    wait_for_chart,
    wait_for_phase,
    wait_for_tokens,
    wait_until_read,
)
from playwright.sync_api import Page, Route, expect

from specdemo import Recording
from specdemo.models.pair import ModelPair
from specdemo.view.race_value import replay_value

pytest_plugins = ["browser_fixtures"]


CHART_LENGTHS = """() => {
    const chart = document.querySelector("[data-role=chart]");
    const drawn = chart.data ? chart : chart.querySelector(".js-plotly-plot");
    return drawn && drawn.data ? drawn.data.map(series => series.x.length) : [];
}"""


def chart_lengths(page: Page) -> list[int]:
    """Points of both lanes' lines as the chart shows them now."""
    return (page.evaluate(CHART_LENGTHS) or [0, 0])[:2]  # the dots at the lines' ends follow


def test_a_race_shows_both_lanes_kinds_chart_and_an_identical_verdict(page: Page) -> None:
    """The whole way from Run to the verdict; guards every seam between core, worker, server and script."""
    page.locator("#example-edit").click()
    set_length(page, 96)
    page.locator("#run").click()
    wait_for_tokens(page, 1, 10)
    wait_for_phase(page, "done")
    for lane in (0, 1):
        tokens = page.locator(f"[data-lane='{lane}'] [data-stat=tokens]").inner_text()
        assert 1 < int(tokens) <= 96
    assert page.locator("[data-lane='0'] .t-target").count() > 1
    for kind in ("accepted", "corrected", "rejected"):
        assert page.locator(f"[data-lane='1'] .t-{kind}").count() > 0, kind
    claim = "".join(page.locator(f"[data-role={part}]").inner_text() for part in ("whose", "speedup"))
    claim += page.locator("[data-role=comparison]").inner_text()
    number = r"\d+(\.\d+)?"
    doubted = f"(at most {number}|{number} to {number})×the speed of"
    known = rf"Draft model:({number}×as fast as|{doubted}|\d+%slower than) plain"
    even = r"Draft model (is as fast as plain|and plain cannot be told apart: between .+)"
    assert re.fullmatch(f"{known}|{even}", claim)
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "identical")
    wait_for_chart(page)
    left = page.locator("[data-lane='0'] [data-role=tokens]").evaluate("e => e.textContent")
    kept = page.locator("[data-lane='1'] .t:not(.t-rejected)").evaluate_all(
        "es => es.map(e => e.textContent).join('')"
    )
    assert kept == left


def test_a_race_is_repeated_for_its_range_and_the_recording_keeps_it(page: Page) -> None:
    """Guards the button under a finished race, its job, Stop, the headline, and the file that replays it."""
    expect(page.locator("[data-role=repeat]")).to_be_hidden()
    press_run_and_wait(page, tokens=24)
    page.locator("[data-role=repeat]").click()
    expect(page.locator("[data-role=range]")).to_have_text(re.compile(r"\(.+ to .+, 5 runs; the one shown: .+×\)"))
    wait_for_phase(page, "done")
    expect(page.locator("#run")).to_be_enabled()
    said = page.locator("[data-role=comparison]").inner_text(), page.locator("[data-role=range]").inner_text()
    recording = Recording.from_json(download(page, "#save-json"))
    assert [len(speeds) for speeds in recording.repeats] == [2] * 5
    replayed = replay_value(recording)["headline"]
    assert (replayed["text"], f"({replayed['detail']})") == said
    page.locator("[data-role=repeat]").click()
    expect(page.locator("[data-role=repeating]")).to_contain_text("Repeating: run")
    page.locator("#stop").click()
    expect(page.locator("[data-role=repeating]")).to_contain_text("Stopped")
    expect(page.locator("[data-role=range]")).not_to_be_empty()


def test_stop_ends_a_run_whose_chart_grows_and_leaves_the_page_usable(page: Page, brake: Event) -> None:
    """Stop mid-run, when the chart has begun, and Stop at once; Run works after both."""
    page.locator("#example-code").click()  # goes on for long
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("def "))
    set_length(page, 1000)
    page.locator("#run").click()
    page.wait_for_function(f"({CHART_LENGTHS})().slice(0, 2).some(points => points > 1)", timeout=RUN_MS)
    wait_for_tokens(page, 0, 5)
    page.locator("#stop").click()
    wait_for_phase(page, "stopped")
    expect(page.locator("[data-role=message]")).to_contain_text("Stopped")
    page.locator("#run").click()
    page.locator("#stop").click()
    wait_for_phase(page, "stopped")
    brake.set()
    press_run_and_wait(page, tokens=12)


def test_charts_come_when_plotly_arrives_after_the_end_of_a_run(
    blank_page: Callable[..., Page], address: str
) -> None:
    """Guards slow connections: Plotly is several megabytes, and a short run takes a second."""
    page = blank_page()
    held: list[Route] = []
    page.route("**/plotly*.js", lambda route: held.append(route))
    page.goto(address)
    wait_until_read(page)
    press_run_and_wait(page, tokens=8)
    assert page.locator("[data-role=timeline] .ytick").count() == 0
    held[0].continue_()
    expect(page.locator("[data-role=timeline] .ytick").last).to_be_visible()
    assert len(chart_lengths(page)) == 2


def test_bad_input_shows_its_message_and_run_stays_usable(page: Page) -> None:
    """Every failure shows in place; the next run is an ordinary one, whose tokens tell of themselves."""
    for prompt, message in (("   ", "empty"), ("word " * 10_000, "at most")):
        page.locator("#prompt textarea").fill(prompt)
        press_run_and_wait(page, "error")
        expect(page.locator("[data-role=message]")).to_contain_text(message)
        expect(page.locator(".race-lanes, .race-below").filter(visible=True)).to_have_count(0)
    page.locator("#example-data").click()
    press_run_and_wait(page, tokens=24)
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "identical")
    page.locator("[data-lane='1'] .t-accepted").first.hover()
    tip = page.locator("[data-role=tip]")
    expect(tip).to_contain_text("round")
    expect(tip).to_contain_text("target p")
    page.mouse.move(1, 1)
    page.locator("[data-lane='1'] [data-role=tokens]").focus()
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("round")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    text = shown_tokens(page, 1)
    for prompt, message in (("   ", "empty"), ("word " * 10_000, "at most")):  # the last run stays
        page.locator("#prompt textarea").fill(prompt)
        press_run_and_wait(page, "error")
        expect(page.locator("[data-role=message]")).to_contain_text(message)
        expect(page.locator("[data-role=changed]")).to_be_visible()
        expect(page.locator("#race-saves")).to_be_visible()
        assert shown_tokens(page, 1) == text
    page.locator("#recording-1").click()
    expect(page.locator("[data-role=recorded]")).to_contain_text("Recorded on")
    press_run_and_wait(page, "error")
    expect(page.locator("[data-role=message]")).to_contain_text("at most")
    expect(page.locator("[data-role=recorded]")).to_contain_text("Recorded on")
    assert {kind for kind, _ in shown_tokens(page, 1)} >= {"accepted", "corrected"}


def test_an_answer_ends_by_itself(page: Page, true_ends: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the builtin pair's first impression: it answers, ends, and the page says that it ended."""
    monkeypatch.setattr(ModelPair, "eos_ids", true_ends)
    page.locator("#example-data").click()
    press_run_and_wait(page, tokens=256)
    assert int(page.locator("[data-lane='0'] [data-stat=tokens]").inner_text()) < 256
    for lane in (0, 1):
        assert (
            page.locator(f"[data-lane='{lane}'] .race-text").last.evaluate(
                "e => getComputedStyle(e, '::after').content"
            )
            == '"end of text"'
        )


def test_a_lossy_rule_is_called_lossy_and_sampling_is_called_sampled(page: Page) -> None:
    """Temperature above 0 turns exact match into rejection sampling by itself."""
    open_more(page)
    fill(page.locator("#temperature input[type=number]"), "0.8")
    open_more(page, "lane2")
    expect(page.locator("#lane2-acceptance input")).to_have_value(re.compile("rejection sampling"))
    press_run_and_wait(page, tokens=24)
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "sampled")
    choose(page, "lane2-acceptance", "among top k")
    expect(page.locator("#lane2-acceptance input")).to_have_value(re.compile("among top k"))
    page.locator("#run").click()
    # The run before is done too, so its end says nothing of this one's.
    expect(page.locator("[data-role=verdict]")).to_contain_text("lossy")


def choose_method(page: Page, lane: int, name: str) -> None:
    page.get_by_role("tab", name=f"Lane {lane}").click()
    choose(page, f"lane{lane}-method", name)


def test_four_lanes_race_and_a_copied_token_points_at_its_source(page: Page) -> None:
    """Every kind of lane in one race; prompt lookup marks in the prompt what it copied."""
    page.locator("#prompt textarea").fill("the red fox and the red fox and the red fox and the red")
    page.locator("#add-lane").click()
    choose_method(page, 1, "Speculative: early exit")
    expect(page.locator("#lane1-exit-layer")).to_be_visible()
    choose_method(page, 3, "Speculative: prompt lookup")
    expect(page.locator("#lane3-lookup-ngram")).to_be_visible()
    expect(page.locator("#lane3-exit-layer")).to_be_hidden()
    choose_method(page, 4, "transformers: draft model")
    page.locator("#lane4-adaptive input").check()
    press_run_and_wait(page, tokens=32)
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "identical")
    assert page.locator(".race-lane").count() == 4
    assert page.locator(".race-ratio").count() == 3
    outputs = [
        page.locator(f"[data-lane='{lane}'] .t:not(.t-rejected)").evaluate_all(
            "tokens => tokens.map(token => token.textContent).join('')"
        )
        for lane in range(4)
    ]
    assert outputs[0]
    assert outputs == [outputs[0]] * 4
    copied = page.locator("[data-lane='2'] .t-accepted, [data-lane='2'] .t-rejected").first
    copied.hover()
    source = page.locator("[data-lane='2'] .source")
    expect(source).to_have_count(1)
    assert source.inner_text().strip() == copied.inner_text().strip()
    expect(page.locator("[data-role=tip]")).to_contain_text("copied from the marked place")
