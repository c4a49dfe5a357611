"""From the panel's values to the lanes' settings."""

from __future__ import annotations

from typing import Any

import gradio as gr
import pytest
from panels import panel

from specdemo import Settings, SpecDemoError
from specdemo.drafters import GGUF, PARTS, all_with
from specdemo.settings import ACCEPTANCE_RULES, STRATEGIES
from specdemo.trace import Trace
from specdemo.ui.state.methods import NO_LANE, UNQUANTIZED, local_methods, method_choices
from specdemo.ui.state.request import OPTIONS
from specdemo.ui.state.state import in_page_words
from specdemo.ui.tabs.batch import batch_job, sizes_job
from specdemo.ui.tabs.losslessness import check_job
from specdemo.ui.tabs.sweep import USED, setting_job, used
from specdemo.view.lane_headers import engine_note, lane_headers


def lanes(*chosen: str | dict[str, Any], **shared: Any) -> list[Settings]:
    return [lane.settings for lane in panel(*chosen, **shared).lanes]


def test_every_way_to_decode_and_every_rule_can_be_chosen() -> None:
    """Guards the panel against a strategy, drafter or rule that only the library knows."""
    names = list(local_methods())
    made = [lane for begin in range(0, len(names), 4) for lane in lanes(*names[begin : begin + 4])]
    assert {s.strategy for s in made} == set(STRATEGIES)
    names = {info.name for parts in (PARTS, {*PARTS, GGUF}) for info in all_with(parts)}
    assert {"suffix,model", "suffix,eagle3", "prompt_lookup,model"} < names
    assert {s.drafter for s in made if s.strategy == "speculative"} == names - {"prompt_lookup,mtp"}
    for rule, label in ACCEPTANCE_RULES.items():
        temperature = 0.0 if rule == "exact" else 1.0
        lossless = Settings(acceptance=rule, temperature=temperature).lossless
        assert label.endswith("lossless" if lossless else "lossy")


def test_each_lane_has_its_own_options() -> None:
    """Guards what a lane's fields are called."""
    made = lanes(
        "plain",
        {"method": "draft", "gamma": 7, "adaptive_gamma": True, "acceptance": "top_k", "accept_top_k": 5},
        {"method": "lookup", "gamma": 9, "lookup_ngram": 2},
        {"method": "early_exit", "gamma": 2, "tree_nodes": "12", "exit_layer": 12},
    )
    row = {"method": "suffix,draft", "p_min": 0.4, "earlier_outputs": False, "lookup_ngram": 99}
    assert made == [
        Settings(strategy="autoregressive", max_new_tokens=64),
        Settings(gamma=7, adaptive_gamma=True, acceptance="top_k", accept_top_k=5, max_new_tokens=64),
        Settings(drafter="prompt_lookup", gamma=9, lookup_ngram=2, max_new_tokens=64),
        Settings(drafter="early_exit", gamma=2, tree_nodes=12, exit_layer=12, max_new_tokens=64),
    ]
    assert lanes(row) == [
        Settings(drafter="suffix,model", gamma=4, p_min=0.4, earlier_outputs=False, max_new_tokens=64)
    ]


@pytest.mark.parametrize("method", ["draft", "early_exit", "lookup"])
def test_what_was_measured_is_used_with_all_of_its_settings(method: str) -> None:
    """Guards a best γ of chains, sampled, against a panel that meanwhile has trees and another temperature."""
    lane = {"method": method, "gamma": 3, "acceptance": "sampling", "lookup_ngram": 2, "exit_layer": 4}
    (measured,) = lanes(lane, temperature=0.8, top_k=20, top_p=0.9, chat=False, engine="eager")
    button, *updates = used(measured, "plain", method)
    assert button["value"] == "Lane 2 now drafts γ = 3"
    shared = dict(zip(USED, updates, strict=False))
    options = dict(zip(OPTIONS, updates[len(USED) + 2 + len(OPTIONS) :], strict=True))
    assert lanes({"method": method, **options}, **shared) == [measured]


@pytest.mark.parametrize(
    ("methods", "lane"),
    [
        (("plain", "lookup", "none"), 2),
        (("plain", "none", "draft"), 3),
        (("plain", "none"), 2),
    ],
)
def test_what_no_lane_drafts_takes_one_over(methods: tuple[str, ...], lane: int) -> None:
    """Guards advice for another drafter than the panel has; plain lanes stay."""
    button, *updates = used(Settings(adaptive_gamma=True), *methods)
    assert button["value"] == f"Lane {lane} now adapts γ"
    chosen = updates[len(USED) : len(USED) + len(methods)]
    assert [name for name in chosen if name != gr.skip()] == ["draft"]
    assert chosen[lane - 1] == "draft"


def test_what_a_tab_measures_of_a_lane_with_a_tree_is_its_chain() -> None:
    """Guards a tab that promises what its job then refuses: no measurement drafts trees of a given size."""
    request = panel({"method": "draft", "gamma": 3, "tree_nodes": "12"})
    jobs = [setting_job(request).lane, batch_job(request).lane, sizes_job(request).lane, check_job(request)]
    assert {(job.settings.gamma, job.settings.tree_nodes) for job in jobs} == {(3, 0)}
    assert request.lanes[0].settings.tree_nodes == 12, "the race keeps it"


def test_an_option_that_is_not_shown_cannot_be_wrong() -> None:
    """Guards hidden fields: a plain lane does not care for an empty γ, a lane that is off for anything."""
    wrong = dict.fromkeys(OPTIONS, None) | {"tree_nodes": "?"}
    made = lanes({**wrong, "method": "plain"}, {**wrong, "method": NO_LANE, "acceptance": "?"})
    assert made == [Settings(strategy="autoregressive", max_new_tokens=64)]


@pytest.mark.parametrize(
    ("lane", "message"),
    [
        ({"method": "draft", "gamma": None}, "Lane 2, gamma: is empty"),
        ({"method": "lookup", "lookup_ngram": 99}, "Lane 2, lookup_ngram: must be a whole number from 1 to 8"),
        ({"method": "magic"}, "Lane 2, method: 'magic' is not known"),
    ],
)
def test_a_bad_option_names_its_lane(lane: dict[str, Any], message: str) -> None:
    """Guards the message: with four lanes a person must know where to look."""
    with pytest.raises(SpecDemoError, match=message):
        lanes("plain", lane)
    with pytest.raises(SpecDemoError, match=r"^max_new_tokens: is empty"):
        lanes("plain", max_new_tokens=None)  # of all lanes, so none is named


def test_lanes_of_one_name_are_told_apart() -> None:
    """Guards the chart's legend and the verdict, which call lanes by title."""
    two = [Settings(gamma=2), Settings(strategy="autoregressive"), Settings(gamma=8, adaptive_gamma=True)]
    assert [h["title"] for h in lane_headers(two)] == ["Draft model γ 2", "Plain", "Draft model adaptive γ"]
    assert lane_headers(two)[2]["detail"] == "adaptive γ, exact"
    exits = [Settings(drafter="early_exit", exit_layer=layers) for layers in (None, 10, 10)]
    assert [h["title"] for h in lane_headers(exits)][1:] == [
        "Early exit 2",
        "Early exit 3",
    ]  # alike


@pytest.mark.parametrize(
    ("pair", "offered"),
    [
        (
            ({"draft"}, False),
            ["plain", "draft", "lookup", "suffix", "early_exit", "suffix,draft", "assisted", "assisted_lookup"],
        ),
        ((set(), False), ["plain", "lookup", "suffix", "early_exit", "assisted_lookup"]),
        (
            ({"draft"}, True),
            [
                "plain",
                UNQUANTIZED,
                "draft",
                "lookup",
                "suffix",
                "early_exit",
                "suffix,draft",
                "assisted",
                "assisted_lookup",
            ],
        ),
    ],
)
def test_a_pair_offers_what_it_can_do(pair: tuple[set[str], bool], offered: list[str]) -> None:
    """Guards the list against a choice that can only end in a refusal, and links against another name."""
    parts, quantized = pair
    for optional in (False, True):
        choices = method_choices(parts=parts, quantized=quantized, optional=optional)
        assert [name for _, name in choices] == [NO_LANE] * optional + offered


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Lane 2, gamma: must be 1.", "Lane 2, γ: must be 1."),
        ("lanes: no lane drafts.", "No lane drafts."),
        ("budget: is empty.", "Budget: is empty."),
        ("gpt2: its config.json is wrong.", "gpt2: its config.json is wrong."),
        ("distilgpt2 has no tokenizer files.", "distilgpt2 has no tokenizer files."),
    ],
)
def test_messages_name_fields_as_the_page_does_and_models_as_they_are_written(message: str, said: str) -> None:
    assert in_page_words(message) == said


def test_the_engine_is_of_all_lanes_and_is_told_where_it_was_chosen() -> None:
    """Guards a lane that runs by another engine than its panel says: the page must say so."""
    made = lanes("plain", "draft", engine="graphs", max_new_tokens=8)
    assert [s.engine for s in made] == ["graphs", "graphs"]
    chosen, fell = Trace(made[0], (1,), (), engine="graphs"), Trace(made[1], (1,), (), engine="eager: why")
    automatic = Trace(Settings(), (1,), (), engine="direct")
    assert [engine_note(t) for t in (chosen, fell, automatic)] == ["graphs", "eager: why", None]
    assert engine_note(Trace(Settings(), (1,), (), engine="eager: why")) == "eager: why"
    assert engine_note(Trace(made[0], (1,), ())) is None, "a recording of an earlier version"
