"""Links without a browser: every state of the page comes back from its link, and no link can break the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gradio as gr
import pytest
from checkpoints import checkpoint
from hub import Hub
from hypothesis import given, settings
from hypothesis import strategies as st
from link_states import query_of as whole_query_of
from link_states import read, texts

from specdemo.models.request import catalog
from specdemo.runs.store import PairStore
from specdemo.ui.links import ON_A_SERVER, from_query, query_of, start_flags
from specdemo.ui.page import build
from specdemo.ui.state.state import CUSTOM, PairChoice, parameter_of, parameters
from specdemo.ui.tabs.recordings_panel import shipped

CONTROLS = (gr.Dropdown, gr.Slider, gr.Number, gr.Textbox, gr.Checkbox, gr.CheckboxGroup, gr.Radio)


LANES = ("plain", "draft", "none", "none")


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.one_of(st.sampled_from([f.name for f in parameters()]), texts),
        st.one_of(texts, st.from_regex(r"-?\d+")),
    )
)
def test_no_link_gives_anything_but_a_state_of_the_page(query: dict[str, str]) -> None:
    """Guards the page against strangers' links: values are always ones that its own link gives again."""
    values, notices = from_query(query)
    assert read(whole_query_of(values)) == (values, [])
    assert all(notice.strip() for notice in notices)
    for name in ("prompt", "sweep.own"):
        assert name not in query or values[name] == query[name], "a good value beside a bad one is taken"


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return build()


def test_every_control_of_the_page_is_in_the_table(page: gr.Blocks) -> None:
    """Guards links against the control that is added next."""
    controls = {c.elem_id for c in page.blocks.values() if isinstance(c, CONTROLS)}
    assert {field.element for field in parameters() if field.element} == controls


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        ("gamma=4", "gamma", 4),
        ("lane2.gamma=4", "gamma", 4),
        ("lane3.method=lookup", "lane3.method", "lookup"),
        ("prompt=two+words%2C%20three", "prompt", "two words, three"),
        ("temperature=0.8", "acceptance", "sampling"),
        ("temperature=0.8&lane4.acceptance=naive", "lane4.acceptance", "naive"),
        ("pair=builtin-target", "method", "lookup"),
        ("pair=gpt2", "chat", False),
        ("pair=qwen3-float8&target-weights=none", "target-weights", "none"),
        ("target=org/model", "pair", CUSTOM),
        ("target=org/model&draft=org/small", "method", "draft"),
        ("losslessness.mode=greedy", "losslessness.rule", "exact"),
        ("chat=off", "chat", False),
        ("sweep.domains=", "sweep.domains", []),
    ],
)
def test_short_links_mean_what_a_person_would_get_by_hand(query: str, name: str, value: Any) -> None:
    """Guards links that are typed in: what goes with a pair or a temperature comes by itself."""
    values, notices = read(query)
    assert (values[name], notices) == (value, [])


@pytest.mark.parametrize(
    ("query", "notice"),
    [
        ("gamma=99", "gamma: “99” is ignored; it must be a whole number from 1 to 16."),
        ("temperature=hot", "temperature: “hot” is ignored; it must be a number from 0 to 2."),
        ("seed=-1", "it must be a whole number of at least 0."),
        ("pair=builtin-target&method=draft", "method: “draft” is ignored; choose one of none, plain, lookup"),
        ("losslessness.rule=exact", "choose one of sampling"),
        ("device=cuda:99", "choose one of best, cpu"),
        ("tree-nodes=auto", "tree-nodes: “auto” is ignored; choose one of 0, 2, 3"),
        ("gama=3", "“gama” is no parameter of this page; did you mean gamma?"),
        ("gamma=3&lane2.gamma=4", "lane2.gamma is ignored; the link has gamma too"),
        *(
            (f"target={quote(path)}", "a link may not make this machine ask another one")
            for path in (r"\\evil\share", "//evil", r" \/evil/s", r"\??\UNC\evil\s", r"assets:\/evil/s")
        ),
        ("recording=9", "it must be a whole number from 0 to 3."),
        ("recording=1&autorun=1", "the link opens a recording, which plays by itself."),
        ("tab=start", "choose one of race, sweep, batch, losslessness."),
    ],
)
def test_what_cannot_be_used_is_said_and_left(query: str, notice: str) -> None:
    _, notices = read(query)
    assert len(notices) == 1
    assert notice in notices[0]


def test_what_belongs_to_others_is_not_mentioned() -> None:
    """Guards visitors of a Space, which adds parameters of its own."""
    values, notices = read("__theme=dark&__sign=abc&logs=build&utm_source=x&sweep.c=0.2&sweep.v=1.5")
    assert (values, notices) == (from_query({})[0], [])


def test_many_bad_parameters_are_summed_up() -> None:
    _, notices = from_query({f"x{i}": "1" for i in range(50)})
    assert len(notices) == 6
    assert notices[-1] == "45 more parameters are ignored."


def test_strangers_choose_from_the_catalogue_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public mode: a link names no other models."""
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")
    values, notices = read("pair=custom&target=org/model&draft=org/small&gamma=3")
    shown = [values[name] for name in ("pair", "target", "draft", "gamma")]
    assert shown == [next(iter(catalog())), "", "", 3]
    assert len(notices) == 3
    assert "this public page runs the pairs of its catalogue only" in notices[0]


def test_what_a_link_cannot_have_does_not_start_as_something_else() -> None:
    """Guards autorun: the usual pair ran where the link named a server that is not configured."""
    values, notices = read("pair=server:nope&autorun=1")
    assert (values["pair"], values["autorun"]) == ("builtin", False)
    assert [notice.split(" ")[0] for notice in notices] == ["pair:", "autorun"]
    assert read("utm_source=x&gama=3&autorun=1")[0]["autorun"]


def test_a_link_that_starts_at_once_fetches_nothing_to_ones_own_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards whoever follows a link: only what is here starts by itself; on a public page all but servers does."""
    flags = {"page": {"autorun": True}, "notices": ["before"], "start": False}
    with Hub() as hub:
        hub.add("org/big", checkpoint(tmp_path / "big", "qwen3", layers=1))
        hub.adopt(monkeypatch, tmp_path / "cache")
        store = PairStore()
        assert start_flags(flags, PairChoice(pair="builtin"), LANES, store) == {**flags, "start": True}
        far = start_flags(flags, PairChoice(pair=CUSTOM, target="org/big"), LANES, store)
        assert not far["start"]
        assert far["notices"][0] == "before"
        assert "must be downloaded; press Run." in far["notices"][1]
        nowhere = start_flags(flags, PairChoice(pair=CUSTOM, target="org/nowhere"), LANES, store)
        assert "org/nowhere" in nowhere["notices"][1]
        monkeypatch.setenv("SPECDEMO_PUBLIC", "1")
        assert start_flags(flags, PairChoice(pair="gpt2"), LANES, store)["start"]
        for pair, lanes in (("server:llama", LANES), ("builtin", ("plain", "server:llama:plain"))):
            paid = start_flags(flags, PairChoice(pair=pair), lanes, store)
            assert (paid["start"], paid["notices"][1:]) == (False, [ON_A_SERVER])


def test_a_tabs_former_length_and_gamma_are_read_where_the_link_opens_it() -> None:
    """Guards links from when tabs had their own; elsewhere they are named, since they did not mean the race."""
    values, notices = from_query({"tab": "sweep", "sweep.tokens": "32", "length": "200"})
    assert (values["length"], notices) == (32, [])
    values, notices = from_query({"tab": "losslessness", "losslessness.gamma": "9", "lane2.gamma": "3"})
    assert (values["gamma"], notices) == (9, [])
    values, notices = from_query({"batch.tokens": "16", "length": "200"})
    assert (values["length"], notices) == (200, ["batch.tokens is ignored; all tabs share length."])


def test_the_settings_of_a_recording_are_a_link_that_can_be_read() -> None:
    """Guards Use these settings: what the shipped recordings ran with comes back, lane by lane."""
    for recording in shipped():
        values, notices = from_query(query_of(recording))
        assert notices == []
        assert values["prompt"] == recording.prompt
        for number, trace in enumerate(recording.traces, start=1):
            settings = trace.settings
            found = {
                name: values[parameter_of(f"lane{number}", name)] for name in ("method", "gamma", "acceptance")
            }
            assert (found["gamma"], found["acceptance"]) == (settings.gamma, settings.acceptance)
            assert (found["method"] == "plain") == (settings.strategy == "autoregressive")
            assert (values["length"], values["temperature"]) == (settings.max_new_tokens, settings.temperature)
        assert values[parameter_of(f"lane{len(recording.traces) + 1}", "method")] == "none"


def test_a_recording_without_its_prompt_leaves_the_panels_prompt() -> None:
    """It may have been given as ids; an emptied prompt could not be run."""
    recording = shipped()[0]
    assert query_of(recording)["prompt"] == recording.prompt
    assert query_of(replace(recording, prompt=None)).keys() == query_of(recording).keys() - {"prompt"}
