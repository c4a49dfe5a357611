"""What was saved with the version before opens in this one: a recording, a saved page and a link.

The samples in ``tests/data/before`` were written by that version: a race of the builtin pair with three lanes of
24 tokens, its metrics, the page that replays it (without Plotly, which is 5 MB), and a link with its values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import shown_tokens, wait_for_phase
from link_states import read
from playwright.sync_api import Page, expect

from specdemo import Recording, Trace
from specdemo.ui.links import from_query
from specdemo.view.tables import figure_rows

pytest_plugins = ["browser_fixtures"]

BEFORE = Path(__file__).parents[1] / "data" / "before"


def data(name: str) -> Any:
    return json.loads((BEFORE / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.from_json((BEFORE / "recording.json").read_bytes())


def test_a_recording_gives_the_same_metrics(recording: Recording) -> None:
    """As a whole, and one trace at a time."""
    saved = data("recording.json")["traces"]
    traces = [Trace.from_json(json.dumps(trace)) for trace in saved]
    assert traces == list(recording.traces)
    for trace, expected in zip(traces, data("metrics.json"), strict=True):
        found = trace.metrics(traces[0])
        for name, value in expected.items():
            assert getattr(found, name) == pytest.approx(value), name
    assert {tuple(trace.token_ids) for trace in traces} == {tuple(traces[0].token_ids)}
    assert len(figure_rows(traces)) > 5


def test_a_saved_page_plays_offline(offline: Callable[[Path], Page], recording: Recording) -> None:
    page = offline(BEFORE / "replay.html")
    page.locator("[data-role=speed]").select_option("8")
    wait_for_phase(page, "done")
    for lane, trace in enumerate(recording.traces):
        assert shown_tokens(page, lane) == [[token.kind, token.text] for token in trace.tokens]
    expect(page.locator("[data-role=verdict]")).to_have_attribute("data-kind", "identical")


def test_a_link_gives_the_same_values() -> None:
    link = data("link.json")
    values, notices = read(link["query"])
    expected = {**from_query({})[0], **link["values"]}
    # All tabs share one length and one γ since: those of the tab that the link opens count.
    assert expected.pop("batch.tokens") == 21
    assert notices == ["batch.tokens is ignored; all tabs share length."]
    expected["gamma"] = expected.pop("losslessness.gamma")
    assert values == expected
