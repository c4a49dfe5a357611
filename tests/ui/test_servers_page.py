"""Servers on the page, in a real browser: chosen as a pair or for a lane, raced, and failing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from apps import launched
from browsing import choose, download, press_run_and_wait, set_length
from fake_vllm import CRASHED, FakeVLLM
from playwright.sync_api import Page, expect

import specdemo
from specdemo import Recording, Settings
from specdemo.servers.catalog import FILE

pytest_plugins = ["browser_fixtures"]

TOKENS = 32


@pytest.fixture(scope="module")
def deployments() -> Iterator[dict[str, FakeVLLM]]:
    """A good pair of deployments, and one whose fault tests choose."""
    pair = specdemo.load_pair("builtin")
    drafts = Settings(gamma=4)
    with (
        FakeVLLM(pair, model="big") as base,
        FakeVLLM(pair, drafts, model="big") as spec,
        FakeVLLM(pair, drafts, model="big", fault_after=2) as frail,
    ):
        yield {"base": base, "spec": spec, "frail": frail}


@pytest.fixture(scope="module")
def address(deployments: dict[str, FakeVLLM], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app with two configured servers; in place of the plain one that other tests share."""
    file = tmp_path_factory.mktemp("servers") / "servers.toml"
    urls = {name: fake.url for name, fake in deployments.items()}
    file.write_text(
        f'[[server]]\nid = "big"\nlabel = "Big one"\nmodel = "big"\nbaseline_url = "{urls["base"]}"\n'
        f'speculative_url = "{urls["spec"]}"\nnote = "Two deployments."\nown_hardware = true\n'
        f'[[server]]\nid = "frail"\nlabel = "Frail"\nmodel = "big"\nspeculative_url = "{urls["frail"]}"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FILE, str(file))
        with launched() as url:
            yield url


def lane(page: Page, number: int):
    return page.locator(f'[data-lane="{number}"]')


def kinds(page: Page, number: int) -> list[str]:
    classes = lane(page, number).locator(".t").evaluate_all("all => all.map((e) => e.className)")
    return [re.search(r"t-(\w+)", name)[1] for name in classes]


def test_two_deployments_race_and_get_their_colours_at_the_end(
    page: Page, deployments: dict[str, FakeVLLM]
) -> None:
    """The rounds on the screen are those that the deployment's own core had; nothing is loaded for them."""
    choose(page, "pair", "Big one · server")
    card = page.locator("#pair-card")
    expect(card).to_contain_text("Big one answers.")
    expect(page.locator("#precision")).to_be_hidden()
    expect(page.locator("#lane2-gamma")).to_be_hidden()
    set_length(page, TOKENS)
    page.locator("#prompt textarea").fill("A cat sat. A dog sat.")  # no task of the pair: much is rejected
    deployments["spec"].going_on.clear()
    page.locator("#run").click()
    expect(lane(page, 1).locator(".t-streamed").first).to_be_visible()
    expect(page.locator('[data-kind="streamed"]')).to_be_visible()
    expect(lane(page, 1).locator('[data-stat="tau"]')).to_have_text("–")
    deployments["spec"].going_on.set()
    expect(page.locator(".specdemo-race")).to_have_attribute("data-phase", "done")
    own = deployments["spec"].traces[0]
    assert kinds(page, 1) == [t.kind for t in own.tokens]
    assert set(kinds(page, 0)) == {"target"}
    expect(page.locator('[data-kind="streamed"]')).to_be_hidden()
    expect(lane(page, 1).locator('[data-role="served"]')).to_contain_text("rounds from the server's own record")
    expect(lane(page, 1).locator('[data-role="served"]')).to_contain_text("client’s clock, network ~")
    figures = own.metrics()
    divides = f"{figures.emitted} / {figures.rounds} = {figures.mean_acceptance_length:.2f}"
    expect(lane(page, 1).locator('[data-stat="tau"]')).to_have_text(divides)
    expect(lane(page, 1).locator("header")).to_contain_text("γ 4")
    expect(page.locator("[data-role=verdict]")).to_contain_text("Identical to plain")
    check_blocks(page)
    check_recording(page)


def check_blocks(page: Page) -> None:
    """Rejected tokens without a name can be counted, explained and hidden, and are never copied."""
    blocks = lane(page, 1).locator(".t-rejected .block")
    assert blocks.count() == kinds(page, 1).count("rejected") > 0
    blocks.last.scroll_into_view_if_needed()
    blocks.last.hover()
    expect(page.locator("[data-role=tip]")).to_contain_text("does not say which they were")
    page.locator('[data-role="show-rejected"]').uncheck()
    expect(blocks.last).to_be_hidden()
    page.locator('[data-role="show-rejected"]').check()
    expect(page.locator('[data-role="timeline"]')).to_be_hidden()  # where its time went only the server knows


def check_recording(page: Page) -> None:
    """What is saved is what was shown, and plays again."""
    saved = download(page, "#save-json")
    recording = Recording.from_json(saved)
    assert recording.traces[1].server.level == "detailed"
    assert [t.kind for t in recording.traces[1].tokens] == kinds(page, 1)
    file = {"name": "race.json", "mimeType": "application/json", "buffer": saved}
    page.locator("#open-recording input[type=file]").set_input_files(file)
    expect(page.locator("[data-role=recorded]")).to_contain_text("server Big one")
    expect(page.locator(".specdemo-race")).to_have_attribute("data-phase", "done")
    assert kinds(page, 1) == [t.kind for t in recording.traces[1].tokens]


def test_a_server_races_a_lane_here(page: Page) -> None:
    """Server's ways stand beside those of a pair; each lane says where it ran."""
    set_length(page, TOKENS)
    page.locator("#add-lane").click()
    page.get_by_role("tab", name="Lane 1").click()
    choose(page, "lane1-method", "Big one: plain")
    press_run_and_wait(page)
    expect(lane(page, 0).locator("h3")).to_have_text("Big one: plain")
    expect(lane(page, 0).locator('[data-role="served"]')).to_be_visible()
    expect(lane(page, 1).locator('[data-role="served"]')).to_have_count(0)
    assert set(kinds(page, 0)) == {"target"}
    assert {"accepted", "corrected"} & set(kinds(page, 1))
    assert lane(page, 0).locator('[data-stat="tokens"]').inner_text() == str(TOKENS)
    expect(page.locator('[data-role="timeline"]')).to_be_visible()
    assert "lane1.method=server%3Abig%3Aplain" in page.url


def test_a_failing_server_gives_its_sentence_and_run_works_again(
    page: Page, address: str, deployments: dict[str, FakeVLLM]
) -> None:
    """Refused at once, broken off in the middle, stopped in a hang, gone (its card says so), well again."""
    frail = deployments["frail"]
    frail.fault = "429"
    page.goto(f"{address}?pair=server%3Afrail&length={TOKENS}")
    expect(page.locator("#pair-card")).to_contain_text("Frail answers.")
    press_run_and_wait(page, "error")
    expect(page.locator("[data-role=message]")).to_contain_text("'Frail' has too many requests (HTTP 429)")
    frail.fault = "cut"
    press_run_and_wait(page, "stopped")
    expect(page.locator("[data-role=message]")).to_contain_text("its lane says why")
    expect(lane(page, 0).locator(".race-note")).to_contain_text("Incomplete: 'Frail' broke off its answer")
    assert len(kinds(page, 0)) > 1
    frail.fault = "hang"
    page.locator("#run").click()
    expect(lane(page, 0).locator(".t-streamed").first).to_be_visible()
    page.locator("#stop").click()
    expect(page.locator(".specdemo-race")).to_have_attribute("data-phase", "stopped", timeout=5000)
    frail.fault = CRASHED
    press_run_and_wait(page, "error")
    expect(page.locator("[data-role=message]")).to_contain_text("'Frail'")
    expect(page.locator("#pair-card [data-state=problem]")).to_contain_text("Frail does not answer.")
    frail.fault = None
    press_run_and_wait(page)
    expect(page.locator("#pair-card [data-state=ready]")).to_contain_text("Frail answers.")
    expect(page.locator("[data-role=message]")).to_be_hidden()
    assert "accepted" in kinds(page, 0)


def test_both_deployments_are_checked_for_the_same_output(page: Page, address: str) -> None:
    """The Losslessness tab, when the pair is a server: greedy outputs, then sampled ones."""
    own = "losslessness.prompts=own&losslessness.own=Once+upon+a+time&losslessness.mode=greedy&length=8"
    page.goto(f"{address}?pair=server%3Abig&tab=losslessness&{own}")
    expect(page.locator(".losslessness-intro")).to_contain_text("Both deployments write every prompt")
    expect(page.locator("#losslessness-rule")).to_be_hidden()
    expect(page.locator("#losslessness-plan")).to_contain_text("4 runs of at most 8 tokens, 2 of them plain")
    page.locator("#losslessness-start").click()
    view = page.locator("#losslessness-view")
    expect(view.locator("[data-verdict=identical]")).to_be_visible()
    expect(view.locator("tbody tr")).to_have_count(1)
    expect(view).to_contain_text("Both wrote the same 8 tokens of 1 prompt")
    view.get_by_text("To reproduce it").click()
    expect(view.locator("pre")).to_contain_text('curl -sS "$BASELINE/v1/')
    assert json.loads(download(page, "#losslessness-save"))["outcome"] == "identical"
    page.locator("#losslessness-mode").get_by_text("sampled").click()
    page.locator("#losslessness-start").click()
    expect(view).to_contain_text("'Big one' gives no log-probabilities, without which")


def test_what_needs_the_models_says_so_and_a_sweep_measures_the_server(page: Page, address: str) -> None:
    """No γ to choose and none to draw; users in place of rows; a check needs both deployments."""
    page.goto(f"{address}?pair=server%3Abig&sweep.tokens=8&sweep.repeats=1&tab=sweep")
    expect(page.locator("#sweep-drafts")).to_contain_text("Measures Big one as it was started")
    expect(page.locator("#sweep-from")).to_be_hidden()
    expect(page.locator("#sweep .measuring-lead").first).to_contain_text("this server's speculation")
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-headline")).to_contain_text("the speed of its baseline")
    expect(page.locator("#sweep-table tbody tr")).to_have_count(1)
    expect(page.locator("#sweep-speedup")).to_be_hidden()
    page.goto(f"{address}?pair=server%3Abig&length=8&batch.rows=2&batch.repeats=1&tab=batch")
    expect(page.locator("#batch-drafts")).to_contain_text("16 requests by 1, 2 users of at most 8 tokens")
    page.locator("#batch-run").click()
    expect(page.locator("#batch-status")).to_contain_text("Big one is a server, and this needs the models here")
    expect(page.locator("#batch-measure")).to_be_enabled()
    page.locator("#batch-measure").click()
    expect(page.locator("#load-headline")).to_contain_text("All 16 answers are those that one user got")
    expect(page.locator("#load-table tbody tr")).to_have_count(4)
    expect(page.locator("#load-ttft .legendtext")).to_have_text(["plain", "speculative"])
    expect(page.locator("#batch-sizes")).to_be_hidden()
    choose(page, "pair", "builtin: target 17M, draft")
    page.get_by_role("tab", name="Losslessness").click()
    expect(page.locator("#losslessness-plan")).to_contain_text("runs of at most")
    page.locator("#losslessness-start").click()
    choose(page, "pair", "Frail · server")  # one deployment gives one lane
    page.locator("#stop").click()
    expect(page.locator("#stop")).to_be_disabled()
    page.locator("#losslessness-start").click()
    expect(page.locator("#losslessness-view")).to_contain_text("has no baseline_url")
    expect(page.locator("#lane2-method input")).to_have_value("None")
    choose(page, "pair", "builtin: target 17M, draft")
    expect(page.locator("#lane2-method input")).to_have_value("Speculative: draft model")
