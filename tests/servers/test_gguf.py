"""GGUF files as a pair: what their headers say, servers of llama.cpp for each lane, and how these end."""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import gguf
import psutil
import pytest
from hub import Hub
from llama_server import processes, shape

import specdemo
from specdemo import GgufPair, LoadCancelled, ModelPair, PairError, Settings, SettingsError, Trace
from specdemo.analysis.contenders import PLAIN as NO_DRAFTS
from specdemo.analysis.contenders import Contender
from specdemo.analysis.rows import Run
from specdemo.analysis.sweep_report import SweepReport
from specdemo.cli.main import main
from specdemo.drafters import GGUF
from specdemo.models.gguf import check_model
from specdemo.models.gguf_header import GgufHeader
from specdemo.models.progress import LoadProgress
from specdemo.runs.record import record
from specdemo.servers.llama_server import EXECUTABLE, LlamaServer, _answers, free_port
from specdemo.ui.state.request import parts_of
from specdemo.view.lane_headers import lane_headers, trace_headers

PROMPT = "Once upon a time there was"
CATS = "A cat sat. A dog sat. A cow sat. A cat sat. A dog sat. A cow sat. A cat"
DRAFTED = Settings(max_new_tokens=32, chat=False, gamma=4)
PLAIN = replace(DRAFTED, strategy="autoregressive")


def named(files: dict[str, Path], *roles: str) -> str:
    return " + ".join(str(files[role]) for role in roles)


@pytest.fixture(scope="module")
def served(files: dict[str, Path]) -> Iterator[GgufPair]:
    with specdemo.load_pair(named(files, "target", "draft", "head")) as found:
        found.threads = 1
        yield found


def test_the_card_is_read_from_the_files(pair: ModelPair, files: dict[str, Path]) -> None:
    before = processes()
    report = specdemo.preflight(named(files, "target", "draft", "head"))
    assert report.ok, report.problems
    assert [m.role for m in report.models] == ["target", "draft", "head"]
    target = report.models[0]
    assert target.parameters == sum(p.numel() for p in pair.target.parameters())
    assert (target.dtype, target.weights.nbytes) == ("F32", 4 * target.parameters)
    assert target.context == pair.target.config.max_position_embeddings
    assert target.detail == f"llama · trained for {target.context:,} tokens · chat template"
    assert report.tokenizers.relation == "same"
    assert report.memory > sum(m.weights.nbytes for m in report.models)
    assert processes() <= before


def test_an_mtp_head_is_offered_where_the_header_tells_of_one(files: dict[str, Path], tmp_path: Path) -> None:
    """The builtin target has none: its header is given the field, and one more that keeps what follows aligned."""
    path = tmp_path / "mtp.gguf"
    data = files["target"].read_bytes()
    name, whole, text = b"llama.nextn_predict_layers", 4, 8
    fields = struct.pack(f"<Q{len(name)}sII", len(name), name, whole, 1) + struct.pack(
        "<Q5sIQ29x", 5, b"x.pad", text, 29
    )
    assert len(fields) % 32 == 0
    path.write_bytes(data[:16] + struct.pack("<Q", struct.unpack("<Q", data[16:24])[0] + 2) + fields + data[24:])
    (target,) = specdemo.preflight(str(path)).models
    assert target.detail.endswith("1 MTP layer")
    assert parts_of("custom", str(path)) == {"mtp", GGUF}
    assert parts_of("custom", str(files["target"])) == {GGUF}
    assert parts_of("qwen3-gguf") == {"draft", GGUF}
    carrying = GgufPair("made", {"target": path}, {}, mtp=True)
    carrying.check(lane := Settings(drafter="mtp", gamma=3))
    assert "--spec-type draft-mtp --spec-draft-n-max 3" in " ".join(carrying.flags(lane))
    with pytest.raises(PairError, match="did not start"):  # the pinned build takes the flags, and not these layers
        LlamaServer(carrying.flags(lane))
    with pytest.raises(SettingsError, match="needs a target with an MTP head"):
        GgufPair("plain", {"target": path}, {}).check(lane)


BROKEN = {
    "cut short in its header": (lambda data: data[:2000], "cut short"),
    "cut short in its weights": (lambda data: data[:-4096], "cut short: it has"),
    "foreign": (lambda data: b"PK\3\4" + data[4:], "no GGUF file"),
    "big-endian": (lambda data: data[:4] + data[7:3:-1] + data[8:], "big-endian"),
    "counts beyond reason": (lambda data: data[:8] + b"\xff" * 16 + data[24:], "cut short|broken"),
    "empty": (lambda data: b"", "no GGUF file"),
    "no language model": (
        lambda data: data.replace(b"llama.block_count", b"llama.black_count"),
        "no language model",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_refused_before_anything_starts(
    kind: str, files: dict[str, Path], tmp_path: Path
) -> None:
    spoil, said = BROKEN[kind]
    path = tmp_path / "spoilt.gguf"
    path.write_bytes(spoil(files["target"].read_bytes()))
    before = processes()
    with pytest.raises(PairError, match=said):
        specdemo.load_pair(str(path))
    assert processes() <= before


def test_what_does_not_fit_is_refused(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(files["draft"].read_bytes().replace(b"ound", b"oumd", 1))
    (tmp_path / "folder").mkdir()
    for role in ("target", "draft"):
        shutil.copy(files[role], tmp_path / "folder")
    for name, said in (
        (f"{files['target']} + {other}", "vocabulary differs from the target's at token"),
        (str(tmp_path / "folder"), "not one GGUF model"),
        (str(files["head"]), "is a draft head"),
        (named(files, "target", "draft", "draft"), "a second draft"),
        (f"{files['target']} + gpt2", "give one kind"),
        (str(tmp_path / "none.gguf"), "no folder or file"),
    ):
        with pytest.raises(PairError, match=said):
            specdemo.load_pair(name)
    block = {"general.architecture": "dflash", "dflash.block_count": 5, "tokenizer.ggml.tokens": [b"a"]}
    with pytest.raises(PairError, match="'dflash'"):
        check_model("draft", GgufHeader(block, 1, 4, "F32", 4), "block.gguf")
    with pytest.raises(PairError, match="leave dtype"):
        specdemo.load_pair(str(files["target"]), dtype="float32")
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")
    with pytest.raises(PairError, match="public page"):
        specdemo.load_pair(str(files["target"]))


@pytest.mark.parametrize(
    "changes",
    [
        {"gamma": 2},
        {"p_min": 0.8, "gamma": 8},
        {"drafter": "eagle3"},
        {"drafter": "prompt_lookup", "gamma": 2},
        {"drafter": "prompt_lookup,model", "gamma": 3},
        {"drafter": "prompt_lookup,eagle3"},
    ],
    ids=str,
)
def test_each_drafter_gives_the_tokens_of_its_lane_here(pair: ModelPair, served: GgufPair, changes: dict) -> None:
    """Its γ is the lane's, and its rounds are known; those of model and head are those that they have here."""
    settings = replace(DRAFTED, ignore_eos=True, max_new_tokens=96, **changes)
    settings = replace(settings, chat="lookup" in settings.drafter)  # only an answer repeats its prompt
    text = CATS if settings.chat else "ha ha ha ha ha ha ha ha ha" if settings.drafter == "eagle3" else PROMPT
    own, theirs = specdemo.run(pair, text, settings), specdemo.run(served, text, settings)
    assert theirs.token_ids == own.token_ids
    assert (theirs.server.level, theirs.server.obeyed) == ("detailed", True)
    assert 0 < max(r.drafted for r in theirs.rounds) <= settings.gamma
    assert theirs.metrics().accepted > 0
    if settings.p_min:  # which is of its ten likeliest tokens there
        assert min(r.drafted for r in theirs.rounds[1:-1]) < settings.gamma
    elif "prompt_lookup" not in settings.drafter:
        assert shape(theirs) == shape(own)


def test_two_gammas_race_as_their_own_lanes(pair: ModelPair, served: GgufPair) -> None:
    lanes = [PLAIN, replace(DRAFTED, gamma=2), replace(DRAFTED, gamma=5)]
    before = processes()
    race = specdemo.race(served, PROMPT, lanes)
    order = [lane for lane, _ in race]
    assert order == sorted(order), "servers of one machine run in turns"
    traces = race.traces()
    assert [t.token_ids for t in traces] == [specdemo.run(pair, PROMPT, PLAIN).token_ids] * 3
    assert [max(r.drafted for r in t.rounds) for t in traces[1:]] == [2, 5]
    titles = [header["title"] for header in trace_headers(traces)]
    assert (
        titles
        == [header["title"] for header in lane_headers(lanes)]
        == ["Plain", "Draft model γ 2", "Draft model γ 5"]
    )
    assert [Trace.from_json(t.to_json()) for t in traces] == traces
    assert record(served, PROMPT, traces).hardware.threads == 1
    started = processes()
    specdemo.run(served, PROMPT, lanes[1])
    assert processes() == started != before, "kept warm"


def test_a_sweep_tries_every_gamma(served: GgufPair) -> None:
    report = specdemo.sweep(served, [PROMPT], replace(DRAFTED, max_new_tokens=12), gammas=[2, 3])
    assert ([row.gamma for row in report.rows], report.server) == ([2, 3], None)
    assert all(row.speedup and row.acceptance_rate is not None for row in report.rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"drafter": "early_exit"},
        {"acceptance": "top_k"},
        {"acceptance": "block"},
        {"adaptive_gamma": True},
        {"drafter": "suffix"},
        {"drafter": "prompt_lookup", "p_min": 0.5},
        {"tree_nodes": 8},
        {"strategy": "assisted"},
        {"engine": "eager"},
    ],
    ids=str,
)
def test_what_llama_cpp_cannot_do_is_refused(served: GgufPair, changes: dict) -> None:
    before = processes()
    with pytest.raises(SettingsError, match=next(reversed(changes))):
        specdemo.stream(served, PROMPT, replace(DRAFTED, **changes))
    assert processes() <= before


def test_servers_end_with_close_and_come_back_after_a_crash(files: dict[str, Path]) -> None:
    before = processes()
    found = specdemo.load_pair(str(files["target"]))
    with pytest.raises(SettingsError, match="this pair has none; choose 'prompt_lookup'"):
        specdemo.run(found, PROMPT, DRAFTED)
    whole = specdemo.run(found, PROMPT, PLAIN)
    lane = specdemo.stream(found, PROMPT, replace(PLAIN, max_new_tokens=800, ignore_eos=True))
    next(lane)
    for process in processes() - before:
        process.kill()
    list(lane)
    assert "broke off" in lane.trace().server.incomplete
    assert specdemo.run(found, PROMPT, PLAIN).token_ids == whole.token_ids
    found.close()
    assert processes() <= before
    with pytest.raises(PairError, match="was closed"):
        specdemo.run(found, PROMPT, PLAIN)
    dropped = specdemo.load_pair(str(files["target"]))
    assert processes() - before
    del dropped
    assert processes() <= before


# A killed program has no last words: the server itself has to notice, whoever started it.
@pytest.mark.parametrize(
    ("end", "start"),
    [
        (
            signal.SIGKILL,
            "from specdemo.servers.llama_server import LlamaServer; kept = LlamaServer(['-m', file])",
        ),
        (signal.SIGINT, "import specdemo; kept = specdemo.load_pair(file)"),
    ],
    ids=["killed", "interrupted"],
)
def test_no_server_outlives_the_program(files: dict[str, Path], end: signal.Signals, start: str) -> None:
    """Guards the two ways in which a program ends: with its own last words, and without."""
    code = (
        f"import psutil, signal, sys, time; file = sys.argv[1]; {start};"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # which jobs in the background lack
        "print(psutil.Process().children()[0].pid, flush=True);"
        "[time.sleep(0.1) for _ in range(1500)]"  # a signal just before one long wait would be seen after it
    )
    command = [sys.executable, "-c", code, str(files["target"])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        server = psutil.Process(int(program.stdout.readline()))
        assert server.is_running()
        program.send_signal(end)
        program.wait(120)
    psutil.wait_procs([server], 120)
    assert not server.is_running()


def test_a_server_that_is_started_by_hand_stays(files: dict[str, Path]) -> None:
    """Guards a server in the background of a shell, whose standard input is no pipe of a program."""
    port = free_port()
    flags = ["-m", str(files["target"]), "-c", "512", "-t", "1", "--port", str(port)]
    command = [sys.executable, "-m", "specdemo.servers.llama_server", *flags]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as server:
        try:
            until = time.monotonic() + 60
            while not _answers(port) and server.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            assert server.poll() is None
            assert _answers(port)
        finally:
            server.kill()


def test_stop_ends_what_is_starting(files: dict[str, Path]) -> None:
    before, stop, progress = processes(), Event(), LoadProgress()
    started: list[set] = []

    def check() -> None:
        until = time.monotonic() + 5
        while not (new := processes() - before) and time.monotonic() < until:
            time.sleep(0.01)  # what has just been started does not have its own command line yet
        started.append(new)
        progress.check()

    progress.cancel()
    with pytest.raises(LoadCancelled):
        LlamaServer(["-m", str(files["target"])], check)
    assert len(started[0]) == 1
    assert processes() <= before
    found = specdemo.load_pair(str(files["target"]))
    stop.set()
    with pytest.raises(LoadCancelled):
        specdemo.stream(found, PROMPT, replace(DRAFTED, drafter="prompt_lookup"), stop)
    found.close()
    assert processes() <= before


def test_a_public_page_has_one_process_at_a_time(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all pairs, while a race runs too: the server of a lane starts when the one before has ended."""
    before = processes()
    found, other = (GgufPair("made", {role: files[role] for role in ("target", "draft")}, {}) for _ in range(2))
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")
    race = specdemo.race(found, PROMPT, [PLAIN, DRAFTED, replace(DRAFTED, drafter="prompt_lookup")])
    assert processes() <= before
    assert [t.server.incomplete for t in race.traces()] == ["it has not ended yet"] * 3
    assert {len(processes() - before) for _ in race} == {1}
    assert len({tuple(t.token_ids) for t in race.traces()}) == 1
    other.start()
    assert len(processes() - before) == 1
    stopped = specdemo.race(other, PROMPT, [PLAIN, DRAFTED])
    stopped.close()
    assert [t.server.incomplete for t in stopped.traces()] == ["it was stopped here"] * 2
    found.close()
    other.close()
    assert processes() <= before


def test_what_does_not_start_shows_the_end_of_its_log(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "unknown.gguf"
    path.write_bytes(files["target"].read_bytes().replace(b"llama", b"lxama"))
    before = processes()
    with pytest.raises(PairError, match=r"did not start: .*lxama"):
        specdemo.load_pair(str(path))
    assert processes() <= before


STAND_IN = """#!{python}
import http.server, os, sys
print("flags", sys.argv[1:], flush=True)
if "broken" in sys.argv:
    sys.exit("no such device, key " + os.environ["LLAMA_API_KEY"])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answer).serve_forever()
"""


def test_an_executable_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the process that started it, even where that is killed."""
    program = tmp_path / "llama-server"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv(EXECUTABLE, str(program))
    with pytest.raises(PairError) as refused:
        LlamaServer(["broken"], key="secret")
    assert "no such device, key ***" in str(refused.value)
    before = processes()
    for end in (LlamaServer.end, LlamaServer.kill):
        server = LlamaServer([], key="secret")
        (own,) = psutil.Process(server.process.pid).children()
        assert str(program) in own.cmdline()
        assert "secret" not in " ".join(own.cmdline())
        end(server)
        psutil.wait_procs([own], 10)
        assert not own.is_running()
    assert processes() <= before
    monkeypatch.setenv(EXECUTABLE, str(tmp_path / "none"))
    with pytest.raises(PairError, match="is no program"):
        LlamaServer([])


def test_a_file_of_the_hub_is_examined_by_its_beginning_then_fetched(
    hub: Hub, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    for name in ("model-Q4_K_M.gguf", "model-Q8_0.gguf", "mmproj-F16.gguf"):
        shutil.copy(files["target"], repo / name)
    commit = hub.add("org/model", repo)
    monkeypatch.setattr("specdemo.models.gguf.FIRST_BYTES", 2**12)
    report = specdemo.preflight("org/model:q4_k_m")
    size = (repo / "model-Q4_K_M.gguf").stat().st_size
    assert (report.ok, report.models[0].files, report.download) == (True, ["model-Q4_K_M.gguf"], size)
    assert report.models[0].licence == "apache-2.0"
    assert sum(int(r.partition("-")[2]) for r in hub.ranges("org/model")) < size
    assert (
        "name a" in specdemo.preflight("org/model").problems[0]
        or ":Q4_K_M" in specdemo.preflight("org/model").problems[0]
    )
    assert "has no GGUF file 'Q5_0'" in specdemo.preflight("org/model:Q5_0").problems[0]
    with specdemo.load_pair(f"org/model@{commit}:model-Q8_0.gguf") as found:
        assert specdemo.run(found, PROMPT, PLAIN).token_ids
        assert found.name == "model:model-Q8_0.gguf"


def test_parts_of_a_split_file_come_together(hub: Hub, files: dict[str, Path], tmp_path: Path) -> None:
    """The parts are as llama.cpp splits them: all tensors but those of the first part in other files."""
    (repo := tmp_path / "repo").mkdir()
    reader = gguf.GGUFReader(files["target"])
    writer = gguf.GGUFWriter(repo / "big-Q8_0.gguf", "llama", split_max_tensors=len(reader.tensors) // 2 + 1)
    for field in [f for f in reader.fields.values() if not f.name.startswith(("GGUF.", "general.arch"))]:
        writer.add_key_value(field.name, field.contents(), field.types[0], [*field.types[1:], None][0])
    writer.add_license("mit")
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    names = [f"big-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    hub.add("org/big", repo)
    for name, licence in (("org/big:Q8_0", "apache-2.0"), (str(repo), "mit"), (str(repo / names[0]), "mit")):
        (model,) = specdemo.preflight(name).models
        assert (model.files, model.licence) == (names, licence)
    with specdemo.load_pair("org/big:Q8_0") as split, specdemo.load_pair(str(files["target"])) as whole:
        assert specdemo.run(split, PROMPT, PLAIN).token_ids == specdemo.run(whole, PROMPT, PLAIN).token_ids
    (repo / names[1]).unlink()
    assert f"{names[1]} is missing" in specdemo.preflight(str(repo)).problems[0]


def test_a_speed_up_that_rounds_do_not_allow_is_no_advice(served: GgufPair) -> None:
    """Guards against 16.46×, which was once advised of a machine that had been busy while plain decoding ran."""
    plain, drafted = (specdemo.run(served, PROMPT, s).metrics() for s in (PLAIN, DRAFTED))
    contender, steps = Contender("model", DRAFTED.gamma), plain.seconds - plain.ttft
    for times, noisy in ((1.1, False), (1.2 * drafted.mean_acceptance_length, True)):
        seconds = drafted.ttft + steps * drafted.emitted / plain.emitted / times
        figures = {NO_DRAFTS: plain, contender: replace(drafted, seconds=seconds)}
        runs = tuple(Run(c, 0, 0, figures=found) for c, found in figures.items())
        report = SweepReport(base=DRAFTED, contenders=(NO_DRAFTS, contender), prompts=1, runs=runs)
        assert (report.noisy, report.known == []) == (noisy, noisy)
        assert not noisy or "seemed cheaper than plain steps" in report.noise


def test_starts_of_servers_take_no_time_of_a_measurement(served: GgufPair) -> None:
    began, own = time.perf_counter(), served.clock()
    served._server(served.flags(replace(DRAFTED, gamma=7)), bool, lanes=0)
    assert served.clock() - own < (time.perf_counter() - began) / 4
    report = specdemo.advise(served, [PROMPT], replace(DRAFTED, max_new_tokens=8), 4, ["prompt_lookup"])
    assert report.noisy or str(served.files["target"]) in report.code("llama.cpp")
    assert report.machine["device"] == "CPU"
    assert report.seconds < 5


def test_the_command_line_races_them(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = processes()
    main(["race", PROMPT, "--pair", named(files, "target", "draft"), "--gamma", "3", "--max-new-tokens", "16"])
    assert "llama.cpp" in capsys.readouterr().out
    assert processes() <= before


def test_its_servers_are_compared_and_the_lines_say_how_to_start_them(served: GgufPair) -> None:
    found = specdemo.compare_deployments(served, PROMPT, replace(DRAFTED, max_new_tokens=12))
    assert found.outcome == "identical", found.text
    started = [line for line in found.reproduction().splitlines() if line.startswith("# start: llama-server ")]
    assert ["draft.gguf" in line for line in started] == [False, True]
    assert str(served.files["target"]) not in found.to_json()
