"""Batch sizes: what is measured, where drafting stops to pay, and what is kept when memory runs out."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from threading import Event

import pytest
from conftest import endless_pair, prompt_ids, toy_pair

import specdemo
from specdemo import MemoryShortage, Settings, SizeReport
from specdemo.analysis.batch_diagnosis import explain_batch
from specdemo.analysis.batch_metrics import BatchMetrics, measure_batch
from specdemo.analysis.batch_sizes import SizeRun
from specdemo.batch_sizes import batch_sizes, stream_batch_sizes
from specdemo.ui.batch_results import size_figure

PROMPTS = [prompt_ids(9), prompt_ids(17)]
SHORT = Settings(gamma=3, max_new_tokens=8)


@pytest.fixture(scope="module")
def figures() -> BatchMetrics:
    return measure_batch(specdemo.run_batch(endless_pair("llama"), PROMPTS, SHORT))


def made_up(figures: BatchMetrics, speedups: dict[int, float], **fields: object) -> SizeReport:
    """A report of one repeat in which plain batches do 100 tokens a second."""
    runs = []
    for size, speedup in speedups.items():
        runs.append(SizeRun(size, False, 0, replace(figures, tokens_per_second=100.0)))
        runs.append(SizeRun(size, True, 0, replace(figures, tokens_per_second=100.0 * speedup)))
    return SizeReport(SHORT, tuple(speedups), 2, 1, tuple(runs), **fields)


def test_every_size_is_measured_plain_and_drafted_in_turns() -> None:
    """Guards fairness and counts: all rows of all batches, the prompts taken again where rows are more."""
    report = batch_sizes(endless_pair("llama"), PROMPTS, SHORT, sizes=(1, 3), repeats=2)
    assert report.complete
    assert [(r.size, r.repeat) for r in report.runs[::2]] == [(1, 0), (3, 0), (1, 1), (3, 1)]
    assert all({a.drafted, b.drafted} == {True, False} for a, b in zip(*[iter(report.runs)] * 2, strict=True))
    assert report.runs[0].drafted is not report.runs[4].drafted
    for run in report.runs:
        assert run.figures.rows == run.size
        assert run.figures.emitted == 7 * run.size
    for row in report.rows:
        pairs = [
            (drafted.figures.tokens_per_second / plain.figures.tokens_per_second)
            for drafted in report.runs
            for plain in report.runs
            if drafted.drafted
            and not plain.drafted
            and (drafted.size, drafted.repeat) == (plain.size, plain.repeat) == (row.size, plain.repeat)
        ]
        assert row.speedup == pytest.approx(sum(pairs) / 2)
        assert (row.speedup_low, row.speedup_high) == (min(pairs), max(pairs))


@pytest.mark.parametrize(
    ("speedups", "crossover", "said"),
    [
        ({1: 2.0, 4: 1.5}, None, "Drafting pays at the largest size tried: 2.00× with 1 row, 1.50× with 4 rows."),
        ({1: 2.0, 4: 0.9, 8: 0.8}, 4, "Drafting pays below 4 rows and not from there on: 2.00× with 1 row"),
        ({1: 0.9, 2: 0.8}, 1, "Drafting does not pay at any size tried: 0.90× with 1 row, 0.80× with 2 rows."),
        ({1: 2.0, 2: 0.9, 4: 1.2, 8: 0.9}, 8, "Drafting pays below 8 rows"),
        ({4: 1.5}, None, "Drafting pays at the largest size tried: 1.50× with 4 rows."),
        ({}, None, "Nothing was measured yet"),
    ],
)
def test_the_crossover_is_the_size_from_which_drafting_no_longer_pays(
    figures: BatchMetrics, speedups: dict[int, float], crossover: int | None, said: str
) -> None:
    """Guards the sentence that people quote."""
    report = made_up(figures, speedups)
    assert report.crossover == crossover
    assert report.conclusion.startswith(said)


def test_a_size_that_does_not_fit_is_said_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the person with a small GPU: sixteen rows run out of memory in the middle of the measurement."""
    stream = specdemo.batch_sizes.__globals__["stream_batch"]

    def small(pair: object, prompts: list, rows: list) -> object:
        if len(prompts) >= 4:
            raise MemoryShortage("memory: it ran out with 4 rows")
        return stream(pair, prompts, rows)

    monkeypatch.setitem(specdemo.batch_sizes.__globals__, "stream_batch", small)
    report = batch_sizes(endless_pair("llama"), PROMPTS, SHORT, sizes=(1, 2, 4, 8), repeats=2)
    assert report.ran_out == 4
    assert report.complete
    assert [row.size for row in report.rows] == [1, 2]
    assert report.conclusion.endswith("Memory ran out at 4 rows.")


def test_a_measurement_that_is_stopped_keeps_what_is_finished() -> None:
    stop = Event()
    steps = stream_batch_sizes(endless_pair("llama"), PROMPTS, SHORT, sizes=(1, 2), stop=stop)
    first = next(steps)
    stop.set()
    assert list(steps) == []
    assert (first.done, first.total) == (1, 4)
    assert not first.report.complete
    assert first.report.conclusion.startswith("Nothing was measured yet")


def test_files_hold_what_is_shown(figures: BatchMetrics) -> None:
    report = made_up(figures, {1: 2.0, 2: 1.5}, pair="toy", machine={"device": "CPU"})
    lines = list(csv.DictReader(io.StringIO(report.to_csv())))
    record = json.loads(report.to_json())
    assert [float(line["speedup"]) for line in lines] == [2.0, 1.5] == [row["speedup"] for row in record["rows"]]
    assert record["machine"] == {"device": "CPU"}
    assert record["runs"][0]["figures"] == figures.as_dict() | {"tokens_per_second": 100.0}
    assert list(size_figure(report).data[0].x) == ["1", "2"]
    assert list(size_figure(report).data[0].y) == [2.0, 1.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": []}, "sizes: there are none"),
        ({"sizes": [0, 1]}, "sizes: must be whole numbers from 1 to 256, not 0"),
        ({"sizes": 2.5}, r"sizes: must be a whole number from 1 to 256, not 2\.5"),
        ({"repeats": True}, "repeats: must be a whole number of at least 1, not True"),
        ({"settings": Settings(strategy="autoregressive")}, "strategy: .*choose 'speculative'"),
        ({"settings": Settings(drafter="early_exit")}, "drafter: 'early_exit' has no batch"),
        ({"settings": Settings(max_new_tokens=1)}, "max_new_tokens: .*give at least 2"),
        ({"prompts": []}, "prompt: there is none"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(change: dict[str, object], message: str) -> None:
    arguments = {"pair": toy_pair("llama"), "prompts": PROMPTS, "settings": SHORT} | change
    with pytest.raises(specdemo.SpecDemoError, match=message):
        stream_batch_sizes(**arguments)


def test_the_reason_is_made_of_the_measured_times(figures: BatchMetrics) -> None:
    """Guards the sentence: 10 plain steps of 10 ms each against 4 drafted ones of 15 ms that keep 2.5 tokens."""
    plain = replace(figures, rows=2, steps=10, ttft=0.0, seconds=0.1, tokens_per_second=200.0, mean_rows=2.0)
    drafted = replace(
        figures,
        rows=2,
        steps=4,
        draft_seconds=0.02,
        verify_seconds=0.036,
        other_seconds=0.004,
        tokens_per_second=300.0,
        mean_acceptance_length=2.5,
        mean_rows=1.5,
        padding=0.25,
    )
    assert explain_batch(plain, drafted) == (
        "1.5×: a step keeps 2.50 tokens a row and takes 1.50 plain steps (0.50 for drafting, 0.90 for one pass of "
        "the target, 0.10 for everything else). Rows end apart: 1.5 of 2 take part in a drafted step on average, "
        "2.0 in a plain one. 25% of the positions computed only filled up shorter rows."
    )
    assert explain_batch(replace(plain, tokens_per_second=None), drafted) is None
