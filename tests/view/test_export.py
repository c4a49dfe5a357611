"""Tables and the offline page: what they hold, and that nothing in them is more than text."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import HOSTILE, recordings
from toys import endless_pair, prompt_ids

import specdemo
from specdemo import Recording, Settings, TraceError
from specdemo.rounds import Round, Token
from specdemo.trace import Trace
from specdemo.view.assets import race_scripts
from specdemo.view.export import FORMULA, script_json
from specdemo.view.race_value import replay_value

# --- tables ---------------------------------------------------------------------------------------------------


def table(text: str) -> list[dict[str, str]]:
    """The rows of a CSV as any reader gets them."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@given(recordings())
def test_the_tables_hold_every_token_and_round(recording: Recording) -> None:
    """Guards counts, order, and texts with quotes, commas and line breaks in them."""
    traces = recording.traces
    rows = table(specdemo.tokens_csv(traces))
    tokens = [(lane, t) for lane, trace in enumerate(traces, start=1) for t in trace.tokens]
    assert len(rows) == len(tokens)
    for row, (lane, token) in zip(rows, tokens, strict=True):
        assert (row["lane"], row["kind"], row["id"]) == (str(lane), token.kind, str(token.id))
        assert float(row["seconds"]) == token.seconds
        assert row["p"] == ("" if token.p is None else str(token.p))
        assert row["text"] in (token.text, "'" + token.text)
    kept = [
        [r["id"] for r in rows if r["lane"] == str(lane) and r["output"]] for lane in range(1, len(traces) + 1)
    ]
    assert kept == [[str(i) for i in trace.token_ids] for trace in traces]
    rounds = table(specdemo.rounds_csv(traces))
    assert [(r["lane"], r["round"], r["drafted"], r["emitted"]) for r in rounds] == [
        (str(lane), str(r.index), str(r.drafted), str(len(r.emitted)))
        for lane, trace in enumerate(traces, start=1)
        for r in trace.rounds
    ]


@given(recordings())
def test_no_cell_is_a_formula(recording: Recording) -> None:
    """Guards whoever opens a stranger's table in a spreadsheet; only numbers may begin with a sign."""
    for text in (specdemo.tokens_csv(recording.traces), specdemo.rounds_csv(recording.traces)):
        for row in table(text):
            for cell in row.values():
                begin = "".join(c for c in cell if c.isprintable()).strip()[:1]
                assert begin not in FORMULA - {"'"} or numeric(cell), cell


@given(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0"), max_size=8)))
def test_a_guarded_text_can_be_told_from_one_that_was_not(text: str) -> None:
    """Guards readers that take the apostrophe away again: no text begins with one that was not put there."""
    token = Token(1, text, "target", 0, 1, None, None, None, 0.1)
    trace = Trace(Settings(), (1,), (Round(0, (token,), 0, 0, 0.1, 0.0, 0.1, 0.0),))
    guarded = table(specdemo.tokens_csv([trace]))[0]["text"]
    assert guarded in (text, "'" + text)
    assert guarded.removeprefix("'") == text


# --- the offline page -----------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.policy = ""
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag == "script"
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)


def parsed(html: str) -> Elements:
    elements = Elements()
    elements.feed(html)
    return elements


@given(recordings())
def test_nothing_breaks_out_of_the_embedded_data(recording: Recording) -> None:
    """Guards the page against texts that close its script, open a comment, or end a line of JavaScript."""
    value = replay_value(recording)
    text = script_json(value)
    assert text.isascii()
    assert not set(text) & set("<>&")
    assert json.loads(text) == value
    page = parsed(f'<script type="application/json">{text}</script><p>')
    assert page.tags == ["script", "p"]
    assert json.loads(page.scripts[0][1]) == value


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    """Guards talks without a network, and that the scripts are the app's own, whole and alone allowed to run."""
    trace = specdemo.run(endless_pair("llama"), prompt_ids(4), Settings(gamma=2, max_new_tokens=6))
    hostile = Recording((trace,), title=HOSTILE[0], prompt=HOSTILE[2], date=HOSTILE[3], versions={HOSTILE[0]: "1"})
    path = tmp_path / "replay.html"
    specdemo.export_html(hostile, path)
    html = path.read_text(encoding="utf-8")
    page = parsed(html)
    data, *scripts = page.scripts
    assert data[0]["type"] == "application/json"
    assert json.loads(data[1])["replay"]["title"] == HOSTILE[0]
    assert [text for _, text in scripts][1:-1] == race_scripts()
    assert "plotly.js v" in scripts[0][1][:200]
    assert not any("src" in attributes for attributes, _ in page.scripts)
    assert not {"img", "link", "iframe", "object", "a"} & set(page.tags)
    assert page.policy.startswith("default-src 'none'; ")
    for _, text in scripts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.policy
    assert "unsafe" not in page.policy.split("script-src")[1].split(";")[0]


def test_a_list_of_traces_is_enough_and_nothing_is_refused(tmp_path: Path) -> None:
    """Guards the public signature."""
    trace = specdemo.run(endless_pair("llama"), prompt_ids(4), Settings(max_new_tokens=3))
    specdemo.export_html([trace, trace], str(tmp_path / "two.html"))
    assert len(json.loads(parsed((tmp_path / "two.html").read_text("utf-8")).scripts[0][1])["lanes"]) == 2
    with pytest.raises(TraceError, match="at least one trace"):
        specdemo.export_html([], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()
