"""The command line: options, output, exit codes."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import HOSTILE
from rich.console import Console

import specdemo
from specdemo import Recording, Settings
from specdemo.cli.main import main
from specdemo.cli.options import add_settings, meanings, read_lane, setting_types, typed_settings
from specdemo.cli.terminal import rounds_text, shown
from specdemo.drafters import DRAFTERS
from specdemo.models.request import catalog
from specdemo.rounds import Round, Token
from specdemo.runs.advise import stream_advice
from specdemo.runs.measuring import Progress

PROMPT = "Book a table for two."


# --- options --------------------------------------------------------------------------------------------------

SOME_SETTINGS = st.builds(
    Settings,
    drafter=st.sampled_from(list(DRAFTERS)),
    acceptance=st.sampled_from(["sampling", "block", "top_k"]),
    gamma=st.integers(1, 16),
    adaptive_gamma=st.booleans(),
    temperature=st.floats(0.01, 2.0),
    top_k=st.integers(0, 99),
    top_p=st.floats(0.05, 1.0),
    repetition_penalty=st.floats(0.5, 2.0),
    max_new_tokens=st.integers(1, 10**6),
    seed=st.integers(0, 2**63 - 1),
    accept_top_k=st.integers(1, 99),
    chat=st.booleans(),
    lookup_ngram=st.integers(1, 8),
    exit_layer=st.integers(1, 9),
    engine=st.just("server"),
    server=st.sampled_from(["llama-70b", "my server"]),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_settings(made)
    return made


@given(SOME_SETTINGS)
def test_every_setting_can_be_typed(settings: Settings) -> None:
    """Guards options against a field that is added, renamed or of another type: there is no second list."""
    words = []
    for name, value in asdict(settings).items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    assert Settings(**typed_settings(parser().parse_args(words))) == settings
    assert (
        Settings(**read_lane(",".join(f"{name}={value}" for name, value in asdict(settings).items()))) == settings
    )


def test_nothing_typed_leaves_the_settings_own_defaults() -> None:
    """Guards against a copied default that goes stale."""
    assert typed_settings(parser().parse_args([])) == {}
    assert setting_types().keys() == meanings().keys() == {f.name for f in fields(Settings)}


# --- what goes wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --gamma 99", "gamma"),
        ("run --temperature nan", "temperature"),
        ("run --pair no/such/pair/at/all", "no/such/pair/at/all"),
        ("run --target-quantization int3", "int3"),
        ("run --threads 99999", "threads: must be a whole number from 1 to "),
        ("run --json /no/such/folder/x.json", "cannot be written"),
        ("run --html /tmp", "cannot be written"),
        ("run  --max-new-tokens 0", "max_new_tokens"),
        ("race --lane gama=3", "gama=3"),
        ("race --lane gamma", "'gamma'"),
        ("race --lane gamma=2 --lane gamma=99", "Lane 2"),
        ("race --lane adaptive_gamma=maybe", "adaptive_gamma=maybe"),
        ("sweep --gammas 0", "gammas"),
        ("sweep --prompts-file /no/such/file.txt", "cannot be read"),
        ("sweep --gamma 3", "--gamma; see python -m specdemo sweep --help"),
        ("frobnicate", "frobnicate"),
        ("", "required"),
        ('run ""', "it is empty"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards scripts and agents: a clear line, nothing on the output, no stack trace."""
    try:
        code = main(shlex.split(words))
    except SystemExit as stopped:  # argparse's own
        code = stopped.code
    output, errors = capsys.readouterr()
    assert code == 2
    assert said in errors
    assert len(errors.strip().splitlines()) == 1
    assert output == ""


def started(*words: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    root = Path(specdemo.__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-m", "specdemo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Whoever started the tests in the background has interrupts ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_an_interrupt_ends_with_130_and_no_stack_trace() -> None:
    """Guards Ctrl-C in the middle of a run."""
    # So warm that the text does not end by itself, which a busy machine would wait for.
    warm = ("--temperature", "2", "--acceptance", "sampling")
    process = started("run", PROMPT, "--max-new-tokens", "1000", "--threads", "1", *warm)
    assert process.stdout.read(3), "it has begun to write"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted."
    assert "Traceback" not in errors


def test_an_interrupt_while_modules_are_imported_ends_with_130_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards the first seconds of every command, in which Python writes a stack trace or loses the interrupt."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # tells each module when it is there
    process = started("pairs")
    assert any("numpy" in line for line in process.stderr), "the imports are under way"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [line for line in errors.splitlines() if not line.startswith("import time:")] == ["Interrupted."]


@pytest.mark.parametrize("words", ["pairs", "pairs --json -", "race --help"])
@pytest.mark.parametrize(("full", "code"), [(True, 2), (False, 141)], ids=["full", "closed"])
def test_an_output_that_takes_nothing_ends_with_its_code(
    words: str, full: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards ``| head -1`` and a full disk: no stack trace, and none from Python at its own end either."""
    if full:
        output = open("/dev/full", "w")  # noqa: SIM115, PTH123
    else:
        reader, writer = os.pipe()
        os.close(reader)
        output = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stdout", output)
    assert main(words.split()) == code
    said = "The output cannot be written: No space left on device.\n" if full else ""
    assert capsys.readouterr().err == said
    output.close()  # writes what was left, as Python does at its end


# --- what comes out -------------------------------------------------------------------------------------------


def test_run_reads_a_prompt_from_the_input_and_writes_json_alone_to_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards pipes: people read the error stream meanwhile."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{PROMPT}\n".encode())))
    assert main(["run", "-", "--max-new-tokens", "12", "--gamma", "3", "--ignore-eos", "--json", "-"]) == 0
    output, errors = capsys.readouterr()
    recording, data = Recording.from_json(output), json.loads(output)
    trace = specdemo.run(specdemo.load_pair(), PROMPT, Settings(max_new_tokens=12, gamma=3, ignore_eos=True))
    assert (recording.prompt, recording.traces[0].token_ids) == (PROMPT, trace.token_ids)
    assert recording.traces[0].settings == trace.settings
    assert data["outputs"] == [trace.text]
    assert data["metrics"][0]["rounds"] == trace.metrics().rounds
    for word in trace.text.split():
        assert word in errors
    assert "tokens/s" in errors
    counts = [line.split()[-1] for line in errors.splitlines() if " after the " in line]
    assert counts == [str(trace.metrics().rounds), "11"], "what the prefill gave is in neither, and both say so"


def test_race_shows_lanes_and_writes_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the way from a terminal to a page that can be shared."""
    names = {way: str(tmp_path / name) for way, name in (("json", "r.json"), ("html", "r.html"))}
    tables = {way: str(tmp_path / f"{way}.csv") for way in ("tokens-csv", "rounds-csv")}
    files = [word for way, name in {**names, **tables}.items() for word in (f"--{way}", name)]
    lanes = ["--lane", "strategy=autoregressive", "--lane", "gamma=2", "--lane", "drafter=prompt_lookup,gamma=4"]
    assert main(["race", PROMPT, "--max-new-tokens", "6", "--gamma", "4", "--json", "-"]) == 0
    traces = Recording.from_json(capsys.readouterr().out).traces
    assert [t.settings.strategy for t in traces] == ["autoregressive", "speculative"], "as the lanes are left out"
    assert traces[1].settings == Settings(max_new_tokens=6, gamma=4)
    assert main(["race", PROMPT, "--max-new-tokens", "12", "--title", "Three", *lanes, *files]) == 0
    output, _ = capsys.readouterr()
    recording = Recording.load(names["json"])
    assert recording.title == "Three"
    assert [t.settings.gamma for t in recording.traces] == [5, 2, 4]
    assert recording.traces[0].token_ids == recording.traces[1].token_ids
    for title in ("Plain", "Draft model", "Prompt lookup", "Identical to plain"):
        assert title in output
    assert Path(tables["tokens-csv"]).read_bytes().decode() == specdemo.tokens_csv(recording.traces)
    assert Path(tables["rounds-csv"]).read_bytes().decode() == specdemo.rounds_csv(recording.traces)
    assert Path(names["html"]).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_advise_prints_advice_and_lines_and_writes_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdemo.analysis.report.disturbance", lambda *_: None)  # whatever else runs here
    saved, table = tmp_path / "report.json", tmp_path / "rows.csv"
    words = ["advise", PROMPT, "--budget", "8", "--methods", "prompt_lookup", "--max-new-tokens", "6"]
    assert main([*words, "--code", "vllm", "--json", str(saved), "--csv", str(table)]) == 0
    out = capsys.readouterr().out
    assert re.search("^plain( decoding)? ", out, re.MULTILINE)  # a wide table breaks the name
    assert "vllm serve assets/builtin/target" in out
    assert "prompt lookup" in table.read_text(encoding="utf-8")
    assert json.loads(saved.read_text(encoding="utf-8"))["recommendation"] in " ".join(out.split())
    assert main(["advise", PROMPT, "--budget", "-1"]) == 2
    assert "budget_seconds: must be a number above 0" in capsys.readouterr().err


def test_an_interrupt_of_advise_keeps_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Iterator[Progress]:
        for number, progress in enumerate(stream_advice(*args)):
            yield progress
            if number == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr("specdemo.cli.measures.stream_advice", interrupted)
    saved = tmp_path / "report.json"
    words = ["advise", PROMPT, "--methods", "prompt_lookup", "--max-new-tokens", "6", "--json", str(saved)]
    assert main(words) == 130
    out = capsys.readouterr().out
    assert re.search("^plain( decoding)? ", out, re.MULTILINE)  # a wide table breaks the name
    assert "So far: " in out
    assert "So far: " in saved.read_text(encoding="utf-8")


def test_sweep_writes_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "rows.csv"
    words = ["sweep", PROMPT, "--gammas", "2", "4", "--max-new-tokens", "8", "--json", "-", "--csv", str(table)]
    assert main(words) == 0
    output, errors = capsys.readouterr()
    report = json.loads(output)
    assert [row["gamma"] for row in report["rows"]] == [2, 4]
    assert report["complete"]
    assert report["recommendation"] in " ".join(errors.split())
    assert len(table.read_text(encoding="utf-8").splitlines()) == 3


def test_too_few_runs_are_said_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    words = "compare Hi --server nowhere --temperature 1 --acceptance sampling --runs"
    assert [main([*words.split(), runs]) for runs in ("60", "100")] == [2, 2]
    first, *refused = capsys.readouterr().err.splitlines()
    assert first == "60 pairs of runs are usually too few; choose at least 100."
    assert len(refused) == 2


def test_pairs_lists_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in catalog())
    assert main(["pairs", "--json", "-"]) == 0
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)] == list(catalog())


# --- what a terminal is sent ----------------------------------------------------------------------------------


@given(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20)))
def test_no_text_steers_the_terminal(text: str) -> None:
    """Guards against models and strangers who write escape sequences or turn the direction of text."""
    safe = shown(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", safe)
    assert shown(safe) == safe
    assert len(safe) == len(text)


def test_kinds_differ_and_markup_is_text() -> None:
    """Guards the colours, and square brackets, which rich would read as markup."""
    kinds = ("accepted", "rejected", "corrected", "bonus", "target")
    tokens = tuple(Token(i, f"[red]{k}[/]\x1b[2J\n", k, 1, 1, None, None, None, 0.1) for i, k in enumerate(kinds))
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=200)
    console.print(rounds_text([Round(1, tokens, 2, 1, 0.1, 0.0, 0.1, 0.0)]))
    written = out.getvalue()
    codes = {kind: re.search(rf"((?:\x1b\[[\d;]+m)?)\[red\]{kind}\[/\]␛\[2J", written).group(1) for kind in kinds}
    assert len(set(codes.values())) == len(kinds)
    assert "\x1b[2J" not in written
    assert "[red]rejected[/]␛[2J↵" in written, "a rejected line break breaks no line"
    marked = rounds_text([Round(1, tokens, 2, 1, 0.1, 0.0, 0.1, 0.0)], marked=True).plain  # as a pipe shows it
    assert re.findall(r"\[-.*?-\]", marked) == ["[-[red]rejected[/]␛[2J↵-]"]
