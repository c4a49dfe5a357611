"""Load tests: several users of a server at a time, none of whose answers is lost or another's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from fake_vllm import FakeVLLM
from llama_server import llama_server, processes
from panels import panel
from scripted import Exchange
from toys import endless_pair, prompt_ids

import specdemo
from specdemo import LoadReport, PairError, ServerError, ServerPair, Settings, SettingsError
from specdemo.analysis.contenders import Contender
from specdemo.analysis.disturbance import disturbance
from specdemo.analysis.load_metrics import LoadMetrics
from specdemo.cli.main import main
from specdemo.rounds import Round
from specdemo.runs.load_test import load_test, stream_load_test
from specdemo.runs.single import LaneRecord
from specdemo.servers.catalog import FILE
from specdemo.ui.tabs.batch import batch_job, sizes_job
from specdemo.ui.tabs.tab_parts import plan
from specdemo.view.charts import load_figure, size_figure
from specdemo.view.tables import report_table

PROMPTS = [prompt_ids(5), prompt_ids(9), prompt_ids(13)]
SHORT = Settings(max_new_tokens=12)
DRAFTS = Settings(gamma=4)
KEY = "sk-very-secret-0123456789"


class Counting(FakeVLLM):
    """Counts the requests that it decodes at the same time; it may mix up their prompts."""

    mixes, most = False, 0

    def __init__(self, *given: object, **options: object) -> None:
        self.under_way: dict[int, Sequence[int]] = {}
        super().__init__(*given, **options)

    def _stream(self, exchange: Exchange, request: dict) -> None:
        others = [*self.under_way.values()] if self.mixes else []
        super()._stream(exchange, {**request, "prompt": others[0]} if others else request)

    def decode(self, record: LaneRecord, steps: list[tuple[int, int]]) -> Iterator[Round]:
        self.under_way[id(record)] = record.ids
        self.most = max(self.most, len(self.under_way))
        yield from super().decode(record, steps)
        del self.under_way[id(record)]


@pytest.fixture(scope="module")
def deployments() -> Iterator[tuple[Counting, Counting]]:
    pair = endless_pair("llama")
    with Counting(pair, pause=0.002) as plain, Counting(pair, DRAFTS, pause=0.002) as drafted:
        yield plain, drafted


@pytest.fixture
def served(deployments: tuple[Counting, Counting]) -> ServerPair:
    for fake in deployments:
        fake.most, fake.mixes = 0, False
        fake.requests.clear()
    return ServerPair(deployments[0].url, deployments[1].url, "toy", timeout=5)


def users_left() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(("user", "reader of"))]


def test_every_number_of_users_gets_the_answers_of_one(
    served: ServerPair, deployments: tuple[Counting, Counting]
) -> None:
    report = load_test(served, PROMPTS, SHORT, users=(1, 2, 4), repeats=2, requests=5)
    assert report.complete
    assert [fake.most for fake in deployments] == [4, 4]
    # Those that others are compared with, a short run that warms up, and every number of users in every repeat.
    assert [len(fake.requests) for fake in deployments] == [3 + 5 + 6 * 5, 5 + 6 * 5]
    assert [(r.contender.size, r.repeat) for r in report.runs] == [
        (n, i) for i in (0, 1) for n in (1, 1, 2, 2, 4, 4)
    ]
    assert len({bool(r.contender.family) for r in report.runs[::2]}) == 2, (
        "the first of two is not always the same"
    )
    assert report.answers == {"compared": 60, "differing": 0, "crossed": 0}
    assert report.conclusion.endswith("All 60 answers are those that one user got without speculation.")
    for run in report.runs:
        figures = run.figures
        assert (figures.output, figures.emitted, len(figures.ttft)) == (5 * 12, 5 * 11, 5)
        assert figures.mean_users <= figures.users
        assert figures.tokens_per_second == pytest.approx(60 / figures.seconds)
        assert min(figures.ttft) > 0
    plain, drafted = report.measured[::2], report.measured[1::2]
    assert [row.size for row in plain] == [row.size for row in drafted] == [1, 2, 4]
    assert len({row.acceptance_rate for row in drafted}) == 1
    assert {row.acceptance_rate for row in plain} == {None}
    for row, other in zip(drafted, plain, strict=True):
        assert row.speedup == pytest.approx(row.tokens_per_second / row.plain_tokens_per_second)
        assert row.ttft[1] <= row.ttft[0] <= row.ttft[2]
        slow, fast = sorted(r.speed for r in report.of(Contender(size=row.size)))
        assert slow <= row.plain_tokens_per_second <= fast
        assert other.tokens_per_second == pytest.approx((slow + fast) / 2), "the median of two"
        assert other.user_tokens_per_second[0] > 0
    assert list(size_figure(report).data[0].x) == ["1", "2", "4"]
    assert [line.name for line in load_figure(report, "ttft", "s").data] == ["plain", "speculative"]
    assert [line.name for line in load_figure(report, "acceptance_rate", "").data] == ["speculative"]
    assert report_table(report).count("<tr>") == 7
    assert json.loads(report.to_json())["answers"]["compared"] == 60
    assert not users_left()


def test_answers_that_are_mixed_up_are_caught(served: ServerPair, deployments: tuple[Counting, Counting]) -> None:
    deployments[1].mixes = True
    report = load_test(served, PROMPTS, SHORT, users=[2], repeats=1, requests=6)
    assert (crossed := report.answers["crossed"])
    assert f"mixes requests up: {crossed} answers are those to another prompt" in report.conclusion


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"users": [0]}, SettingsError, "users: must be a whole number from 1 to 256, not 0"),
        ({"users": [1, 1000]}, SettingsError, "users: must be whole numbers from 1 to 256, not 1000"),
        ({"users": [8], "requests": 4}, SettingsError, "requests: 4 are fewer than the 8 users"),
        ({"budget_seconds": 0}, SettingsError, "budget_seconds: must be above 0"),
        ({"pair": None}, SettingsError, "a load test sends requests; give a ServerPair"),
        ({"pair": ServerPair("http://127.0.0.1:9", None, "m")}, ServerError, "no speculative_url"),
        ({"settings": replace(SHORT, strategy="autoregressive")}, SettingsError, "drafts nothing to compare"),
        (
            {"settings": replace(SHORT, gamma=3, drafter="prompt_lookup")},
            SettingsError,
            "drafts as it was started",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_sent(
    served: ServerPair, deployments: tuple[Counting, Counting], options: dict, error: type, said: str
) -> None:
    given = {"pair": served, "prompts": PROMPTS, "settings": SHORT, "users": [1], **options}
    with pytest.raises(error, match=said):
        stream_load_test(**given)
    assert not deployments[0].requests


def test_what_goes_wrong_on_the_way_ends_all_users_with_one_sentence() -> None:
    pair = endless_pair("llama")
    with FakeVLLM(pair, key=KEY) as plain, FakeVLLM(pair, DRAFTS, key=KEY, pause=0.01, fault_after=3) as drafted:
        both = ServerPair(plain.url, drafted.url, "toy", KEY, timeout=5)
        with pytest.raises(ServerError, match="refuses the key") as refused:
            load_test(replace(both, api_key="wrong"), PROMPTS, SHORT, users=[2])
        assert "wrong" not in str(refused.value)
        steps = stream_load_test(both, PROMPTS, SHORT, users=[1, 4], repeats=1)
        first = next(steps)
        drafted.fault = "cut"  # it dies while four users wait
        with pytest.raises(ServerError, match="broke off"):
            list(steps)
    assert first.report.runs
    assert not users_left()


def test_stop_and_the_budget_end_it_in_the_middle_of_a_run() -> None:
    pair, stop = endless_pair("llama"), Event()
    with FakeVLLM(pair) as plain, FakeVLLM(pair, DRAFTS, pause=0.2) as drafted:
        both = ServerPair(plain.url, drafted.url, "toy")
        steps = stream_load_test(both, PROMPTS, SHORT, users=[4], repeats=9, requests=64, stop=stop)
        threading.Timer(0.5, stop.set).start()
        began = time.monotonic()
        assert not list(steps)
        drafted.pause = 0.02
        report = load_test(both, PROMPTS, SHORT, users=[2], repeats=1000, budget_seconds=3)
        assert time.monotonic() - began < 20
        with pytest.raises(SettingsError, match="budget_seconds: they were over before the first run"):
            load_test(both, PROMPTS, SHORT, users=[2], budget_seconds=1e-3)
    assert 0 < len(report.runs) < report.total
    assert report.conclusion.startswith(("So far", "The machine was busy"))
    assert not users_left()


def test_a_busy_machine_is_told_from_a_slow_server() -> None:
    """Guards the figures of a server that is started from here, by the rules of every measurement."""
    steady = LoadMetrics(
        **{"users": 4, "output": 400, "emitted": 392, "rounds": 392, "proposed": 0, "accepted": 0},
        **{"accepted_histogram": [392], "seconds": 4.0, "tokens_per_second": 100.0, "ttft": [0.1] * 8},
        **{"user_tokens_per_second": [25.0] * 8, "mean_users": 3.9, "round_seconds": 0.04},
        **{"quarters": (0.04, 0.04, 0.041, 0.04), "differing": 0, "crossed": 0, "slots": 4},
    )
    drafted = replace(steady, rounds=150, round_seconds=0.08, tokens_per_second=130.0)
    assert disturbance(steady.pace, drafted.pace) is None
    assert "took 40 ms at one time and 60" in disturbance(
        replace(steady, quarters=(0.04, 0.06)).pace, drafted.pace
    )
    assert "which no target can do" in disturbance(steady.pace, replace(drafted, round_seconds=0.02).pace)
    alone = [replace(figures, users=1) for figures in (steady, drafted)]
    assert "seemed cheaper" in disturbance(alone[0].pace, replace(alone[1], tokens_per_second=400.0).pace)


def test_gguf_files_get_a_slot_for_each_user(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Real servers of llama.cpp, the builtin pair in float32; another with one slot, for which users wait."""
    settings = replace(SHORT, gamma=4, ignore_eos=True)
    name = f"{files['target']} + {files['draft']}"
    others = processes()  # of pairs that another test left to the garbage collector
    with specdemo.load_pair(name) as pair:
        pair.threads = 1
        wide = pair.with_slots(3, 1000)
        before = processes()
        assert wide.flags(settings)[2:6] == ("-c", "3072", "-np", "3")
        report = load_test(pair, ["Once upon a time", "A cat sat."], settings, users=(1, 2), repeats=1)
        assert report.answers == {"compared": 16, "differing": 0, "crossed": 0}
        assert {run.figures.slots for run in report.runs} == {2}
        assert processes() <= before, "its own servers end with it"
        assert report.measured[1].mean_acceptance_length > 1.5
        monkeypatch.setattr("specdemo.servers.gguf.free_memory", lambda device: 10**6)
        with pytest.raises(SettingsError, match=r"users: KV caches of 200 slots of .* take fewer users"):
            load_test(pair, "Hi", settings, users=[200])
    assert processes() <= others
    with llama_server(files["target"], "-np", "1", "-c", "512") as one:
        toml = tmp_path / "servers.toml"
        toml.write_text(
            f'[[server]]\nid = "one"\nmodel = "m"\nbaseline_url = "{one.url}"\nspeculative_url = "{one.url}"\n'
        )
        monkeypatch.setenv(FILE, str(toml))
        words = "load Hi --server one --users 3 3 --repeats 1 --max-new-tokens 8 --requests 3 --ignore-eos --csv -"
        assert main(words.split()) == 0
    written, said = capsys.readouterr()
    assert [line.split(",")[0] for line in written.splitlines()] == [
        "method",
        "plain decoding",
        "the server's speculation",
    ]
    said = " ".join(said.split())
    assert "The server answers 1 at a time, so more users wait: start it with -np 3." in said
    assert "Nothing was drafted" in said


def test_the_page_offers_it_for_own_servers_alone(
    served: ServerPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = tmp_path / "servers.toml"
    urls = f'baseline_url = "{served.baseline_url}"\nspeculative_url = "{served.speculative_url}"\n'
    toml.write_text(f'[[server]]\nid = "mine"\nmodel = "toy"\n{urls}')
    monkeypatch.setenv(FILE, str(toml))
    chosen = panel("server:mine:plain", "server:mine:speculative", pair="server:mine", chat=False)
    job = sizes_job(chosen)
    assert job.is_load
    assert plan(chosen, job).endswith("384 requests by 1, 2, 4, 8 users of at most 64 tokens, 192 of them plain.")
    job = replace(job, prompts=PROMPTS, sizes=(1, 2), repeats=1)
    report = [step.report for step in job.start(None, Event())][-1]
    assert isinstance(report, LoadReport)
    assert report.complete
    with pytest.raises(PairError, match="needs the models"):
        batch_job(chosen)
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")
    with pytest.raises(PairError, match="for servers of your own"):
        sizes_job(chosen)
