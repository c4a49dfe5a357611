"""Batch sizes: what is measured, where drafting stops to pay, and what is kept when memory runs out."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from threading import Event

import pytest
from toys import endless_pair, prompt_ids

import specdemo
import specdemo.runs.batch_sizes as runs_batch_sizes
from specdemo import MemoryShortage, Settings, SizeReport
from specdemo.analysis.batch_metrics import BatchMetrics, measure_batch
from specdemo.analysis.contenders import PLAIN, Contender
from specdemo.analysis.diagnosis import explain_batch
from specdemo.analysis.rows import Run
from specdemo.runs.batch_sizes import batch_sizes, stream_batch_sizes
from specdemo.view.charts import NOTHING_DRAWN, size_figure

PROMPTS = [prompt_ids(9), prompt_ids(17)]
SHORT = Settings(gamma=3, max_new_tokens=8)
DRAFTED = Contender("model", 3)


@pytest.fixture(scope="module")
def figures() -> BatchMetrics:
    return measure_batch(specdemo.run_batch(endless_pair("llama"), PROMPTS, SHORT))


def made_up(figures: BatchMetrics, speedups: dict[int, float | tuple[float, ...]], **fields: object) -> SizeReport:
    """A report in which plain batches do 100 tokens a second; one repeat a speed-up."""
    runs = []
    for size, speedup in speedups.items():
        for repeat, pace in enumerate(speedup if isinstance(speedup, tuple) else (speedup,)):
            for part in range(-(-max(speedups) // size)):
                for contender, rate in ((PLAIN, 100.0), (DRAFTED, 100.0 * pace)):
                    clock = {"ttft": 0.5, "seconds": 0.5 + 1000 / rate}
                    timed = replace(figures, emitted=1000, **clock)
                    runs.append(Run(replace(contender, size=size), part, repeat, (), timed))
    repeats = max((r.repeat + 1 for r in runs), default=1)
    contenders = tuple(replace(c, size=size) for size in speedups for c in (PLAIN, DRAFTED))
    return SizeReport(base=SHORT, contenders=contenders, prompts=2, repeats=repeats, runs=tuple(runs), **fields)


def test_every_size_decodes_the_same_rows_plain_and_drafted_in_turns() -> None:
    """Guards fairness: sizes that were given other prompts would differ by what they had to say."""
    report = batch_sizes(endless_pair("llama"), PROMPTS, SHORT, sizes=(1, 2, 4), repeats=2)
    assert report.complete
    assert report.each == 4
    pairs = list(zip(*[iter(report.runs)] * 2, strict=True))
    made = [(a.repeat, a.contender.size, a.prompt) for a, _ in pairs]
    each = [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (4, 0)]
    assert made == [(repeat, *batch) for repeat in range(2) for batch in each]
    assert made == [(b.repeat, b.contender.size, b.prompt) for _, b in pairs]
    assert all(a.gamma != b.gamma for a, b in pairs)
    assert len({a.gamma for a, _ in pairs}) == 2, "the first of a pair should not always be the same"

    def batches(size: int, drafted: bool, repeat: int) -> list[BatchMetrics]:
        wanted = (size, drafted, repeat)
        return [r.figures for r in report.runs if (r.contender.size, bool(r.gamma), r.repeat) == wanted]

    def counts(size: int, drafted: bool) -> list[int]:
        names = ("rows", "emitted", "proposed", "accepted", "rounds")
        return [sum(getattr(f, name) for f in batches(size, drafted, 0)) for name in names]

    assert counts(1, False) == counts(2, False) == counts(4, False) == [4, 28, 0, 0, 28]
    assert counts(1, True) == counts(2, True) == counts(4, True)
    _, emitted, proposed, accepted, rounds = counts(4, True)
    for row in report.rows:
        assert row.speedup == pytest.approx((row.speedup_low + row.speedup_high) / 2), "the median of two"
        assert row.tokens_per_second / row.plain_tokens_per_second == pytest.approx(row.speedup)
        assert row.acceptance_rate == accepted / proposed
        assert row.mean_acceptance_length == emitted / rounds


def test_sampled_rows_draw_alike_in_batches_of_every_size() -> None:
    """Guards against sizes that differ by luck: row 3 has the same seed alone as in company."""
    settings = Settings(acceptance="sampling", temperature=1.0, gamma=3, max_new_tokens=12)
    report = batch_sizes(endless_pair("llama"), PROMPTS, settings, sizes=(1, 2, 4))
    accepted = [sum(r.figures.accepted for r in report.runs if r.contender.size == size) for size in (1, 2, 4)]
    assert accepted[0] == accepted[1] == accepted[2]


@pytest.mark.parametrize(
    ("speedups", "said"),
    [
        ({1: 2.0, 4: 1.5}, "Drafting pays with 1 and 4 rows: 2.00× with 1 row, 1.50× with 4 rows."),
        ({1: 2.0, 4: 0.9, 8: 0.8}, "Drafting pays with 1 row, does not pay with 4 and 8 rows: 2.00× with 1 row"),
        ({1: 0.9, 2: 0.8}, "Drafting does not pay with 1 and 2 rows: 0.90× with 1 row, 0.80× with 2 rows."),
        ({4: 1.5}, "Drafting pays with 4 rows: 1.50× with 4 rows."),
        ({2: (0.96, 1.01, 1.05)}, "Drafting is undecided with 2 rows: 1.01× with 2 rows. To decide it, repeat it"),
        (
            {1: (1.9, 2.0), 2: (1.5, 1.6), 4: (0.95, 1.05), 8: (0.8, 0.9)},
            "Drafting pays with 1 and 2 rows, does not pay with 8 rows, is undecided with 4 rows: 1.95×",
        ),
        ({}, "Nothing was measured yet"),
    ],
)
def test_it_is_said_with_which_sizes_drafting_pays(
    figures: BatchMetrics, speedups: dict[int, float], said: str
) -> None:
    """Guards the sentence that people quote: it pays, or loses, where every repeat does."""
    assert made_up(figures, speedups).conclusion.startswith(said)


def test_a_size_that_does_not_fit_is_said_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the person with a small GPU: sixteen rows run out of memory in the middle of the measurement."""
    stream = runs_batch_sizes.stream_batch

    def small(pair: object, prompts: list, rows: list) -> object:
        if len(prompts) >= 4:
            raise MemoryShortage("memory: it ran out with 4 rows")
        return stream(pair, prompts, rows)

    monkeypatch.setattr(runs_batch_sizes, "stream_batch", small)
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
    assert (first.done, first.total) == (1, 6)
    assert not first.report.complete
    assert first.report.conclusion.startswith("Nothing was measured yet")


def test_files_hold_what_is_shown(figures: BatchMetrics) -> None:
    report = made_up(figures, {1: 2.0, 2: 1.5}, pair="toy", machine={"device": "CPU"})
    lines = list(csv.DictReader(io.StringIO(report.to_csv())))
    record = json.loads(report.to_json())
    assert [float(line["speedup"]) for line in lines] == [2.0, 1.5] == [row["speedup"] for row in record["rows"]]
    assert record["machine"] == {"device": "CPU"}
    assert record["runs"][0]["figures"]["emitted"] == 1000
    assert list(size_figure(report).data[0].x) == ["1", "2"]
    assert list(size_figure(report).data[0].y) == [2.0, 1.5]
    assert NOTHING_DRAWN not in size_figure(report).to_json()


def test_the_reason_is_made_of_the_measured_times(figures: BatchMetrics) -> None:
    """Guards the sentence: 10 plain steps of 10 ms each against 4 drafted ones of 15 ms that keep 2.5 tokens."""
    plain = replace(figures, rows=2, forwards=10, rounds=20, emitted=20, ttft=0.0, seconds=0.1)
    phases = {"draft_seconds": 0.02, "verify_seconds": 0.036, "other_seconds": 0.004}
    counts = {"forwards": 4, "rounds": 6, "emitted": 15}
    drafted = replace(figures, rows=2, ttft=0.0, seconds=0.06, **phases, **counts)
    assert explain_batch(plain, drafted) == (
        "1.25×: a round keeps 2.50 tokens a row and takes 1.50 plain steps (0.50 for drafting, 0.90 for one pass "
        "of the target, 0.10 for everything else). Rows end apart, which leaves 1.50 of 2 in a drafted round on "
        "average and 2.00 in a plain one."
    )
    assert explain_batch(replace(plain, emitted=0), drafted) is None
