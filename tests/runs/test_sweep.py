"""The γ sweep on toy pairs: counts against traces, order, report, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from toys import endless_pair, prompt_ids, scripted, toy_pair

import specdemo
from specdemo.analysis.contenders import PLAIN, Contender
from specdemo.analysis.rows import Run
from specdemo.analysis.sweep_report import SweepReport
from specdemo.metrics import RoundCounts
from specdemo.models.request import request_pair
from specdemo.prompt import messages_of
from specdemo.runs import measuring
from specdemo.runs.advise import stream_advice
from specdemo.runs.batch_sizes import stream_batch_sizes
from specdemo.runs.measuring import turned
from specdemo.runs.prompts import LARGEST_FILE, prompt_lines, read_with_kinds
from specdemo.runs.sweep import stream_sweep, sweep
from specdemo.settings import Settings
from specdemo.ui.jobs.job import JobState, LaneRequest, until_the_end
from specdemo.ui.jobs.measuring import STOPPED_EARLY, MeasureJob
from specdemo.view.charts import speed_figure, speedup_figure

PROMPTS = [prompt_ids(9), prompt_ids(17)]
GAMMAS = (2, 4)


@pytest.fixture(scope="module")
def report() -> SweepReport:
    """Real counts, with the times of a quiet machine."""
    found = sweep(endless_pair("llama"), PROMPTS, Settings(max_new_tokens=20), GAMMAS, repeats=2)

    def timed(s: RoundCounts) -> RoundCounts:
        return replace(
            s, draft_seconds=0.001 * s.drafted, verify_seconds=0.01 + 0.001 * s.drafted, other_seconds=0.0
        )

    return replace(found, runs=tuple(replace(r, steps=tuple(map(timed, r.steps))) for r in found.runs))


def test_counts_are_those_of_the_traces(report: SweepReport) -> None:
    """Greedy runs repeat exactly, so single runs give the same counts; two repeats double them."""
    assert [row.gamma for row in report.rows] == list(GAMMAS)
    for row in report.rows:
        settings = Settings(max_new_tokens=20, gamma=row.gamma)
        rounds = [r for p in PROMPTS for r in specdemo.run(endless_pair("llama"), p, settings).rounds[1:]]
        counts = [len(rounds), sum(r.drafted for r in rounds), sum(r.accepted for r in rounds), len(PROMPTS) * 19]
        assert [row.rounds, row.proposed, row.accepted, row.emitted] == [2 * count for count in counts]
        kept = [r.accepted for r in rounds]
        assert row.accepted_histogram == [2 * kept.count(i) for i in range(row.gamma + 1)]
        for j, share in enumerate(row.conditional_per_position):
            reached = [r for r in rounds if r.drafted > j and r.accepted >= j]
            assert share == sum(r.accepted > j for r in reached) / len(reached)
            assert row.per_position[j] == sum(r.accepted > j for r in rounds) / len(rounds)


def test_the_sweep_is_whole_and_interleaved(report: SweepReport) -> None:
    """Guards fairness: every prompt and repeat has every γ and a plain run, each time in another order."""
    assert report.complete
    made = [(r.repeat, r.prompt, r.gamma) for r in report.runs]
    assert sorted(made) == [(i, p, g) for i in range(2) for p in range(2) for g in (0, *GAMMAS)]
    assert [r.gamma for r in report.runs[:9]] == [0, 2, 4, 2, 4, 0, 2, 4, 0]
    places = Counter((g, turned((0, 2, 4), p + r).index(g)) for p in range(3) for r in range(3) for g in (0, 2, 4))
    assert set(places.values()) == {3}


def on_the_page(
    prompts: list[list[int]], thread: ThreadPoolExecutor | None = None, stop: Event | None = None
) -> JobState:
    """The last state of a sweep of γ 2 and 3, as the page measures it."""
    lane, stop = LaneRequest(Settings(max_new_tokens=8), request_pair("builtin")), stop or Event()
    job = MeasureJob([list(p) for p in prompts], lane, 1, (2, 3))
    *_, last = until_the_end(job, job.states([endless_pair("llama")], thread or ThreadPoolExecutor(1), stop), stop)
    return last


def step(drafted: int, accepted: int, draft: float, verify: float, other: float = 0.0) -> RoundCounts:
    return RoundCounts(drafted, accepted, accepted + 1, draft, verify, other)


def made_up(*speeds: tuple[int, int, float]) -> SweepReport:
    """A report of full rounds of which all is kept: (γ, repeat, seconds a round)."""
    return report_of(*(Run(of(g), 0, r, (step(g, g, 0.0, s),) * 20) for g, r, s in speeds), repeats=3)


def report_of(*runs: Run, repeats: int = 1) -> SweepReport:
    gammas = sorted({r.gamma for r in runs} | {0})
    return SweepReport(base=Settings(), contenders=tuple(map(of, gammas)), prompts=1, repeats=repeats, runs=runs)


def of(gamma: int) -> Contender:
    return Contender("model", gamma) if gamma else PLAIN


def test_speedups_compare_with_the_plain_runs_of_the_same_repeat_and_the_middle_is_shown() -> None:
    """A machine that slows down in the second repeat slows both sides; the third plain run had a hiccup."""
    report = made_up((0, 0, 1.0), (2, 0, 1.5), (0, 1, 2.0), (2, 1, 3.0), (0, 2, 1.4), (2, 2, 1.5))
    row = report.rows[0]
    assert (row.speedup, row.speedup_low, row.speedup_high) == pytest.approx((2.0, 2.0, 2.8))
    assert (row.tokens_per_second, row.plain_tokens_per_second) == (2.0, 1.0), "of one repeat, so that they divide"
    assert report.plain_tokens_per_second == pytest.approx(1 / 1.4)


def test_costs_and_prediction_of_runs_made_by_hand() -> None:
    """τ, c, v and o worked out on paper: two full rounds of γ 2 and a last one that drafted nothing."""
    plain = Run(PLAIN, 0, 0, (step(0, 0, 0.0, 1.0, 0.1),) * 5)
    drafted = Run(of(2), 0, 0, (step(2, 2, 0.4, 1.5, 0.2), step(2, 0, 0.4, 1.5, 0.2), step(0, 0, 0.0, 1.0, 0.2)))
    row = report_of(plain, drafted).rows[0]
    assert (row.draft_cost, row.verify_cost, row.overhead_cost) == pytest.approx((0.2, 1.5, 0.2))
    assert row.conditional_per_position == [0.5, 1.0]
    assert row.expected_speedup == pytest.approx((1 + 0.5 + 0.5) / (0.4 + 1.5))
    assert row.predicted_speedup == pytest.approx(1.1 * (2 + 2 + 1) / (2 * (0.4 + 1.5 + 0.2) + 1.2))
    assert row.speedup == pytest.approx((1.1 * 5 / 5) / ((2 * 2.1 + 1.2) / 5))


LEVEL = {0: (1.0, 1.0, 1.0), 2: (1.5, 1.45, 1.55), 3: (1.92, 2.0, 1.84), 4: (2.4, 2.48, 2.5), 5: (3.3,) * 3}
"""2.00× (1.94 to 2.07), 2.08× (2.00 to 2.17), 2.02× and 1.80×: ranges that overlap within 5 %, and one apart."""


@pytest.mark.parametrize(
    ("seconds", "best", "pays", "said"),
    [
        ({0: (1.0,), 2: (1.5,), 4: (2.49,), 6: (7.0,)}, 2, True, "γ 2 and 4 are level; 2 is the smallest."),
        (LEVEL, 2, True, "γ 2 to 4 are level; 2 is the smallest."),
        ({0: (1.0,) * 3, 2: (2.8, 3.2, 2.9)}, 2, None, "Whether speculation pays here is open"),
        (
            {0: (1.0,), 2: (1.5,), 4: (2.0,), 6: (7.0,)},
            4,
            True,
            "So far: Draft 4 tokens a round (γ = 4): 2.50× as",
        ),
        ({0: (1.0, 1.0), 2: (1.5, 2.5)}, None, None, "The repeats differ widely"),
        (
            {0: (2.0,), 2: (1.6,)},
            None,
            None,
            "Rounds that keep 3.00 tokens seemed cheaper than plain steps. By the tokens of its rounds no setting "
            "here can pass 3.00×.",
        ),
        ({0: (1.0,), 2: (6.0,)}, 2, False, "Do not speculate"),
        ({0: (1.0, 1.0), 2: (3.0, 9.0)}, None, None, "The repeats differ widely"),
        ({0: (1.0, 1.0), 2: (3.0, 3.3)}, 2, False, "(0.91 to 1.00 over the repeats)"),
        ({2: (1.0,)}, None, False, "Nothing was measured"),
    ],
)
def test_the_lowest_gamma_that_is_level_with_the_best_is_recommended(
    seconds: dict[int, tuple[float, ...]], best: int | None, pays: bool | None, said: str
) -> None:
    """Each case: the seconds of a round, by γ and repeat."""
    found = made_up(*((g, repeat, s) for g, times in seconds.items() for repeat, s in enumerate(times)))
    assert (found.best_gamma, found.pays) == (best, pays)
    assert said in found.recommendation


def test_json_and_csv_say_the_same(report: SweepReport) -> None:
    """What is saved must be enough to check the figures: rows again from the runs' counts."""
    record = json.loads(report.to_json())
    lines = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert record["schema"] == 3
    assert record["best_gamma"] == report.best_gamma
    assert record["settings"]["max_new_tokens"] == 20
    for row, shown, saved, line in zip(report.rows, report.shown, record["rows"], lines, strict=True):
        assert saved == shown.as_dict()
        assert float(line["speedup"]) == row.speedup
        assert line["accepted_histogram"] == " ".join(map(str, row.accepted_histogram))
        assert (line["schema"], line["pair"], line["drafter"]) == ("3", "in memory", "model")
    assert [Run.from_dict(each).steps for each in record["runs"]] == [run.steps for run in report.runs]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(drafter="early_exit"),
        Settings(acceptance="sampling", temperature=0.8),
        Settings(acceptance="top_k"),
    ],
)
def test_every_drafter_and_rule_can_be_swept(settings: Settings) -> None:
    """End tokens and rounds that draft nothing included; guards divisions by nothing."""
    report = sweep(toy_pair("llama"), PROMPTS, replace(settings, max_new_tokens=16), (1, 3), repeats=2)
    assert report.complete
    assert json.loads(report.to_json())["rows"]
    assert all(row.speedup is not None for row in report.rows)


def test_runs_that_end_with_the_first_token_have_no_speed_and_break_nothing() -> None:
    """Guards divisions by nothing: an end token may come first, whatever length was asked for."""
    pair = specdemo.ModelPair(scripted([7, 7], 3, 64, eos=[7]), scripted([7, 7], 3, 64, eos=[7]))
    report = sweep(pair, prompt_ids(3), Settings(max_new_tokens=5), (2,))
    assert report.rows[0].speedup is None
    assert report.best_gamma is None
    assert report.to_csv()


def test_a_sweep_that_is_stopped_while_it_warms_up_measures_nothing_and_says_so() -> None:
    """Guards Stop pressed at once: no run is made first, and the message does not promise results."""
    stop = Event()
    stop.set()
    assert list(stream_sweep(endless_pair("llama"), PROMPTS, Settings(max_new_tokens=8), stop=stop)) == []
    last = on_the_page(PROMPTS[:1], stop=stop)
    assert (last.phase, last.message, last.result) == ("stopped", STOPPED_EARLY, None)


def test_repeats_of_sampled_runs_draw_different_texts() -> None:
    settings = Settings(acceptance="sampling", temperature=1.5, max_new_tokens=30)
    report = sweep(endless_pair("llama"), PROMPTS[0], settings, (3,), repeats=2)
    patterns = [[s.accepted for s in run.steps] for run in report.runs if run.gamma == 3]
    assert patterns[0] != patterns[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gammas": [0]}, "gammas: must be a whole number from 1 to 16, not 0"),
        ({"gammas": ["3"]}, "not '3'"),
        ({"gammas": []}, "gammas: there are none"),
        ({"repeats": 0}, "repeats: must be a whole number of at least 1, not 0"),
        ({"prompts": []}, "prompt: there is none"),
        ({"prompts": None}, "prompt: must be a text or a list of texts or of token ids, not NoneType"),
        ({"prompts": [b"bytes", "text"]}, "number 1 of 2: must be text or a list of token ids"),
        ({"settings": Settings(max_new_tokens=1)}, "max_new_tokens: .*give at least 2"),
        ({"prompts": [PROMPTS[0], prompt_ids(300)]}, "number 2 of 2: it has 300 tokens"),
        ({"settings": Settings(adaptive_gamma=True)}, "adaptive_gamma: .*switch adaptive γ off"),
        ({"settings": Settings(strategy="autoregressive")}, "strategy: .*choose 'speculative'"),
        ({"pair": "builtin"}, "pair: must be a ModelPair"),
        ({"sizes": []}, "sizes: there are none"),
        ({"sizes": [0, 1]}, "sizes: must be whole numbers from 1 to 256, not 0"),
        ({"sizes": [1], "repeats": True}, "repeats: must be a whole number of at least 1, not True"),
        ({"sizes": [1], "settings": Settings(strategy="autoregressive")}, "strategy: .*choose 'speculative'"),
        ({"sizes": [1], "settings": Settings(drafter="early_exit")}, "drafter: 'early_exit' has no batch"),
        ({"budget_seconds": 0}, "budget_seconds: must be a number above 0"),
        ({"methods": ["guess"]}, "methods: 'guess' is not known; choose from model"),
        ({"methods": [["model"]]}, "methods: give a list"),
        ({"kinds": ["a", "b\nc"]}, "kinds: give a text of one line for each"),
        ({"methods": None, "settings": Settings(exit_layer=99)}, "exit_layer: must be below the target's"),
        ({"kinds": ["code"]}, "kinds: give a text of one line for each of the 2 prompts"),
        ({"kinds": [], "settings": Settings(strategy="assisted")}, "the advisor drafts by itself"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(change: dict[str, object], message: str) -> None:
    advised = {"budget_seconds", "methods", "kinds"} & change.keys()
    measure = stream_advice if advised else stream_batch_sizes if "sizes" in change else stream_sweep
    arguments = {"pair": toy_pair("llama"), "prompts": PROMPTS, "settings": Settings()} | change
    with pytest.raises(specdemo.SpecDemoError, match=message):
        measure(**arguments)


def test_prompts_and_gammas_may_come_from_generators_and_numpy_and_one_prompt_of_ids_is_one_prompt() -> None:
    """Guards what a notebook passes without a thought; a list of numbers is no list of prompts."""
    import numpy as np

    given, short = (p for p in PROMPTS), Settings(max_new_tokens=6)
    report = sweep(endless_pair("llama"), given, short, np.arange(2, 4), repeats=1)
    assert (report.prompts, report.gammas) == (2, (2, 3))
    assert json.loads(report.to_json())["gammas"] == [2, 3]
    assert sweep(endless_pair("llama"), list(PROMPTS[0]), short, (2,)).prompts == 1


def test_on_the_page_other_visitors_runs_come_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep must give the models' thread back after every run."""
    made: list[int] = []
    seen: list[int] = []
    thread = ThreadPoolExecutor(1)
    one_run = measuring.finished_run

    def watched(*arguments: object) -> object:
        if not made:
            thread.submit(lambda: seen.append(len(made)))  # another visitor's
        made.append(1)
        return one_run(*arguments)

    monkeypatch.setattr(measuring, "finished_run", watched)
    monkeypatch.setattr(measuring, "TIMES_AGAIN", 0)  # whatever else this machine does
    last = on_the_page(PROMPTS, thread)
    assert (last.phase, len(made), seen) == ("done", 8, [3])  # two to warm up


# --- prompts from files -----------------------------------------------------------------------------------


def test_prompts_and_their_kinds_are_read_from_lines_and_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeff\n\none\n  two \r\nthree\n\n", encoding="utf-8")
    text = '{"prompt": "a\u2028b", "kind": "code"}\n\n{"text": "c\\nd", "id": 3}\n{"text": "e", "kind": null}\n'
    (tmp_path / "b.jsonl").write_text(text, encoding="utf-8")
    assert read_with_kinds(tmp_path / "a.txt") == [("one", ""), ("two", ""), ("three", "")]
    assert read_with_kinds(tmp_path / "b.jsonl") == [("a\u2028b", "code"), ("c\nd", ""), ("e", "")]


def test_files_of_benchmarks_are_read_as_they_are(tmp_path: Path) -> None:
    """Guards MT-Bench's, Spec-Bench's, SPEED-Bench's and DeepSpec's turns, a list as prompt, and conversations."""
    said = [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Bye"),
        ("assistant", "Bye."),
    ]
    messages = [{"role": role, "content": content} for role, content in said]
    records: list[dict[str, Any]] = [
        {"question_id": 81, "category": "writing", "turns": ["A blog.", "Shorter."], "reference": ["x"]},
        {"prompt": ["One", "Two"], "prompt_id": 3, "category": "math"},
        {"messages": messages, "kind": "chat", "category": "other"},
        {"question_id": "a1", "category": "coding", "sub_category": "c", "turns": ["Sort."], "multiturn": False},
        {"turns": ["2 + 2?"], "task_id": "gsm8k/1"},
    ]
    file = tmp_path / "question.jsonl"
    file.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    found = read_with_kinds(file)
    assert found[:4] == [
        ("A blog.", "writing"),
        ("A blog.\n\nShorter.", "writing"),
        ("One", "math"),
        ("One\n\nTwo", "math"),
    ]
    assert [kind for _, kind in found[4:6]] == ["chat", "chat"]
    assert [messages_of(prompt) for prompt, _ in found[4:6]] == [messages[:2], messages[:4]]
    assert found[6:] == [("Sort.", "coding"), ("2 + 2?", "")]
    assert messages_of("Hi") == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        ("a\nb\n", ["a", "b"]),
        ("\n\na\nb\r\n \t\r\n\r\nc\n", ["a\nb", "c"]),
        ("a\n\nb\n --- \nc\n", ["a\n\nb", "c"]),
        ("def f():\n    pass\n---", ["def f():\n    pass"]),
        ("a---b\n----\n", ["a---b", "----"]),
    ],
)
def test_prompts_have_several_lines_where_something_separates_them(text: str, prompts: list[str]) -> None:
    """Guards a poem or a function as one prompt: a line of three dashes, else a blank line, else one a line."""
    assert prompt_lines(text) == prompts


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"x", "neither .txt nor .jsonl"),
        ("a.txt", b"", "there is none"),
        ("a.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("a.txt", b"x" * (LARGEST_FILE + 1), r"5\.0 MB; give a file of at most 5 MB"),
        ("a.txt", b"x\n" * 1001, "there are 1,001"),
        ("a.jsonl", b'{"prompt": "x"}\n{oops\n', "a.jsonl, line 2 is not JSON"),
        ("a.jsonl", b'{"prompt": ""}', 'line 1: the field "prompt" must be a text that is not empty'),
        ("a.jsonl", b'{"text": 3}', 'line 1: the field "text" must be a text that is not empty; change'),
        ("a.jsonl", b'{"question": "x"}', "line 1 has no text in a field .*; add one or take the line out"),
        ("a.jsonl", b'["x"]', "line 1 has no text"),
        ("a.jsonl", b"[" * 100_000, "line 1 is not JSON"),
        ("a.jsonl", b'{"turns": ["a"]}\n{"turns": ["a", 3]}', 'line 2: the field "turns" must be a list of'),
        ("a.jsonl", b'{"messages": [{"role": "assistant", "content": "a"}]}', "at least one of them the user’s"),
        ("a.jsonl", b'{"messages": [{"role": "user", "content": ["a"]}]}', 'with a text as "content", such as'),
        ("a.jsonl", b'{"turns": ["a"], "category": 3}', 'line 1: the field "category" must be one line of text'),
        ("a.jsonl", b'{"text": "a", "kind": 3}', 'line 1: the field "kind" must be one line of text'),
        ("a.jsonl", b'{"text": "a", "kind": "a\\nb"}', 'the field "kind" must be one line'),
        ("a.jsonl", b'{"text": "a", "Kind": "code"}', 'the field "kind" must be one line'),
    ],
)
def test_a_bad_file_is_told_what_is_wrong(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(specdemo.PromptError, match=message):
        read_with_kinds(tmp_path / name)


# --- figures ----------------------------------------------------------------------------------------------


def test_the_figures_draw_the_rows(report: SweepReport) -> None:
    rate, speed = speed_figure(report).data
    rows = report.rows
    assert list(rate.y) == [row.acceptance_rate for row in rows]
    assert list(speed.y) == [row.tokens_per_second for row in rows]
    series = {trace.name: trace for trace in speedup_figure(report).data}
    assert list(series["measured"].y) == [row.speedup for row in rows]
    assert list(series["predicted"].y) == [row.predicted_speedup for row in rows]
    tops = [m + e for m, e in zip(series["measured"].y, series["measured"].error_y.array, strict=True)]
    assert tops == pytest.approx([row.speedup_high for row in rows])
    assert list(series["recommended" if report.pays else "best of these"].x) == [report.best_gamma]
