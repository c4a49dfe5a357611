"""Recordings: JSON out and in, and what strangers may hand in."""

from __future__ import annotations

import copy
import json
import platform
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import recordings

import specdemo
from specdemo import Recording, TraceError
from specdemo.models.request import ASSETS
from specdemo.recording import LARGEST_FILE, MOST_LANES
from specdemo.runs.record import record
from specdemo.view.race_value import replay_value

SHIPPED = sorted((ASSETS / "recordings").glob("*.json"))


def valid() -> dict[str, Any]:
    """A shipped recording as plain data."""
    return json.loads(SHIPPED[0].read_text(encoding="utf-8"))


def refusal(text: str | bytes) -> str:
    """What is said of a file; it must be one sentence or two, not a page."""
    with pytest.raises(TraceError) as caught:
        Recording.from_json(text)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 400
    return message


# --- out and in -----------------------------------------------------------------------------------------------


@given(recordings())
def test_any_recording_comes_back_from_its_json(recording: Recording) -> None:
    """Guards every field, and texts of any characters."""
    assert Recording.from_json(recording.to_json()) == recording
    assert Recording.from_json(recording.to_json().encode()) == recording


@given(recordings())
def test_any_recording_can_be_replayed(recording: Recording) -> None:
    """Guards the figures against odd but possible traces: no time, no rounds after the prefill, nothing kept."""
    value = replay_value(recording)
    json.dumps(value, allow_nan=False)
    rounds = [json.loads(text) for text in value["rounds"]]
    assert [r["seconds"] for r in rounds] == sorted(r["seconds"] for r in rounds)
    for lane, trace in enumerate(recording.traces):
        shown = [t for r in rounds if r["lane"] == lane for t in r["tokens"]]
        assert [(t["id"], t["text"], t["kind"]) for t in shown] == [(t.id, t.text, t.kind) for t in trace.tokens]


def test_a_run_is_recorded_with_its_prompt_and_machine(text_pair: specdemo.ModelPair) -> None:
    """Guards the label of a replay, and that no name of a host or path gets into a file made to be shared."""
    sampled = specdemo.Settings(gamma=3, max_new_tokens=8, acceptance="sampling", temperature=0.9, top_k=4)
    trace = specdemo.run(text_pair, "Hi 🎉", sampled)
    recording = record(text_pair, "Hi 🎉", [trace], "A test")
    assert recording.traces == (trace,)
    for text in (recording.to_json(), trace.to_json(), f"[{trace.to_json()}]"):  # files of traces open too
        assert Recording.from_json(text).traces == (trace,)
    assert "Hi 🎉" in "".join(recording.prompt_pieces)
    assert recording.hardware.label.startswith("CPU (")
    assert set(recording.versions) == {"python", "torch", "transformers"}
    for private in (platform.node(), str(Path.home()), str(Path.cwd())):
        assert f'"{private}' not in recording.to_json()
    with pytest.raises(ValueError, match="JSON"):  # NaN is none
        replace(trace, rounds=(replace(trace.rounds[0], seconds=float("nan")),)).to_json()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_what_is_shipped_is_whole_and_labelled(path: Path) -> None:
    """Guards the gallery: complete runs of the builtin pair, small, with the hardware they were made on."""
    recording = Recording.load(path)
    assert len(SHIPPED) == 3
    assert path.stat().st_size < 200_000
    assert recording.title
    assert recording.prompt
    assert recording.hardware
    assert all(t.complete and t.pair == "builtin" and len(t.token_ids) >= 32 for t in recording.traces)
    assert replay_value(recording)["replay"]["label"] == f"Recorded on {recording.hardware.label}"


# --- what strangers hand in -----------------------------------------------------------------------------------


def edited(change: str, value: Any) -> str:
    """A valid recording with one place changed, such as ``traces.0.rounds.1.seconds``."""
    data = valid()
    *path, last = [int(p) if p.isdigit() else p for p in change.split(".")]
    inner = data
    for part in path:
        inner = inner[part]
    inner[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "value", "said"),
    [
        ("schema", None, "no schema"),
        ("schema", "9" * 5000, "this version reads schema 1"),
        ("traces", [], "no traces"),
        ("traces", "x", "no traces"),
        ("traces", [1], "lane 1"),
        ("traces.1.schema", 7, "schema 7"),
        ("traces.0.rounds", [], "no rounds"),
        ("traces.0.rounds.0.index", 4, "round 0"),
        ("traces.0.rounds.3.seconds", 0.0, "round 3"),
        ("traces.0.rounds.3.tokens.0.p", 2.0, "rounds.3.tokens.0.p: "),
        ("traces.0.rounds.3.tokens.0.acceptance", -1, "rounds.3.tokens.0.acceptance: "),
        ("traces.0.rounds.3.tokens.0.seconds", -1.0, "rounds.3.tokens.0.seconds: "),
        ("traces.0.rounds.3.seconds", 1e300, "no figure of it can be 1e+300"),
        ("traces.0.rounds.3.seconds", float("nan"), "no figure of it can be nan"),
        ("traces.0.rounds.3.seconds", 1e8, "round 3"),
        ("traces.0.rounds.3.seconds", "<img>", "seconds"),
        ("traces.0.rounds.3.verify_seconds", -1, "rounds.3.verify_seconds: "),
        ("traces.0.rounds.3.accepted", 5, "counts"),
        ("traces.0.rounds.3.tokens.0.kind", "script", "kind"),
        ("traces.0.rounds.3.tokens.0.text", None, "text"),
        ("traces.0.rounds.3.tokens", "</script>", "tokens"),
        ("traces.0.peak_memory", 10**400, "no figure of it can be 1000"),
        ("traces.0.settings.gamma", 99, "gamma"),
        ("traces.0.settings.strategy", "x" * 10_000, "strategy"),
        ("traces.0.prompt_ids", [1], "prompt_pieces"),
        ("prompt_pieces", [1, 2], "prompt_pieces"),
        ("hardware", {"device": "x"}, "hardware"),
        ("versions", [["a", "b"]], "versions"),
        ("title", {"a": 1}, "title"),
        ("kind", "something else", "kind"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_a_sentence(change: str, value: Any, said: str) -> None:
    """Guards the page against forged and damaged files."""
    assert said in refusal(edited(change, value))


NO_RECORDINGS = ["", "null", "5", "[]", "{}", "{", '"recording"', '{"traces": NaN}', b"PK\x03\x04"]
NO_RECORDINGS += ['{"traces": [{"rounds": 1e999}]}', '{"traces": "\\ud800"}', b"\xff\xfe\x00"]
NO_RECORDINGS += ["[" * 99_999, '{"a":' * 150 + "1" + "}" * 150]


@pytest.mark.parametrize("text", NO_RECORDINGS, ids=lambda text: ascii(text[:16]))
def test_what_is_no_recording_is_refused(text: str | bytes) -> None:
    """Guards against any other file, and against nesting that ends the interpreter's stack."""
    refusal(text)


def test_too_large_and_too_wide_files_are_refused(tmp_path: Path) -> None:
    """Guards the host's memory: size is looked at before anything is read."""
    assert "MB" in refusal(b" " * (LARGEST_FILE + 1))
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(TraceError, match="at most 20 MB"):
        Recording.load(large)
    data = valid()
    data["traces"] = [data["traces"][0]] * (MOST_LANES + 1)
    assert f"at most {MOST_LANES}" in refusal(json.dumps(data))
    with pytest.raises(TraceError, match="cannot be read"):
        Recording.load(tmp_path / "nowhere.json")


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a document."""
    items = (
        list(data.items()) if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []
    )
    return [(data, key) for key, _ in items] + [place for _, inner in items for place in places(inner)]


SMALL = valid()
SMALL["traces"] = [{**t, "rounds": t["rounds"][:3]} for t in SMALL["traces"]]
values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
junk = st.recursive(
    values | st.sampled_from([10**30, -1, 0]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=100)
@given(st.data())
def test_any_edit_of_a_file_is_refused_or_can_be_replayed(data: st.DataObject) -> None:
    """Guards the seam between what is accepted and what the view can show: nothing may fall between."""
    document = copy.deepcopy(SMALL)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(document)))
        container[key] = data.draw(junk)
    with suppress(TraceError):
        recording = Recording.from_json(json.dumps(document))
        json.dumps(replay_value(recording), allow_nan=False)


def test_lanes_with_different_prompts_are_not_compared(text_pair: specdemo.ModelPair) -> None:
    """Guards traces of a batch: other prompts give other outputs, which is no divergence."""
    short = specdemo.Settings(max_new_tokens=6)
    traces = [specdemo.run(text_pair, prompt, short) for prompt in ("Hi", "Ho")]
    assert replay_value(Recording(tuple(traces)))["verdict"]["kind"] == "partial"
    alike = replay_value(Recording((traces[0], replace(traces[0]))))
    assert alike["verdict"]["kind"] == "identical"
