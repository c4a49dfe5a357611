"""Servers in the panel, in links and in the values that the page receives, without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_vllm import FakeVLLM
from link_states import query_of, read
from panels import panel
from toys import endless_pair, prompt_ids

from specdemo import PairError, ServerPair, Settings, SpecDemoError, Trace, race
from specdemo.servers.catalog import FILE, ServerEntry, offered, servers
from specdemo.servers.probe import Health
from specdemo.ui.links import from_query
from specdemo.ui.panel.pair_card import server_card
from specdemo.ui.state.methods import FIRST_LANES, NO_LANE, method_choices, methods_on, wish_of
from specdemo.ui.state.request import pair_request
from specdemo.ui.state.state import METHOD_PARAMETERS
from specdemo.ui.tabs.sweep import setting_job
from specdemo.view.lane_headers import trace_headers
from specdemo.view.race_value import RaceView

TWO = """
[[server]]
id = "big"
label = "Big one"
baseline_url = "http://a:8000"
speculative_url = "http://b:8000"
model = "m"
chat = true

[[server]]
id = "lone-wolf"
speculative_url = "http://c:8000"
model = "n"
"""
HIDDEN = {"gamma": None, "tree_nodes": "?", "acceptance": "?", "accept_top_k": None}
"""Options of a lane on a server, which so cannot be wrong."""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "servers.toml"
    path.write_text(TWO)
    monkeypatch.setenv(FILE, str(path))
    return path


def lanes(*methods: str, **shared: object) -> list[Settings]:
    """Of a panel with a server in the pair's place."""
    chosen = ({"method": name, **HIDDEN} for name in methods)
    return [lane.settings for lane in panel(*chosen, pair="server:big", **shared).lanes]


def names(**options: object) -> list[str]:
    return [name for _, name in method_choices(parts={"draft"}, quantized=False, **options)]


def test_a_pair_offers_servers_beside_its_own_ways_and_a_server_only_servers(two: Path) -> None:
    """With short words for the chosen one, which come first."""
    served = ["server:big:plain", "server:big:speculative", "server:lone-wolf:speculative"]
    assert names(optional=False)[-3:] == served
    assert names(optional=True, server="big") == [NO_LANE, *served]
    labels = dict(method_choices(parts={"draft"}, quantized=False, optional=False, server="lone-wolf"))
    assert list(labels) == ["Speculative", "Big one: plain", "Big one: speculative"]


def test_a_servers_lane_is_settings_that_servers_follow(two: Path) -> None:
    """γ, rule and engine of the panel say nothing there; the temperature does."""
    (greedy,) = lanes("server:lone-wolf:speculative")
    assert greedy == Settings(engine="server", server="lone-wolf", chat=True, max_new_tokens=64)
    methods = ("server:big:speculative", "server:big:plain")
    warm, plain = lanes(*methods, temperature=0.8, engine="graphs")
    assert (warm.acceptance, warm.engine, warm.temperature) == ("sampling", "server", 0.8)
    assert (plain.strategy, plain.server) == ("autoregressive", "big")
    with pytest.raises(SpecDemoError, match="Lane 1, method: 'server:big:magic' is not known"):
        lanes("server:big:magic")


def test_lanes_take_the_servers_ways_by_what_they_were_wished_to_do(two: Path) -> None:
    """One lane where there is one deployment; and a wish is of lanes in general, whichever the pair."""
    assert methods_on("big", FIRST_LANES) == ["server:big:plain", "server:big:speculative", NO_LANE, NO_LANE]
    assert methods_on("big", ["lookup", "plain_unquantized"]) == ["server:big:speculative", "server:big:plain"]
    assert methods_on("lone-wolf", FIRST_LANES) == ["server:lone-wolf:speculative", NO_LANE, NO_LANE, NO_LANE]
    assert wish_of("server:big:plain", "big") == "plain"
    assert wish_of("server:big:speculative", "big") == FIRST_LANES[1]
    assert wish_of("server:big:plain", None) == "server:big:plain", "beside models it is wished as it is"


@pytest.mark.parametrize(
    "query",
    [
        {"pair": "server:big"},
        {"pair": "server:big", "method": "server:lone-wolf:speculative", "lane4.method": "server:big:plain"},
        {"lane3.method": "server:big:speculative", "pair": "gpt2"},
    ],
)
def test_links_hold_servers(two: Path, query: dict[str, str]) -> None:
    """A link of all that was read gives the same page."""
    values, notices = from_query(query)
    assert notices == []
    assert all(values[name.removeprefix("lane2.")] == text for name, text in query.items())
    assert read(query_of(values)) == (values, [])


def test_a_link_to_an_unknown_server_gives_a_notice(two: Path) -> None:
    """Also a way that a server lacks, and a pair's way where a server stands for the pair."""
    for query in ({"pair": "server:x"}, {"method": "server:lone-wolf:plain"}):
        _, (notice,) = from_query(query)
        assert "is ignored; choose one of" in notice
    values, (notice,) = from_query({"pair": "server:big", "method": "draft"})
    assert "method: “draft” is ignored" in notice
    assert [values[name] for name in METHOD_PARAMETERS] == methods_on("big", FIRST_LANES)


def test_measurements_take_the_lane_that_drafts_where_the_pair_is(two: Path) -> None:
    """A sweep of a server has no γ; a local pair's is not mistaken for one because a lane races a server."""
    served = {"method": "server:big:speculative", **HIDDEN}
    both = (served, {"method": "draft", "gamma": 3})
    there = panel(*both, pair="server:big")
    assert there.drafting_lane().settings.server == "big"
    assert panel(*both).drafting_lane().settings.gamma == 3
    assert setting_job(there).gammas == ()
    with pytest.raises(SpecDemoError, match="no lane drafts"):
        panel(served).drafting_lane()
    with pytest.raises(PairError, match="Big one is a server, and this needs the models here"):
        pair_request(there.state)


def test_a_file_that_breaks_later_takes_no_page_down(two: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Guards a running app against an edit: it offers no servers, and its log says why."""
    two.write_text("[[server")
    assert offered() == {}
    assert "servers.toml is no TOML file" in caplog.text


def raced(**options: object) -> tuple[list[Trace], RaceView]:
    """Two deployments raced to the end, and the view of it once they reported."""
    pair = endless_pair("llama")
    lanes = [Settings(strategy="autoregressive", max_new_tokens=24), Settings(max_new_tokens=24)]
    with FakeVLLM(pair) as base, FakeVLLM(pair, Settings(gamma=4), **options) as spec:
        running = race(ServerPair(base.url, spec.url, "toy", name="Toy", own_hardware=True), prompt_ids(5), lanes)
        rounds = list(running)
        traces = running.traces()
    view = RaceView(trace_headers(traces))
    view.add(rounds)
    before = view.value()
    view.take_reported(traces)
    view.conclude(traces)
    assert view.value()["replaces"] == before["run"] != view.value()["run"], "so that the browser draws it anew"
    assert before["lanes"][1]["detail"] == "Toy", "what was sent is not changed afterwards"
    return traces, view


def test_lanes_of_servers_are_called_by_what_tells_them_apart() -> None:
    traces, view = raced()
    assert [lane["detail"] for lane in view.value()["lanes"]] == ["Toy", "Toy, γ\u00a04"]
    here = Trace(Settings(strategy="autoregressive"), (1,), traces[0].rounds)
    assert [h["title"] for h in trace_headers(traces)] == ["Plain", "Speculative"]
    assert [h["title"] for h in trace_headers([here, traces[1]])] == ["Plain", "Toy: speculative"]


@pytest.mark.parametrize(
    ("options", "said", "known"),
    [
        ({"level": "summary"}, "totals from the server's own record", True),
        ({"level": "none"}, "speed only", False),
    ],
)
def test_a_lane_shows_its_level(options: dict, said: str, known: bool) -> None:
    """What is not known is empty in its head too, not guessed from the chunks."""
    _, view = raced(**options)
    assert view.lanes[1]["server"]["line"].endswith(said)
    told = view.lanes[1]["reported"]
    assert (told["acceptance_rate"] is not None) is known
    assert told["tokens_per_second"] > 0


def test_the_card_shows_what_a_server_is_and_never_its_address(two: Path) -> None:
    """Its model, its deployments and whether they answer; names are text."""
    entry = servers()["big"]
    asking = server_card(entry, None)
    assert 'data-state="working"' in asking
    assert "http://" not in asking
    good, bad = Health(True, "answers in 3 ms"), Health(False, "cannot be reached")
    assert "Big one answers." in server_card(entry, {"autoregressive": good, "speculative": good})
    assert "Big one answers in part." in server_card(entry, {"autoregressive": good, "speculative": bad})
    odd = ServerEntry("x", "<b>x</b>", ServerPair(None, "http://c", "<i>m"), "<u>")
    html = server_card(odd, {"speculative": bad})
    assert not re.search("<[biu]>", html)
    assert "no deployment" in html
