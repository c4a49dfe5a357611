"""The panel and the stage around a run, in a real browser: one Run, phones, keys, what was asked, and axe."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event

import axe_playwright_python
from browsing import (
    RUN_MS,
    choose,
    fill,
    open_more,
    press_run_and_wait,
    set_length,
    wait_for_frames,
    wait_for_phase,
    wait_until_read,
)
from playwright.sync_api import Page, expect

from specdemo.runs.prompts import examples
from specdemo.ui.state.state import TABS, parameters

pytest_plugins = ["browser_fixtures"]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
OPEN = "document.documentElement.dataset.tab"


def findings(page: Page, dark: bool = False, part: str = "body") -> list[str]:
    """What axe-core finds serious or critical; in the dark theme, which differs in colours, of contrast alone."""
    page.evaluate(AXE + ";0")
    found = []
    for theme, rules in (("dark", {"runOnly": ["color-contrast"]}), ("light", {}))[not dark :]:
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", theme == "dark")
        # Of a chart that is an image axe need not look at every line.
        where = {"include": part, "exclude": ".js-plotly-plot svg"}
        options = {"resultTypes": ["violations"], **rules}
        violations = page.evaluate("([where, options]) => axe.run(where, options)", [where, options])["violations"]
        grave = [v for v in violations if v["impact"] in ("serious", "critical")]
        found += [f"{theme}, {v['id']}: {v['nodes'][0]['target']}" for v in grave]
    return found


CONTROLS = (
    "a, button, input, select, textarea, summary, [role=tab], [role=slider], [role=combobox], [role=checkbox]"
)
VISIBLE = """(controls) => [...document.querySelectorAll(controls)]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }))
  .map((e) => e.id || e.closest("[id]").id)"""
"""What a person can press, fill in or choose. None of Gradio's controls here holds two such elements."""
SHOWN = """(ids) => ids.filter((id) => {
  const found = document.getElementById(id);
  return found?.checkVisibility({ visibilityProperty: true }) && found.getBoundingClientRect().height > 0;
})"""
LANES = range(1, 5)
LINKS = (
    "pair=custom&sweep.prompts=own&batch.prompts=own&"
    + "&".join(f"lane{n}.method=lookup&lane{n}.acceptance=top_k" for n in LANES),
    "sweep.view=methods&sweep.prompts=domains&" + "&".join(f"lane{n}.method=early_exit" for n in LANES),
    "&".join(f"lane{n}.method=suffix" for n in LANES),
    *(f"pair=custom&target=a.gguf&losslessness.prompts={source}" for source in ("own", "domains")),
)
"""Between them, pages on which every parameter means something; the control of one that does not is not there."""


def test_the_first_window_has_twenty_controls_and_runs_from_the_keyboard(
    open_page: Callable[..., Page], brake: Event
) -> None:
    """Guards what a newcomer sees before and after the first run, Stop, Run's place, and the keys that run."""
    page = open_page("", viewport={"width": 1440, "height": 900})
    expect(page.locator("#pair-card")).to_contain_text("In memory")
    seen = page.evaluate(VISIBLE, CONTROLS)
    assert len(seen) <= 20, seen
    expect(page.locator("#copy-link")).to_be_hidden()
    set_length(page, 24)
    expect(page.locator("#copy-link")).to_be_visible()
    about = page.locator("[data-role=about]")
    expect(about).to_contain_text("A language model writes one token")
    # Back from the length, which is further down.
    page.locator("#run").evaluate("e => { for (; e; e = e.parentElement) e.scrollTop = 0; }")
    aimed = page.locator("#run").bounding_box()
    page.locator("#prompt textarea").fill("Once upon a time\n" * 30)
    page.keyboard.press("Tab")
    expect(page.locator("#run")).to_be_focused()
    page.locator("#prompt textarea").press("Control+Enter")
    wait_for_phase(page, "running")
    expect(page.locator("#stop")).to_be_visible()
    assert page.locator("#run").bounding_box() == aimed
    brake.set()
    wait_for_phase(page, "done")
    expect(page.locator("#stop")).to_be_hidden()
    expect(about).to_be_hidden()
    expect(page.locator("#gallery")).to_be_visible()
    shown = page.locator("[data-role=show-rejected]")
    expect(shown).to_be_visible(visible=page.locator("[data-lane='1'] .t-rejected").count() > 0)
    slider = page.locator("[data-role=gamma]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#lane2-gamma input")).to_have_value("5")  # nothing runs until it is let go, or Enter
    page.keyboard.press("Enter")
    expect(page.locator("#lane2-gamma input")).to_have_value("7")
    expect(page.locator("[data-lane='1'] .race-detail")).to_contain_text("γ 7")
    wait_for_phase(page, "done")
    expect(page.locator("#run")).to_be_enabled()
    slider.evaluate("e => { e.value = 2; e.dispatchEvent(new Event('pointerup')); }")
    expect(page.locator("[data-lane='1'] .race-detail")).to_contain_text("γ 2")
    wait_for_phase(page, "done")
    page.reload()
    wait_until_read(page)
    expect(about).to_be_hidden()


def test_every_setting_is_two_presses_away_and_more_says_what_differs(open_page: Callable[..., Page]) -> None:
    """Guards a control that a tab, a lane or *More* hides; the lines beside *More*; and the lanes' tabs."""
    missing = {p.element for p in parameters() if p.element}
    for link in LINKS:
        page = open_page(link)
        for part in sorted({element.partition("-")[0] for element in missing}):
            if part in TABS:
                page.locator(f"#stage [data-tab-id={part}]").click()
                page.wait_for_function(f"{OPEN} === '{part}'", timeout=RUN_MS)
            elif part.startswith("lane"):
                page.locator(f"#lanes [data-tab-id='{part[-1]}']").click()
                open_more(page, part)
            else:
                open_more(page)
            for _ in range(6):  # a tab's controls come some frames after it
                wait_for_frames(page)
                missing -= set(page.evaluate(SHOWN, list(missing)))
                if not any(element.startswith(part) for element in missing):
                    break
        page.close()  # a browser has six connections to a host, and each page keeps one
    assert missing == set()
    page = open_page(
        "temperature=0.8&length=64&chat=0&acceptance=top_k&accept-top-k=3&exit-layer=2&losslessness.runs=50"
    )
    expect(page.locator("#lanes [role=tab]").first).to_be_hidden()
    said = "e => getComputedStyle(e, '::after').content"
    label = page.locator("#lane2-more > button > span").first
    expect(label).to_have_attribute(
        "data-differs", "acceptance top k, accept top k 3"
    )  # no layer: the method does not read it
    assert label.evaluate(said) == '" · acceptance top k, accept top k 3"'
    label = page.locator("#run-more > button > span").first
    expect(label).to_have_attribute("data-differs", "length 64, temperature 0.8, no chat")
    page.locator("#add-lane").click()
    choose(page, "lane3-method", "Speculative: prompt lookup")
    expect(page.locator(".race-lane h3").nth(2)).to_have_text("Prompt lookup")
    expect(page.locator("#lane3-lookup-ngram")).to_be_visible()
    choose(page, "lane3-method", "None")
    expect(page.locator(".race-lane")).to_have_count(2)


def test_one_run_button_follows_the_tab_and_says_what_it_will_do(page: Page) -> None:
    """Guards one Run for all tabs, what it announces, what is dimmed and why, keys between tabs, and Back."""
    starts = page.locator("#run-row .start:visible")
    expect(starts).to_have_text(["Run race"])
    page.get_by_role("tab", name="Race").focus()
    page.keyboard.press("ArrowRight")
    expect(starts).to_have_text(["Measure"])
    expect(page.get_by_role("tab", name="Which setting?")).to_be_focused()
    note = page.locator("#sweep-drafts")
    expect(note).to_contain_text("24 runs of at most 256 tokens")
    expect(note).to_contain_text("They take about")
    expect(page.locator("#sweep-results .example")).to_be_visible()
    expect(page.locator("#sweep-csv")).to_be_hidden()  # an example is no result to save
    gamma = page.locator(".lane-gamma:visible")
    expect(gamma).to_have_attribute(
        "data-unused", "This tab tries chains of every γ of its own range, and no trees."
    )
    assert gamma.evaluate("e => e.inert")
    kinds = page.locator("#sweep-view input")
    kinds.and_(page.locator("[value=methods]")).check()
    expect(gamma).to_have_attribute("data-unused", "This tab tries every method, with γ and trees of its own.")
    kinds.and_(page.locator("[value=gammas]")).check()
    page.locator("#sweep-to input").fill("2.5")
    expect(note).to_have_text("γ to: must be a whole number from 1 to 16, not 2.5.")
    page.keyboard.press("Tab")
    page.get_by_role("tab", name="Losslessness").click()
    expect(starts).to_have_text(["Check"])
    fill(page.locator("#lane2-gamma input[type=number]"), 9)
    expect(page.locator("#losslessness-plan")).to_contain_text("γ 9 is lane 2’s. 500 runs of at most 12 tokens")
    open_more(page, "lane2")
    tree, adaptive = page.locator("#lane2-tree-nodes"), page.locator("#lane2-adaptive")
    expect(tree).to_have_attribute("data-unused", "The check drafts chains of this γ.")
    expect(adaptive).to_have_attribute("data-unused", "The check keeps γ as it is.")
    page.get_by_role("tab", name="Batch").click()
    expect(tree).to_have_attribute("data-unused", "A batch drafts chains of this γ.")
    assert tree.evaluate("e => e.inert")
    assert not adaptive.evaluate("e => e.inert")
    expect(starts).to_have_text(["Measure sizes"])
    expect(page.locator("#prompt")).to_have_attribute("data-unused", "The batch has prompts of its own.")
    for tab in ("losslessness", "sweep", "race"):
        page.go_back()
        page.wait_for_function(f"{OPEN} === '{tab}'", timeout=RUN_MS)
    expect(page.locator("[data-unused]")).to_have_count(0)
    fill(page.locator("#lane2-gamma input[type=number]"), 2.5)
    expect(page.locator("#panel-note")).to_contain_text("Lane 2, γ: must be a whole number")
    page.locator("#pair input").click()
    expect(page.get_by_role("listbox")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("listbox")).to_have_count(0)
    assert page.evaluate("document.activeElement !== document.body")


def test_a_phone_has_the_prompt_and_run_first_and_a_talk_view_for_fingers(open_page: Callable[..., Page]) -> None:
    """390 pixels wide: settings in a sheet, Run always there, the stage in view, Back out of the talk view."""
    phone = open_page(
        "length=24", viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True, is_mobile=True
    )
    expect(phone.locator("#settings")).to_be_hidden()
    phone.locator("#settings-toggle").tap()
    expect(phone.locator("#pair")).to_be_visible()
    phone.locator("#run").tap()
    expect(phone.locator("#settings")).to_be_hidden()
    wait_for_phase(phone, "done")
    expect(phone.locator("[data-role=comparison]")).to_be_in_viewport()
    expect(phone.locator("#run")).to_be_in_viewport()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    timeline = phone.locator("[data-role=timeline]")
    expect(timeline.locator(".annotation").last).to_be_visible()  # the lanes' titles, above their bars
    rows = {legend.bounding_box()["y"] for legend in timeline.locator(".legendtext").all()}
    assert len(rows) == 1
    for chart in (timeline, phone.locator("[data-role=chart]")):
        labels, card = [t.bounding_box() for t in chart.locator(".xtick text").all()], chart.bounding_box()
        assert all(a["x"] + a["width"] + 8 < b["x"] for a, b in pairwise(labels))
        assert all(label["y"] + label["height"] <= card["y"] + card["height"] for label in labels)
    phone.locator("#enter-talk").tap()
    for name in ("Run", "Play again", "Leave"):
        expect(phone.locator(".talk-keys").get_by_role("button", name=name)).to_be_in_viewport()
    phone.go_back()
    expect(phone.locator("#panel")).to_be_visible()
    phone.locator("#enter-talk").tap()
    phone.locator(".talk-keys").get_by_role("button", name="Leave").tap()
    expect(phone.locator("#panel")).to_be_visible()
    assert "view=talk" not in phone.url


def test_the_stage_says_what_was_asked_and_the_visit_has_a_history(page: Page) -> None:
    """Guards lanes before a run, the caption, the notice of changes, runs to look back at, and their settings."""
    choose(page, "lane2-method", "Speculative: prompt lookup")
    expect(page.locator(".race-lane h3").nth(1)).to_have_text("Prompt lookup")  # before anything ran
    page.locator("#add-lane").click()
    page.get_by_role("tab", name="Lane 1").click()
    choose(page, "lane1-method", "Speculative: draft model")
    fill(page.locator("#lane1-gamma input[type=number]"), 7)
    press_run_and_wait(page, tokens=8)
    question = page.locator("[data-role=question]")
    expect(question).to_contain_text("Make JSON of this list")
    expect(question).to_contain_text("builtin · float32 · CPU")
    expect(question).to_contain_text("greedy · at most 8 tokens")
    page.locator("[data-lane='1'] [data-stat=acceptance_rate]").click()
    expect(page.get_by_role("tooltip")).to_have_text("Σ accepted / Σ drafted tokens")
    page.keyboard.press("Escape")
    expect(page.get_by_role("tooltip")).to_have_count(0)
    page.locator("#use-settings").focus()
    for _ in range(30):  # back over what lies between, to a figure
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.matches('[data-formula]')"):
            break
    expect(page.get_by_role("tooltip")).to_be_visible()
    changed = page.locator("[data-role=changed]")
    expect(changed).to_be_hidden()
    page.locator("#prompt textarea").fill("<b>Once</b> upon")
    fill(page.locator("#lane1-gamma input[type=number]"), 3)
    expect(changed).to_be_visible()
    press_run_and_wait(page)
    expect(changed).to_be_hidden()
    runs = page.locator("#history button")
    expect(runs).to_have_count(2)
    expect(runs.first).to_contain_text("<b>Once</b> upon")
    expect(runs.nth(1)).to_contain_text("Draft model · Prompt lookup")
    runs.nth(1).click()
    expect(page.locator("[data-role=prompt-text]")).to_contain_text("Make JSON")
    expect(runs.nth(1)).to_have_attribute("aria-current", "true")
    page.locator("#use-settings").click()
    expect(page.locator("#lane1-gamma input[type=number]")).to_have_value("7")
    expect(page.locator("#prompt textarea")).to_have_value(examples()[0].prompt)
    with page.expect_download() as download:
        page.locator("#save-json").click()
    name = download.value.suggested_filename
    assert name.startswith("specdemo-builtin-draft-model-vs-prompt-lookup-make-json-of-this-list")


def test_what_ran_is_remembered_by_the_browser(page: Page) -> None:
    """Guards a reload, which leaves summaries; their settings; two tabs; and storage that nobody can read."""
    page.locator("#prompt textarea").fill("<b>Once</b> upon")
    fill(page.locator("#lane2-gamma input[type=number]"), 3)
    press_run_and_wait(page, tokens=8)
    other = page.context.new_page()
    other.goto(page.url.partition("#")[0])
    earlier = other.locator("#history", has_text="Earlier in this browser").get_by_role("button", name="upon")
    expect(earlier).to_contain_text("<b>Once</b> upon")
    expect(other.locator("#history")).not_to_contain_text("Runs of this visit")
    press_run_and_wait(other, tokens=9)
    other.close()
    page.goto(page.url.partition("#")[0] + "?length=32")
    runs = page.locator("#history li button")
    expect(runs).to_have_count(2)
    expect(runs.first).to_contain_text("Make JSON")
    expect(runs.first).to_have_attribute("aria-current", "false")
    open_more(page)
    expect(page.locator("#max-tokens input[type=number]")).to_have_value("32")
    runs.nth(1).click()
    expect(page.locator("#prompt textarea")).to_have_value("<b>Once</b> upon")
    expect(page.locator("#lane2-gamma input[type=number]")).to_have_value("3")
    expect(page.locator("#max-tokens input[type=number]")).to_have_value("8")
    press_run_and_wait(page)
    page.get_by_role("button", name="Forget these").click()
    expect(runs).to_have_count(1)
    for stored in ("{", '[null, 1, {"lanes": 3, "link": "gamma=3"}]'):
        page.evaluate("text => localStorage.setItem('specdemo-runs-1', text)", stored)
        page.reload()
        wait_until_read(page)
        expect(page.locator("#history")).not_to_contain_text("Earlier")
    page.add_init_script(
        "for (const name of ['getItem', 'setItem'])"
        " Storage.prototype[name] = () => { throw new Error('refused'); };"
    )
    page.reload()
    press_run_and_wait(page)
    expect(runs).to_have_count(1)


def test_the_page_can_be_installed(page: Page) -> None:
    """Guards what browsers ask of an app: a name, a display of its own, and an icon that is there."""
    manifest = page.evaluate("fetch('manifest.json').then((answer) => answer.json())")
    assert "speculative decoding" in manifest["name"]
    assert manifest["display"] == "standalone"
    (icon,) = manifest["icons"]
    kind = page.evaluate("(src) => fetch(src).then((answer) => answer.headers.get('content-type'))", icon["src"])
    assert (icon["type"], kind) == ("image/svg+xml", "image/svg+xml")
    assert page.evaluate("window.gradio_config.pwa") is True


def test_a_run_goes_by_the_keyboard_alone(page: Page, brake: Event) -> None:
    """Guards the focus on the one of Run and Stop that is free, one stop a group of figures, and Play's name."""
    set_length(page, 48)
    page.locator("#run").focus()
    page.keyboard.press("Enter")
    wait_for_phase(page, "running")
    expect(page.locator("#stop")).to_be_focused()
    brake.set()
    expect(page.locator("#run")).to_be_focused()
    wait_for_phase(page, "done")
    found = []
    while not page.evaluate("document.activeElement.matches('[data-action=play]')"):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('[data-formula]')"):
            found.append(page.get_by_role("tooltip").inner_text())
    large = page.locator("#race [data-role=speedup]").inner_text()  # none where noise leaves the headline open
    assert len(found) == 2 + bool(large), "the speed-up, and one figure of each lane"
    page.locator("[data-lane='1'] [data-formula][tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("tooltip")).to_contain_text("seconds of this lane's own work")
    play = page.get_by_role("region", name="Replay").get_by_role("button").first
    expect(play).to_have_accessible_name("Play again")
    page.locator("[data-role=speed]").select_option("0.1")
    page.locator("#enter-talk").click()
    page.keyboard.press("b")  # no lane drafts trees
    expect(page.locator("#race [data-role=show-tree]")).not_to_be_checked()
    held = page.get_by_role("toolbar", name="Talk view").locator("[data-key=' ']")
    for name in ("Play again", "Pause", "Play"):
        expect(held).to_have_accessible_name(name)
        expect(play).to_have_accessible_name(name)
        page.keyboard.press(" ")


def test_axe_finds_nothing_serious(open_page: Callable[..., Page], brake: Event) -> None:
    """The idle, the running and the finished page, and the tabs that measure with their examples."""
    still = {"reduced_motion": "reduce"}  # what fades in is pale
    page = open_page("length=24&lane3.method=lookup&__theme=light", media=still)
    # A colour on its way from one theme to the other belongs to neither.
    page.add_style_tag(content="* { transition: none !important }")
    assert findings(page, dark=True) == [], "idle"
    page.locator("#run").click()
    wait_for_phase(page, "running")
    assert findings(page, part="#stage") == [], "running"
    brake.set()
    wait_for_phase(page, "done")
    expect(page.locator("#history button")).to_have_count(1)
    assert findings(page, dark=True, part="#stage") == [], "done"
    for tab, drawn in (
        ("Which setting?", "#sweep-speedup .js-plotly-plot"),
        ("Losslessness", ".losslessness .meters"),
    ):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(drawn)).to_be_visible()
        expect(page.locator(".example:visible")).to_have_count(1)
        assert findings(page, part="#stage") == [], tab
