"""The builtin pair's weights here and in llama.cpp, as lanes of one race."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

import specdemo
from specdemo import Settings, SettingsError
from specdemo.cli.main import main
from specdemo.ui.state.couplings import choices_left
from specdemo.ui.state.request import lane_settings
from specdemo.ui.state.state import FirstLane, PageState
from specdemo.view.lane_headers import trace_headers

PROMPT = "Book a table for two."
HERE = Settings(max_new_tokens=24, gamma=3)
THERE = replace(HERE, engine="llama.cpp")


def test_lanes_here_and_in_llama_cpp_say_the_same_and_their_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are written at the first use, and taken as they are at the next."""
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path))
    pair = specdemo.load_pair("builtin", device="cpu", dtype="float32")
    lanes = [replace(HERE, strategy="autoregressive"), HERE, replace(THERE, strategy="autoregressive"), THERE]
    race = specdemo.race(pair, PROMPT, lanes)
    assert len([*race]) > len(lanes)
    traces = race.traces()
    assert [t.token_ids for t in traces] == [traces[0].token_ids] * 4
    assert [t.server is None for t in traces] == [True, True, False, False]
    assert {t.server.engine for t in traces[2:]} == {"llama.cpp"}
    assert max(r.drafted for r in traces[3].rounds) == 3
    headers = trace_headers(traces)
    assert [h["title"] for h in headers] == [
        "Plain",
        "Draft model",
        "Plain in llama.cpp",
        "Draft model in llama.cpp",
    ]
    assert [h["detail"].endswith("in this process") for h in headers] == [True, True, False, False]
    assert [h.get("claims", {}).get("baseline") for h in headers] == [None, 0, None, 2]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.gguf")}
    pair.gguf.close()
    pair.gguf = None
    report = specdemo.sweep(pair, [PROMPT], THERE, gammas=[2])
    assert report.pair == "builtin in llama.cpp"
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.gguf")}
    pair.gguf.close()


def test_other_pairs_need_files() -> None:
    pair = specdemo.load_pair("builtin-target", device="cpu")
    pair.target.name_or_path = "elsewhere"
    with pytest.raises(SettingsError, match="--gguf"):
        specdemo.stream(pair, PROMPT, THERE)
    with pytest.raises(SettingsError, match="such a pair"):
        specdemo.stream(None, PROMPT, THERE)
    with pytest.raises(SettingsError, match=r"'llama\.cpp' can be run"):
        specdemo.run_batch(pair, [PROMPT], THERE)


def test_the_command_line_takes_files_beside_a_pair(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lanes = [
        "--max-new-tokens",
        "16",
        "--lane",
        "strategy=autoregressive",
        "--lane",
        "strategy=autoregressive,engine=llama.cpp",
    ]
    main(
        [
            "race",
            PROMPT,
            "--pair",
            "builtin-target",
            "--gguf",
            str(files["target"]),
            *lanes,
        ]
    )
    assert "Plain in llama.cpp" in capsys.readouterr().out


@pytest.mark.parametrize(("pair", "offered"), [("builtin", True), ("gpt2", False), ("qwen3-gguf", False)])
def test_the_page_offers_them_where_files_are_known(pair: str, offered: bool) -> None:
    values = {"pair": pair, "target": "", "draft": "", "target-weights": "none"}
    names = [name for _, name in choices_left("lane1.method", values)]
    assert ("llama_plain" in names) is offered
    assert {"llama_draft", "llama_eagle3", "llama_lookup"} <= {*names} or not offered
    warm = lane_settings(FirstLane(method="llama_draft", gamma=4), temperature=0.5, engine="eager")
    assert (warm.engine, warm.gamma, warm.acceptance) == ("llama.cpp", 4, "sampling")
    assert PageState(pair=pair).lane2.method
