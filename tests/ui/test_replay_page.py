"""Replays in a real browser: the exported file with the network off, and recordings in the app."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from browsing import (
    download,
    press_run_and_wait,
    seek,
    set_length,
    shown_tokens,
    wait_for_chart,
    wait_for_frames,
    wait_for_phase,
    wait_for_tokens,
    wait_until_read,
)
from made_traces import lane_of
from playwright.sync_api import Page, expect
from recorded import HOSTILE
from toys import adversary, build, prompt_ids

import specdemo
from specdemo import ModelPair, Recording, Settings, Trace
from specdemo.analysis.wording import claim, factor, trend_of
from specdemo.rounds import Candidate
from specdemo.ui.jobs.session_recordings import RoundStreams
from specdemo.ui.tabs.recordings_panel import shipped
from specdemo.view.race_value import RaceView, replay_value
from specdemo.view.tables import figure_rows

pytest_plugins = ["browser_fixtures"]

PROMPT = "Book a table for two near the harbour on Friday evening."


def shown_figures(page: Page) -> list[list[str]]:
    """The table of all figures: label and values."""
    return page.locator("[data-role=figures] tr:not(:first-child)").evaluate_all(
        "es => es.map(e => [e.querySelector('th').firstChild.textContent,"
        " ...[...e.querySelectorAll('td')].map(d => d.textContent)])"
    )


TIMELINE_SECONDS = """lane => document.querySelector("[data-role=timeline]").data
    .flatMap(bars => bars.x.filter((_, i) => bars.y[i] === lane)).reduce((sum, x) => sum + x, 0)"""
LATER = "(seconds) => parseFloat(document.querySelector('[data-role=time]').textContent) > seconds"


def clock(page: Page) -> float:
    return float(page.locator("[data-role=time]").inner_text().split()[0])


def test_a_saved_file_plays_to_the_end_without_a_network(offline: Callable[[Path], Page], tmp_path: Path) -> None:
    """The promise to whoever gives a talk: same tokens, same final figures, chart and details, from disk alone."""
    traces = shipped()[0].traces
    specdemo.export_html(shipped()[0], tmp_path / "replay.html")
    page = offline(tmp_path / "replay.html")
    wait_for_tokens(page, 0, 3)
    assert page.locator(".specdemo-race").get_attribute("data-phase") == "running", (
        "it plays, and shows no end yet"
    )
    wait_for_phase(page, "done")
    assert page.locator(".race-meta > div:not([title])").count() == 0, "every figure has its formula on hover"
    for lane, trace in enumerate(traces):
        assert shown_tokens(page, lane) == [[t.kind, t.text] for t in trace.tokens]
        metrics = trace.metrics()
        expected = {
            "tokens": str(len(trace.token_ids)),
            "seconds": f"{trace.rounds[-1].seconds:.2f} s",
            "tokens_per_second": f"{metrics.tokens_per_second:.{1 if metrics.tokens_per_second < 99.95 else 0}f}",
        }
        if lane == 1:  # of a plain lane there are no such figures
            assert metrics.emitted == len(trace.token_ids) - 1, "the first is the prefill's"
            expected["tau"] = f"{metrics.emitted} / {metrics.rounds} = {metrics.emitted / metrics.rounds:.2f}"
            expected["acceptance_rate"] = f"{100 * metrics.acceptance_rate:.0f} %"
        found = page.locator(f"[data-lane='{lane}'] [data-stat]:not([data-stat=ratio])").evaluate_all(
            "es => Object.fromEntries(es.map(e => [e.dataset.stat, e.textContent]))"
        )
        assert found == expected
        drawn = page.evaluate(TIMELINE_SECONDS, lane)  # all of a lane's time, or the picture lies
        assert drawn == pytest.approx(trace.rounds[-1].seconds, rel=0.02)
    assert page.locator("[data-role=figures] tr[title]").count() == len(figure_rows(traces))
    assert shown_figures(page) == [[row["label"], *row["values"]] for row in figure_rows(traces)]
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "identical")
    wait_for_chart(page)
    page.locator("[data-lane='1'] .t-accepted").first.hover()
    expect(page.locator("[data-role=tip]")).to_contain_text("target p")
    rejected = page.locator("[data-lane='1'] .t-rejected").first
    expect(rejected).to_be_visible()
    page.locator("[data-role=show-rejected]").uncheck()
    expect(rejected).to_be_hidden()


def test_a_round_says_who_of_a_row_drafted_it(offline: Callable[[Path], Page], tmp_path: Path) -> None:
    """In the record, in its token's details, and as a mark above the timeline."""
    settings = Settings(drafter="suffix,model", gamma=4, max_new_tokens=48)
    target = build("llama", eos=None)
    trace = specdemo.run(ModelPair(target, adversary(target)), [*prompt_ids(9)] * 2, settings)
    assert specdemo.Trace.from_json(trace.to_json()) == trace
    by = [round_.drafter for round_ in trace.rounds]
    assert {"suffix", "model"} <= set(by)
    specdemo.export_html([trace], tmp_path / "replay.html")
    page = offline(tmp_path / "replay.html")
    wait_for_phase(page, "done")
    first = sum(len(round_.tokens) for round_ in trace.rounds[: by.index("suffix")])
    page.locator("[data-lane='0'] .t").nth(first).hover()
    expect(page.locator("[data-role=tip]")).to_contain_text("by suffix decoding")
    marks = page.evaluate("document.querySelector('[data-role=timeline]').data.at(-1).x.length")
    assert marks == by.count("suffix")
    expect(page.locator("[data-role=timeline] .legendtext").last).to_have_text("copied")


def test_a_replay_keeps_lane_time_and_can_be_steered(offline: Callable[[Path], Page], tmp_path: Path) -> None:
    """Guards play, pause, speed, steps and the slider; the clock is the lanes' own."""
    traces = shipped()[0].traces
    specdemo.export_html(shipped()[0], tmp_path / "replay.html")
    page = offline(tmp_path / "replay.html")
    page.keyboard.press(" ")
    play = page.locator("[data-action=play]")
    expect(play).to_have_attribute("data-state", "paused")
    paused = clock(page)
    wait_for_frames(page)
    assert clock(page) == paused, "the clock stands still while it is paused"

    order = sorted((r.seconds, lane, r.index) for lane, t in enumerate(traces) for r in t.rounds)
    seek(page, 0)
    assert page.locator(".t").count() == 0
    for count in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        assert clock(page) == pytest.approx(order[count - 1][0], abs=0.006)
        ends = [sum(1 for _, where, _ in order[:count] if where == lane) for lane in (0, 1)]
        for lane, rounds in enumerate(ends):
            expected = [t.text for r in traces[lane].rounds[:rounds] for t in r.tokens]
            assert [text for _, text in shown_tokens(page, lane)] == expected
    page.locator("[data-action=back]").click()
    assert clock(page) == pytest.approx(order[1][0], abs=0.006)

    seek(page, 0.6)
    plain, drafted = (speed_until(trace, 0.6) for trace in traces)
    expect(page.locator("[data-role=comparison]")).to_have_text(
        claim(trend_of(drafted / plain), "Draft model", "Plain")
    )
    if trend_of(drafted / plain) == "faster":
        expect(page.locator("[data-role=speedup]")).to_have_text(factor(drafted / plain))
    seek(page, 0.2)

    page.locator("[data-role=speed]").select_option("2")
    before, began = clock(page), page.evaluate("performance.now()")
    play.click()
    page.wait_for_function(LATER, arg=before + 0.5)
    play.click()
    passed = (page.evaluate("performance.now()") - began) / 1000
    assert 0.3 * passed < (clock(page) - before) / 2 <= passed + 0.02, "twice as fast, and never faster than that"
    page.locator("[data-role=speed]").select_option("8")
    play.click()
    wait_for_phase(page, "done")
    assert clock(page) == pytest.approx(traces[0].rounds[-1].seconds, abs=0.006)
    page.locator("[data-action=slow]").click()  # from the beginning again
    expect(page.locator("[data-role=speed]")).to_have_value("0.25")
    wait_for_phase(page, "running")
    page.locator("[data-role=speed]").select_option("8")
    wait_for_phase(page, "done")
    assert [text for _, text in shown_tokens(page, 1)] == [t.text for t in traces[1].tokens]


def test_hostile_texts_stay_texts(offline: Callable[[Path], Page], tmp_path: Path) -> None:
    """Guards whoever opens a file that was made of somebody else's run."""
    shown = shipped()[1]
    texts = iter(HOSTILE)
    rounds = [
        replace(r, tokens=tuple(replace(t, text=next(texts, "!")) for t in r.tokens))
        for r in shown.traces[2].rounds
    ]
    trace = replace(shown.traces[2], rounds=tuple(rounds), pair=HOSTILE[2])
    recording = replace(shown, title=HOSTILE[2], prompt=HOSTILE[0], traces=(trace,))
    pieces = tuple(HOSTILE[i % len(HOSTILE)] for i in range(len(trace.prompt_ids)))
    recording = replace(recording, prompt_pieces=pieces, versions={HOSTILE[0]: HOSTILE[2]}, date=HOSTILE[3])
    specdemo.export_html(recording, tmp_path / "hostile.html")
    page = offline(tmp_path / "hostile.html")
    wait_for_phase(page, "done")
    assert [text for _, text in shown_tokens(page, 0)] == [t.text for t in trace.tokens]
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert page.title() == HOSTILE[2]
    assert page.locator("[data-role=prompt-text]").evaluate("e => e.textContent") == HOSTILE[0]
    assert page.locator("[data-role=prompt] span").evaluate_all("es => es.map(e => e.textContent)") == list(pieces)
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("[data-role=facts] summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "a phone need not scroll sideways"
    expect(page.locator("[data-action=play]")).to_be_visible()
    value = replay_value(recording)
    value |= {"run": "hostile", "why": HOSTILE[2], "rounds": list(map(json.loads, value["rounds"]))}
    value["lanes"][0]["title"] = '<a href="https://a.example">b</a>'
    page.evaluate("v => SpecDemoPlayer.mount(document.querySelector('.race-root')).update(v)", value)
    expect(page.locator("[data-role=timeline] .annotation").last).to_contain_text("<a href=")  # Plotly reads tags
    expect(page.locator("[data-role=why]")).to_contain_text(HOSTILE[2])
    assert page.locator(".specdemo-race a, .specdemo-race img").count() == 0


# --- in the app -----------------------------------------------------------------------------------------------


def open_file(page: Page, name: str, content: bytes) -> None:
    page.locator("#open-recording input[type=file]").set_input_files(
        {"name": name, "mimeType": "application/json", "buffer": content}
    )


def test_a_run_is_saved_in_four_ways_and_opened_again(page: Page) -> None:
    """The whole way of a recording: run, save, open, replay; the four files tell of the same run."""
    assert page.locator("#save-json").count() == 0
    press_run_and_wait(page, tokens=24)
    ran = [shown_tokens(page, lane) for lane in (0, 1)]
    figures = shown_figures(page)
    saved = download(page, "#save-json")
    recording = Recording.from_json(saved)
    assert [[[t.kind, t.text] for t in trace.tokens] for trace in recording.traces] == ran
    assert recording.prompt == page.locator("#prompt textarea").input_value()
    tokens, rounds = (download(page, f"#save-{way}").decode("utf-8-sig") for way in ("tokens", "rounds"))
    assert tokens == specdemo.tokens_csv(recording.traces)
    assert rounds == specdemo.rounds_csv(recording.traces)
    assert same_data(download(page, "#save-html").decode(), recording)

    page.reload()
    wait_until_read(page)
    open_file(page, "run.json", saved)
    wait_for_phase(page, "done")
    expect(page.locator("[data-role=recorded]")).to_contain_text(f"Recorded on {recording.hardware.label}")
    assert [shown_tokens(page, lane) for lane in (0, 1)] == ran
    assert shown_figures(page) == figures
    assert Recording.from_json(download(page, "#save-json")) == recording, "what was opened can be saved again"
    press_run_and_wait(page)
    expect(page.locator("[data-role=recorded]")).to_be_hidden()


def marked(page: Page) -> list[int]:
    """How many tokens of each lane belong to the moment that is pointed at."""
    return [page.locator(f"[data-lane='{lane}'] .t.moment").count() for lane in (0, 1)]


def test_a_run_that_has_ended_is_seen_again(page: Page) -> None:
    """Guards what a race of two seconds leaves: the player, a round taken apart, one moment marked everywhere."""
    expect(page.locator(".race-below, [data-lane='0'] [data-stat=tau]")).to_be_hidden()
    page.locator("#prompt textarea").fill(PROMPT)
    press_run_and_wait(page, tokens=48)
    ran, figures = [shown_tokens(page, lane) for lane in (0, 1)], shown_figures(page)
    expect(page.locator("[data-role=apart] .apart-step")).to_have_count(3)
    ends = [i for i, (kind, _) in enumerate(ran[1]) if kind in ("target", "corrected", "bonus")]
    end = next(i for i in ends if ran[1][i][0] == "corrected")
    guessed = page.locator("[data-role=apart] .apart-step").first.locator("bdi").all_inner_texts()
    assert guessed == [text.strip() or "␣" for _, text in ran[1][max(i for i in ends if i < end) + 1 : end]] != []
    page.locator("[data-role=apart-off]").check()

    page.locator("[data-action=back]").click()
    assert sum(len(shown_tokens(page, lane)) for lane in (0, 1)) < sum(map(len, ran))
    page.locator("[data-action=forward]").click()
    wait_for_phase(page, "done")
    assert [shown_tokens(page, lane) for lane in (0, 1)] == ran, "a step back and on changes nothing"
    assert shown_figures(page) == figures

    page.locator("[data-lane='1'] .t-accepted").first.hover()
    here = marked(page)
    assert here[1] > 1 >= here[0] > 0, "the token's round, and the token of the plain lane at that moment"
    lines = page.locator(".race-now:not([hidden])")
    expect(lines).to_have_count(2)  # in the chart and in the timeline
    for plot in ("chart", "timeline"):
        page.mouse.move(1, 1)
        expect(lines).to_have_count(0)
        page.locator(f"[data-role={plot}] .nsewdrag").first.hover()
        expect(lines).to_have_count(2)
        assert marked(page)[0] > 0
    tokens = page.evaluate("document.querySelector('[data-role=chart]').data[1].y.at(-1)")
    assert tokens == sum(kind != "rejected" for kind, _ in ran[1])

    page.reload()
    wait_until_read(page)
    press_run_and_wait(page, tokens=8)
    expect(page.locator("[data-role=player]")).to_be_visible()
    expect(page.locator("[data-role=apart]")).to_be_hidden()


def apart_lane(rule: str, **draws: Any) -> Trace:
    """A lane whose first round is kept whole, and whose second has one token kept and one rejected by hand."""
    warm = {} if rule == "exact" else {"temperature": 1.0}
    lane = lane_of(
        Settings(acceptance=rule, gamma=2, **warm),
        [
            (["accepted", "accepted", "bonus"], (0.1, 0.1, 0.0)),
            (["accepted", "rejected", "corrected"], (0.1, 0.1, 0.0)),
            (["rejected", "rejected", "corrected"], (0.1, 0.1, 0.0)),
        ],
    )
    kept, dropped, own = lane.rounds[2].tokens
    tokens = (
        replace(kept, text="good", p=0.4, q=0.5, acceptance=0.8, u=draws.get("u") and 0.79),
        replace(dropped, text="bad", p=0.2, q=0.8, acceptance=0.2 if rule == "naive" else 0.25, u=draws.get("u")),
        replace(own, text="best", id=30, p=0.6, q=0.1),
    )
    round_ = replace(lane.rounds[2], tokens=tokens, residual=draws.get("residual"))
    return replace(lane, rounds=(*lane.rounds[:2], round_, replace(lane.rounds[3], stop="length")))


LEFT = (Candidate(30, HOSTILE[2], 0.6, 0.1, 0.9), Candidate(31, "worse", 0.1, 0.05, 0.1))
TAKEN_APART = {
    "sampling": (
        {"u": 0.7, "residual": LEFT},
        "below min(1, p/q) = 0.80: kept",
        "0.70, not below min(1, p/q) = 0.25: dropped",
    ),
    "older sampling": ({}, "not recorded: kept", "min(1, p/q) = 0.25, the number drawn is not recorded: dropped"),
    "naive": ({"u": 0.7}, ": kept", "drawn 0.70, not below p = 0.20: dropped"),
    "exact": ({}, "the target’s best token too: kept", "the target’s best is “best”: dropped"),
    "token match": ({}, "the target drew the same: kept", "the target drew “best”: dropped"),
    "block": ({}, "kept", "dropped"),
}


@pytest.mark.parametrize("rule", TAKEN_APART)
def test_a_round_taken_apart_says_why_a_token_was_dropped(
    rule: str, offline: Callable[[Path], Page], tmp_path: Path
) -> None:
    """Guards the lesson: the first correction, the numbers that decided it, and what is not known said so."""
    draws, kept, dropped = TAKEN_APART[rule]
    lane = apart_lane(rule.removeprefix("older ").replace(" ", "_"), **draws)
    specdemo.export_html([Trace.from_json(lane.to_json())], tmp_path / "replay.html")
    page = offline(tmp_path / "replay.html")
    wait_for_phase(page, "done")
    page.locator("[data-action=apart]").click()
    card, last = page.locator("[data-role=apart]"), page.locator("[data-role=apart] .apart-step").last
    expect(card.locator("h3")).to_have_text("Round 2, taken apart")
    said = card.locator(".apart-tests small")
    expect(said).to_have_count(2)
    expect(said.first).to_contain_text(kept)
    expect(said.last).to_contain_text(dropped)
    if "residual" in draws:
        names = last.locator(".apart-bars bdi").all_inner_texts()
        assert names == ["bad", HOSTILE[2], "worse"], "text of models is text"
        assert last.locator(".apart-bars dd:not(.apart-track)").all_inner_texts() == ["0 %", "90 %, drawn", "10 %"]
        expect(last.locator(".apart-bars .k-corrected")).to_have_text(HOSTILE[2])
    else:
        expect(last.locator(".apart-bars")).to_have_count(0)
        expect(last.get_by_text("is not recorded")).to_have_count(int(rule == "older sampling"))
    page.locator("[data-lane='0'] .t-rejected", has_text="bad").hover()
    if rule != "block":
        expect(page.locator("[data-role=tip]")).to_contain_text(dropped)
    page.locator("[data-action=next-correction]").click()
    expect(card.locator("h3")).to_have_text("Round 3, taken apart")
    unread = card.get_by_text("Not looked at, since a guess before was dropped")
    expect(unread).to_have_count(int(rule != "block"))  # which judges all of them
    page.locator("[data-action=back]").click()
    page.locator("[data-action=back]").click()
    expect(card.locator("h3")).to_have_text("Round 1, taken apart")


def test_a_round_taken_apart_comes_into_view(offline: Callable[[Path], Page], tmp_path: Path) -> None:
    """Guards a card that opened below the window's edge; only who asks for less motion is there at once."""
    specdemo.export_html([apart_lane("exact")], tmp_path / "replay.html")
    page = offline(tmp_path / "replay.html")
    page.set_viewport_size({"width": 1280, "height": 520})
    wait_for_phase(page, "done")
    for motion in ("no-preference", "reduce"):
        page.emulate_media(reduced_motion=motion)
        page.evaluate("window.scrollTo(0, 0)")
        press = page.locator("[data-action=apart]")
        assert press.evaluate("(e) => { e.click(); return window.scrollY > 0; }") == (motion == "reduce")
        expect(page.locator("[data-role=apart]")).to_be_in_viewport(ratio=1)


def test_every_round_crosses_once_and_none_is_lost(page: Page) -> None:
    """Guards busy and hidden pages, where values come faster than rounds, and a connection that breaks."""
    streams, run, rounds = RoundStreams(), RaceView([PLAIN_LANE]), shipped()[0].traces[0].rounds[:40]
    asked: list[int] = []

    def fetch(run: str, start: int) -> Any:
        asked.append(start)
        return None if len(asked) == 2 else json.loads(streams.fetch([run, start]).body)

    page.expose_function("fetchRounds", fetch)
    show = """(values) => {
        const stage = SpecDemoStage.mount(document.querySelector(".race-root"));
        for (const value of values) stage.receive(value, async ([run, from]) => [...await fetchRounds(run, from)]);
    }"""
    for part in (rounds[:1], rounds[1:9], rounds[9:]):
        values = []
        for round_ in part:
            run.add([(0, round_)])
            values.append(streams.offer(run.value()))
        assert len(json.dumps(values[-1])) < 500, "a value does not grow with its run"
        page.evaluate(show, values)
        page.wait_for_function(TOKENS_SHOWN, arg=len(run.rounds))
    assert shown_tokens(page, 0) == [[t.kind, t.text] for r in rounds for t in r.tokens]
    assert len(asked) < 7
    assert json.loads(streams.fetch(["another", 0]).body) == json.loads(streams.fetch("bad").body) == []


PLAIN_LANE = {"title": "Plain", "detail": "", "gamma": 0}
TOKENS_SHOWN = "(count) => document.querySelectorAll('[data-lane=\"0\"] .t').length === count"


def same_data(html: str, recording: Recording) -> bool:
    """Whether a saved page replays this recording; the name of the replay is new each time."""
    found: dict[str, Any] = json.loads(html.split('id="recording">')[1].split("</script>")[0])
    expected = replay_value(recording)
    expected["rounds"] = [json.loads(text) for text in expected["rounds"]]
    for value in (found, expected):
        value["run"] = value["headline"]["run"] = ""
    return found == expected and html.endswith("</html>\n")


def test_the_gallery_replays_what_is_shipped(page: Page) -> None:
    """Guards what the first run brings; each is labelled with the hardware it was recorded on."""
    expect(page.locator("#gallery")).to_be_hidden()
    press_run_and_wait(page, tokens=4)
    for number, recording in enumerate(shipped(), start=1):
        button = page.locator(f"#recording-{number}")
        expect(button).to_contain_text(f"recorded on {recording.hardware.label}")
        button.click()
        expect(page.locator("[data-role=player] strong")).to_have_text(recording.title)
        page.locator("[data-role=speed]").select_option("8")
        wait_for_phase(page, "done")
        for lane, trace in enumerate(recording.traces):
            assert shown_tokens(page, lane) == [[t.kind, t.text] for t in trace.tokens]
    assert page.locator("[data-lane='2'] [data-role=prompt]").count() == 0


def test_a_bad_file_gives_one_message_and_leaves_the_page_usable(page: Page, brake: Event) -> None:
    """Guards against files that are something else, forged, or open while a run is under way."""
    brake.set()
    press_run_and_wait(page, tokens=4)
    brake.clear()
    message = page.locator("#recording-message p")
    forged = json.loads(shipped()[0].to_json())
    forged["traces"][0]["rounds"][1]["seconds"] = -1
    for content, said in (
        (b"{not json", "not JSON"),
        (b"\xff\xfe<img src=x onerror=alert(1)>", "not JSON"),
        (b'{"schema": 1, "traces": [{"<img src=x onerror=alert(1)>": 1}]}', "lane 1"),
        (json.dumps(forged).encode(), "round 1"),
        (json.dumps({**forged, "schema": 99}).encode(), "schema 99"),
    ):
        open_file(page, "bad.json", content)
        expect(message).to_contain_text(said)
        assert message.count() == 1
    assert page.locator("#recordings img").count() == 0
    set_length(page, 1000)
    page.locator("#run").click()
    wait_for_tokens(page, 0, 5)
    page.locator("#recording-1").click()
    expect(message).to_contain_text("under way")
    page.locator("#stop").click()
    expect(page.locator("#run")).to_be_enabled()
    page.locator("#recording-1").click()
    wait_for_phase(page, "done")
    expect(message).to_have_count(0)


def speed_until(trace: Trace, seconds: float) -> float:
    """Tokens per second after the first, of the rounds that had ended by then."""
    rounds = [r for r in trace.rounds if r.seconds <= seconds]
    return sum(len(r.emitted) for r in rounds[1:]) / (rounds[-1].seconds - rounds[0].seconds)
