"""Links, the talk view and images in a real browser, on the builtin pair."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsing import (
    RUN_MS,
    choose,
    drivable,
    fill,
    open_more,
    press_run_and_wait,
    seek,
    set_length,
    wait_for_frames,
    wait_for_phase,
    wait_for_tokens,
    wait_until_read,
)
from hypothesis import HealthCheck, given, settings
from link_states import HOSTILE, query_of, read, states
from playwright.sync_api import Browser, Error, Page, Route, expect

import specdemo
from specdemo.ui.links import LONGEST_LINK, from_query
from specdemo.ui.state.couplings import choices_left
from specdemo.ui.state.state import parameters
from specdemo.ui.tabs.recordings_panel import shipped

pytest_plugins = ["browser_fixtures"]

# One page serves all examples: what it writes for a state does not depend on the state before.
CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
PROMPT = HOSTILE[0] + "\n" + HOSTILE[1].replace("\r", "") + "שלום 你好 🙂"
STAY = ("acceptance", "losslessness.rule", "view", "recording", "speed", "autorun")
"""What keeps its first value below: what a change of temperature or mode by hand would swap, and no controls."""


def every_control() -> dict[str, Any]:
    """A state in which every control has another value than the page begins with, but for ``STAY``."""
    values: dict[str, Any] = {}
    typed = {
        **{"target": "org/model", "draft": "org/small", "dtype": "float32", "tab": "losslessness"},
        **{"gamma": 2, "method": "early_exit", "lane3.method": "lookup"},
    }
    for field in parameters():
        left = choices_left(field.name, values)
        other = [
            name for name in (field.choices if left is None else dict(left).values()) if name != field.default
        ]
        values[field.name] = {
            "text": PROMPT,
            "switch": not field.default,
            "several": other[:1],
            "choice": next(iter(other), None),
            "whole": int(field.least) + 3,
            "number": 0.85,
        }[field.kind]
        values[field.name] = field.default if field.name in STAY else typed.get(field.name, values[field.name])
    return values


@pytest.fixture
def visit(blank_page: Callable[..., Page], address: str) -> Iterator[Callable[[str], Page]]:
    """Opens the page by a link and counts the presses of Run; an answer that failed fails the test."""
    failed: list[str] = []

    def opened(query: str) -> Page:
        page = blank_page()
        page.on("response", lambda r: r.status >= 500 and failed.append(f"{r.status} {r.request.post_data}"))
        page.add_init_script(
            "window.runs = 0; addEventListener('click', e => e.target.closest?.('#run') && window.runs++, true)"
        )
        asked: list[str] = []
        if query:  # the link, and what the page would do with it
            with page.expect_response(
                lambda r: "/run/predict" in r.url and (asked.append(r.url) or len(asked) == 2)
            ):
                page.goto(f"{address}?{query}")
        else:
            page.goto(address)
        wait_until_read(page)
        return page

    yield opened
    assert failed == []


def written(page: Page, values: dict[str, Any]) -> tuple[str, list[str]]:
    """The query that the page writes for these values, and the texts that it leaves out as too long."""
    found = page.evaluate("values => SpecDemoLinks.toQuery(values)", values)
    return found["query"], found["left"]


def wait_for_query(page: Page, query: str) -> None:
    expect(page).to_have_url(re.compile(re.escape(f"#{query}") + "$"))


def test_run_that_is_pressed_before_the_link_is_read_waits_for_it(
    blank_page: Callable[..., Page], address: str
) -> None:
    """Guards whoever is quicker than a slow line; what the link is about to set takes nothing meanwhile."""
    page = blank_page()
    held: list[Route] = []
    page.route("**/run/predict", lambda route: route.continue_() if held else held.append(route))
    page.goto(f"{address}?prompt=of+the+link&length=40&gamma=3&lane3.method=lookup")
    page.locator("#prompt[inert]").wait_for(timeout=RUN_MS)
    page.locator("#run").click()
    expect(page.locator("#run")).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    wait_until_read(page)
    assert page.locator("#prompt[inert]").count() == 0
    wait_for_phase(page, "done")
    expect(page.locator("[data-lane='0'] [data-stat=tokens]")).to_have_text("40")
    expect(page.locator("[data-lane='1']")).to_contain_text("γ 3")
    expect(page.locator("[data-lane='2'] h3")).to_have_text("Prompt lookup")
    expect(page.locator("#run")).not_to_have_attribute("aria-busy", "true")


def test_a_page_asks_once_for_its_card_and_once_for_each_change(
    blank_page: Callable[..., Page], address: str
) -> None:
    """Guards against events that follow one another: each is a trip to the server and a pass over the panel."""
    page = blank_page()
    sent: list[str] = []
    page.on("request", lambda r: r.method == "POST" and sent.append(r.url.split("?")[0].rsplit("/", 1)[1]))
    page.goto(address)
    wait_until_read(page)
    expect(page.locator("#pair-card")).to_contain_text("In memory")
    assert sent == ["join"], "the pair's card"
    open_more(page)
    for field, value in (("#lane2-gamma", 3), ("#temperature", 0.8)):
        sent.clear()
        with page.expect_response("**/run/predict"):
            fill(page.locator(f"{field} input[type=number]"), value)
        assert sent == ["predict"]
    wait_for_query(page, "temperature=0.8&gamma=3")


def test_every_control_comes_back_from_its_link(visit: Callable[[str], Page]) -> None:
    """The round trip through a real address bar, with values that every coupling of the panel would change."""
    values, first = every_control(), from_query({})[0]
    assert tuple(name for name in values if values[name] == first[name]) == STAY
    # Neither as short as the page writes it, nor in that order.
    page = visit(query_of({"gamma": 2, **values, "foo": 1, "__theme": "light"}))
    query, _ = written(page, values)
    wait_for_query(page, query)
    assert urlsplit(page.url).query == "__theme=light", "what requests carry"
    expect(page.locator(".link-notices p")).to_have_text("“foo” is no parameter of this page.")
    expect(page.locator("#losslessness-rule input")).to_have_value("rejection sampling · lossless")
    # Both answers have come, the link and what the panel would do with it: nothing overwrites anything later.
    answers = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/run/predict'))"
    page.wait_for_function(f"{answers}.length >= 2", timeout=RUN_MS)
    page.get_by_role("tab", name="Race").click()
    wait_for_query(page, query.replace("&tab=losslessness", ""))
    page.reload()
    page.locator("#prompt textarea").wait_for(timeout=RUN_MS)
    expect(page.locator("#prompt textarea")).to_have_value(PROMPT)
    open_more(page, "lane2")
    expect(page.locator("#lane2-acceptance input")).to_have_value("exact match · lossless")
    expect(page.locator("#lane2-gamma input[type=number]")).to_have_value("2")
    page.get_by_role("tab", name="Lane 3").click()
    expect(page.locator("#lane3-lookup-ngram input[type=number]")).to_have_value(str(values["lane3.lookup-ngram"]))
    open_more(page)
    expect(page.locator("#dtype input")).to_have_value("float32")
    expect(page.locator("#chat input")).not_to_be_checked()
    wait_for_query(page, query.replace("&tab=losslessness", ""))


@settings(max_examples=60, suppress_health_check=CHECKS, deadline=None)
@given(state=states())
def test_every_state_comes_back_from_its_link(page: Page, state: dict[str, Any]) -> None:
    """The promise of a link: all controls, any text, no notice."""
    query, left = written(page, state)
    assert (read(query), left) == ((state, []), [])


def test_links_are_as_short_as_can_be(page: Page) -> None:
    """Nothing that the page begins with, no exponents, four decimals; of texts too long the longest goes first."""
    first = from_query({})[0]
    assert written(page, first) == ("", [])
    query, _ = written(page, {**first, "temperature": 0.123456, "top-p": 0.05, "seed": 2**53 - 1})
    assert query.split("&")[:3] == ["temperature=0.1235", "top-p=0.05", "seed=9007199254740991"]
    values = {**first, "prompt": "好" * 5000, "sweep.own": "fits", "gamma": 3}
    query, left = written(page, values)
    assert left == ["prompt"]
    assert read(query) == ({**values, "prompt": first["prompt"]}, [])
    query, left = written(page, {**values, "sweep.own": "é" * 300, "batch.own": "o" * 16000})
    assert left == ["prompt", "batch.own"]
    assert len(query) <= LONGEST_LINK


def test_what_is_changed_by_hand_is_in_the_address_and_in_the_copied_link(visit: Callable[[str], Page]) -> None:
    """Controls, couplings and tabs; with a clipboard, and without one as on a page that is not secure."""
    page = visit("__sign=secret&__theme=light")
    expect(page.locator("#lane2-gamma input[type=number]")).to_have_value("5")
    page.locator("#lane2-gamma input[type=number]").fill("3")
    page.locator("#prompt textarea").fill("tea & biscuits")
    open_more(page)
    page.locator("#temperature input[type=number]").fill("0.8")
    open_more(page, "lane2")
    expect(page.locator("#lane2-acceptance input")).to_have_value("rejection sampling · lossless")
    # What goes with a temperature or a pair need not be written.
    wait_for_query(page, "prompt=tea%20%26%20biscuits&temperature=0.8&gamma=3")
    choose(page, "pair", "builtin: target 17M alone")
    expect(page.locator("#lane2-method input")).to_have_value("Speculative: prompt lookup")
    wait_for_query(page, "pair=builtin-target&prompt=tea%20%26%20biscuits&temperature=0.8&gamma=3")
    assert urlsplit(page.url).query == "__sign=secret&__theme=light"
    for clipboard in (True, False):
        if not clipboard:
            page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
            page.locator("#lane2-gamma input[type=number]").fill("4")
        page.locator("#copy-link").click()
        expect(page.locator("#copy-link")).to_have_text("Copied")
        page.locator("#prompt textarea").fill("")
        page.locator("#prompt textarea").press("Control+v")
        link = page.locator("#prompt textarea").input_value()
        assert "secret" not in link
        assert "__theme=light" in link
        said, _ = read(urlsplit(link).fragment)
        assert (said["gamma"], said["pair"]) == (3 if clipboard else 4, "builtin-target")
        expect(page.locator("#copy-link")).to_have_text("Copy link")


SHORT, LONG = 200, 60_000


@pytest.mark.parametrize(("text", "characters"), [("🙂", SHORT), ("好", LONG)])
def test_prompts_of_any_length_run_and_stay(
    visit: Callable[[str], Page], blank_page: Callable[..., Page], text: str, characters: int
) -> None:
    """Guards Run, a reload and a link: servers refuse long addresses, and Gradio sends the page's own along.

    A prompt that the models cannot read is refused in a sentence.
    """
    prompt = (text * characters)[:characters]
    fits = characters == SHORT
    page = visit("length=2&tab=sweep&sweep.prompts=own")
    page.locator("#sweep-own textarea").fill(prompt)
    page.get_by_role("tab", name="Race").click()
    aimed = page.locator("#run").bounding_box()
    page.locator("#prompt textarea").fill(prompt)
    page.locator("#run").click()
    wait_for_phase(page, "done" if fits else "error")
    if not fits:
        expect(page.locator("[data-role=message]")).to_contain_text("shorten it")
    page.reload()
    wait_until_read(page)
    expect(page.locator("#prompt textarea")).to_have_value(prompt)
    left = ["prompt", "list of prompts of the sweep"] if not fits else []
    expect(page.locator(".link-left")).to_have_text(
        [" ".join(f"The {name} is too long for a link, which leaves it out." for name in left)][: len(left)]
    )
    assert page.locator("#run").bounding_box() == aimed, "what is said of the link moves no button"
    page.locator("#copy-link").click()
    other = blank_page()
    other.goto(page.evaluate("navigator.clipboard.readText()"))
    wait_until_read(other)
    if fits:
        expect(other.locator("#prompt textarea")).to_have_value(prompt)
    else:
        expect(other.locator(".link-notices")).to_contain_text("The prompt was too long for this link")
        expect(other.locator("#prompt textarea")).to_have_value("")


def test_no_request_fails_in_silence(page: Page) -> None:
    """Neither an event that waits in Gradio's queue nor one that does not, whoever refuses it."""
    large = {"status": 413, "content_type": "text/html", "body": "<h1>Request Entity Too Large</h1>"}

    def refuse(answer: dict[str, Any] | None, route: Route) -> None:
        route.fulfill(**answer) if answer else route.abort()

    for answer, sentence in (
        (large, "This is too large to be sent"),
        ({"status": 429, "json": {"detail": "Slow <b>down</b>."}}, "Slow <b>down</b>."),
        (None, "Connection lost"),
    ):
        page.route(re.compile(r"/queue/join\b"), partial(refuse, answer))
        page.locator("#run").click()
        expect(page.locator("#race .race-message")).to_contain_text("This did not begin")
        expect(page.locator(".link-notices")).to_contain_text(sentence)
        expect(page.locator("#run")).to_be_enabled()
        expect(page.get_by_text(sentence).filter(visible=True)).to_have_count(1)
        expect(page.locator(".toast-body").filter(visible=True)).to_have_count(0)
        page.locator(".link-notices button").click()
        page.route(re.compile("/run/predict$"), partial(refuse, answer))
        page.locator("#run").click()
        expect(page.locator(".link-notices")).to_contain_text(sentence)
        page.unroute_all()
        page.locator(".link-notices button").click()


def test_a_link_put_into_the_address_of_the_open_page_is_read(page: Page) -> None:
    """What stands behind the # changes without a new page."""
    page.locator("#lane2-gamma input[type=number]").fill("3")
    wait_for_query(page, "gamma=3")
    page.evaluate("location.hash = '#gamma=4'")
    expect(page.locator("#lane2-gamma input[type=number]")).to_have_value("4")
    wait_until_read(page)
    page.get_by_role("tab", name="Batch").click()
    wait_for_query(page, "gamma=4&tab=batch")
    page.go_back()
    wait_for_query(page, "gamma=4")


def test_bad_values_give_one_notice_and_an_ordinary_page(visit: Callable[[str], Page]) -> None:
    """Guards against strangers' links: markup in them is text, the page stays as it begins, no run is covered."""
    page = visit("gamma=99&%3Cimg+src=x%3E=1&seed=%24%7B1%2B1%7D&temperature=NaN")
    lines = page.locator(".link-notices p")
    expect(lines).to_have_count(4)
    expect(page.locator(".link-notices")).to_contain_text("gamma: “99” is ignored; it must be a whole number")
    expect(page.locator(".link-notices")).to_contain_text("“<img src” is no parameter of this page.")
    expect(page.locator(".link-notices")).to_contain_text("${1+1}")
    assert page.locator(".link-notices img").count() == 0
    expect(page.locator("#lane2-gamma input[type=number]")).to_have_value("5")
    page.locator("#run").click()
    expect(page.locator("#run-dock .link-notices p")).to_have_count(4)
    page.locator(".link-notices button").click()
    expect(lines).to_have_count(0)


def tokens(page: Page) -> int:
    return page.locator("#race .t").count()


def test_a_talk_starts_by_itself_and_is_driven_by_keys(visit: Callable[[str], Page]) -> None:
    """The whole stage: autorun once, large type that fits, hold a live run and step in it, go on, stop, leave."""
    page = visit("view=talk&autorun=1&length=1000&prompt=def%20fibonacci(n)%3A")
    wait_for_tokens(page, 1, 30)
    expect(page.locator("#panel")).to_be_hidden()
    expect(page.locator("#recordings")).to_be_hidden()
    page.keyboard.press(" ")
    expect(page.locator("[data-role=recorded]")).to_contain_text("Paused; decoding goes on")
    held = tokens(page)
    clock = page.locator("[data-role=time]").inner_text()
    expect(page.locator("[data-role=time]")).not_to_have_text(clock)  # more came meanwhile
    assert tokens(page) == held, "what is held stands still"
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    back = tokens(page)
    assert back < held
    page.keyboard.press("ArrowRight")
    assert tokens(page) > back
    page.keyboard.press("Control+x")
    assert page.locator(".hide-rejected").count() == 0
    page.keyboard.press("x")
    assert page.locator(".hide-rejected").count() == 1
    page.keyboard.press(" ")
    page.wait_for_function(
        "held => document.querySelectorAll('#race .t').length > held + 10", arg=held, timeout=RUN_MS
    )
    expect(page.locator("[data-role=player]")).to_be_hidden()  # it has caught up
    wait_for_phase(page, "running")
    page.keyboard.press("s")
    wait_for_phase(page, "stopped")
    assert page.evaluate("window.runs") == 1, "writing the address starts nothing again"
    expect(page.locator("[data-role=player]")).to_be_visible()
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    for width, height in ((1920, 1080), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.locator("[data-lane='0'] [data-role=tokens]").evaluate(size) >= 22
        assert page.locator("[data-role=speedup]").evaluate(size) >= 96
        assert page.evaluate(
            """() => [document.documentElement, document.getElementById('race')].every(e =>
                e.scrollHeight <= e.clientHeight + 1 && e.scrollWidth <= e.clientWidth)"""
        ), f"scrolls at {width}×{height}"
        page.evaluate("SpecDemoNotices.show(['autorun starts nothing: press Run.'])")
        notice, keys = page.locator(".link-notices").bounding_box(), page.locator(".talk-keys").bounding_box()
        assert notice["y"] + notice["height"] <= keys["y"], "a notice covers the keys"
        page.locator(".link-notices button").click()
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_visible()
    wait_for_query(page, "prompt=def%20fibonacci(n)%3A&length=1000&autorun=1")


def test_a_step_back_in_a_held_run_never_shows_more(page: Page) -> None:
    """Guards against a lane that lags behind: what it sends of a moment that is shown already comes next."""

    def value(*rounds: tuple[int, float]) -> dict[str, Any]:
        shares = {"draft_seconds": 0, "verify_seconds": 0.1, "other_seconds": 0, "drafted": 0, "accepted": 0}
        token = {"id": 1, "text": "a", "kind": "target", "position": 1, "p": 0.5}
        listed = [
            {**shares, "lane": lane, "index": i, "seconds": at, "tokens": [{**token, "round": i, "seconds": at}]}
            for i, (lane, at) in enumerate(rounds)
        ]
        lanes = [{"title": title, "detail": "", "gamma": 0} for title in ("a", "b")]
        return {"run": "held", "phase": "running", "message": None, "lanes": lanes, "rounds": listed}

    act = "([value, name]) => SpecDemoPlayer.mount(document.querySelector('.race-root'))[name](value)"
    first = [(0, 0.1), (0, 0.2), (1, 0.1), (1, 0.4)]
    late = value(*first, (0, 0.3), (0, 0.35), (0, 0.5))
    calls = [(value(*first), "update"), (None, "hold"), (late, "update"), (-1, "step"), (1, "step"), (1, "step")]
    counts = []
    for call in (*calls, (0.32, "seek"), (0.5, "seek")):
        page.evaluate(act, call)
        counts.append(tokens(page))
    assert counts == [4, 4, 4, 3, 4, 5, 3, 7]


def test_keys_mean_nothing_while_typing_and_run_in_the_talk_view(visit: Callable[[str], Page]) -> None:
    """Guards the prompt, in which every key is a letter."""
    page = visit("length=6")
    page.locator("#prompt textarea").fill("")
    page.locator("#prompt textarea").press_sequentially("trsx T")
    expect(page.locator("#prompt textarea")).to_have_value("trsx T")
    expect(page.locator("#panel")).to_be_visible()
    page.locator("#prompt textarea").blur()
    for key in ("r", "s", "Control+t"):
        page.keyboard.press(key)
    assert page.evaluate("window.runs") == 0, "outside the talk view only T means something"
    page.locator("#enter-talk").click()
    expect(page.locator("#panel")).to_be_hidden()
    wait_for_query(page, "prompt=trsx%20T&length=6&view=talk")
    page.keyboard.press("r")
    wait_for_phase(page, "done")
    assert page.evaluate("window.runs") == 1
    page.keyboard.press(" ")  # plays what just ended once more
    expect(page.locator("[data-role=player]")).to_be_visible()
    wait_for_phase(page, "done")
    page.keyboard.press("t")
    expect(page.locator("#panel")).to_be_visible()


def test_a_link_opens_a_recording_and_a_run_takes_it_out_again(visit: Callable[[str], Page]) -> None:
    """A speaker must not depend on luck; nor must a link show what is no longer there."""
    page = visit("recording=2&view=talk")
    expect(page.locator("[data-role=player] strong")).to_have_text(shipped()[1].title)
    page.keyboard.press("t")
    set_length(page, 4)
    page.locator("#run").click()
    wait_for_query(page, "length=4")


LATE = """
const send = window.fetch;
window.fetch = async (asked, ...options) => {
  const answer = await send(asked, ...options);
  if (window.late || !(asked.url || "").includes("/queue/data")) return answer;
  const reader = answer.body.getReader();
  const pull = async (out) => {
    const { done, value } = await reader.read();
    const last = !done && new TextDecoder().decode(value).includes("close_stream");
    if (last) await new Promise((go) => { late = go; });
    done ? out.close() : out.enqueue(value);
  };
  return new Response(new ReadableStream({ pull }), answer);
};
"""


def test_what_is_pressed_while_the_stream_of_events_ends_is_answered(
    blank_page: Callable[..., Page], address: str
) -> None:
    """Guards Run and recordings: Gradio's client listens to a new event only if it has heard of that end."""
    page = blank_page()
    page.add_init_script(LATE)
    page.goto(address)
    # The pair's card is there, and the page has not heard that no event is left.
    page.wait_for_function("!!window.late", timeout=RUN_MS)
    wait_until_read(page)
    with page.expect_response("**/queue/join*"):
        page.evaluate("document.getElementById('recording-1').click()")  # as a link does
    wait_for_frames(page)
    page.evaluate("late()")
    expect(page.locator("[data-role=player] strong")).to_have_text(shipped()[0].title)
    press_run_and_wait(page, tokens=4)


def test_in_a_space_the_outer_address_follows(browser: Browser, address: str) -> None:
    """A Space frames the app, hands its query in, and takes a new one by message; its key stays inside."""
    context = browser.new_context()
    with suppress(
        Error
    ):  # older browsers let a public page frame a local one unasked, and know no such permission
        context.grant_permissions(["local-network-access"])
    outer = context.new_page()
    frame = f'<iframe src="{address}?__sign=secret&gamma=3" width="1200" height="800"></iframe>'
    listener = (
        "<script>window.heard = []; onmessage = e => window.heard.push(e.data.queryString + e.data.hash)</script>"
    )
    outer.route(
        "https://huggingface.co/**",
        lambda route: route.fulfill(content_type="text/html", body=listener + frame),
    )
    outer.goto("https://huggingface.co/spaces/somebody/specdemo?gamma=3")
    inner = outer.frame_locator("iframe")
    expect(inner.locator("#lane2-gamma input[type=number]")).to_have_value("3")
    inner.locator("#prompt textarea").fill("tea & biscuits")
    outer.wait_for_function("window.heard.includes('#prompt=tea%20%26%20biscuits&gamma=3')", timeout=RUN_MS)
    assert "secret" not in outer.evaluate("JSON.stringify(window.heard)")
    context.close()


def saved_image(page: Page, card: str) -> str:
    """The name of a chart's image, which is twice as wide as the chart and not empty."""
    plot = page.locator(f"{card}:has(.chart-png) .js-plotly-plot").first
    plot.wait_for(timeout=RUN_MS)
    width = max(plot.evaluate("e => e.clientWidth"), 640)  # titles need so much
    with page.expect_download(timeout=RUN_MS) as waiting:
        page.locator(f"{card} .chart-png").first.click()
    content = Path(waiting.value.path()).read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(content[16:20]) == 2 * width
    assert len(content) > 8000, "an empty canvas is smaller"
    return waiting.value.suggested_filename


def test_charts_are_saved_as_images(visit: Callable[[str], Page], tmp_path: Path) -> None:
    """The race's two charts in an offline page, whose policy is strict, and a figure that Gradio drew."""
    specdemo.export_html(shipped()[0], tmp_path / "replay.html")
    page = visit("tab=sweep&sweep.to=2&sweep.repeats=1&sweep.tokens=8")
    page.locator("#sweep-run").click()
    assert saved_image(page, ".measured-figure") == "specdemo-speed-up-measured-and-predicted.png"
    page.goto(drivable(tmp_path / "replay.html"))
    seek(page, 999)
    wait_for_phase(page, "done")
    assert saved_image(page, ".race-below .race-card").startswith("specdemo-tokens-by-time")
    assert saved_image(page, ".race-after .race-card").startswith("specdemo-where")
