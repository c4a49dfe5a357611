"""Drafted batches against plain ones, size by size: where is the crossover?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from threading import Event

from specdemo.analysis.batch_metrics import BatchMetrics, measure_batch
from specdemo.analysis.batch_sizes import SizeReport, SizeRun
from specdemo.errors import MemoryShortage
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import check_batch, row_settings, stream_batch
from specdemo.runs.encode import encode_all
from specdemo.runs.measuring import Progress, drafting, measured_on, seconds_left, warm_up
from specdemo.runs.single import Prompt
from specdemo.settings import SEEDS, Settings, at_least_one, whole_numbers

SIZES = (1, 2, 4, 8, 16)
LARGEST = 256
WARM_UP_TOKENS = 16
SizeProgress = Progress[SizeRun | None, SizeReport]


def batch_sizes(
    pair: ModelPair,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    sizes: Sequence[int] = SIZES,
    repeats: int = 1,
) -> SizeReport:
    """Measure drafted batches of every size against plain ones.

    Args:
        pair: the models.
        prompts: one or several; every size decodes the same ones, as many as the largest has rows, taken again
            from the first where they are fewer, in sampled runs with other seeds.
        settings: of the drafted batches.
        sizes: rows decoded together.
        repeats: times each batch is made.

    Raises:
        PromptError, SettingsError, PairError: as :func:`specdemo.run_batch`, before anything runs. Memory that
            runs out ends the larger sizes, and the report says at which.
    """
    for progress in stream_batch_sizes(pair, prompts, settings, sizes, repeats):
        report = progress.report
    return report


def stream_batch_sizes(
    pair: ModelPair,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    sizes: Sequence[int] = SIZES,
    repeats: int = 1,
    stop: Event | None = None,
) -> Iterator[SizeProgress]:
    """The same a batch at a time. What ``batch_sizes`` raises is raised here at once.

    Setting ``stop`` ends it within one round; a batch that was not finished is not counted.
    """
    settings = drafting(settings, "{} drafts no batch to compare")
    ids = encode_all(pair, prompts, settings.chat, [settings])
    check_batch(pair, [settings])
    report = SizeReport(
        settings=settings,
        sizes=whole_numbers("sizes", sizes, LARGEST, "(1, 2, 4, 8, 16)"),
        prompts=len(ids),
        repeats=at_least_one("repeats", repeats),
        **measured_on(pair),
    )
    return _runs(pair, ids, report, stop or Event())


def _runs(pair: ModelPair, ids: list[list[int]], report: SizeReport, stop: Event) -> Iterator[SizeProgress]:
    """Repeat by repeat, the sizes ascending, plain and drafted first in turns."""
    began, rows_done = time.perf_counter(), 0
    short = warm_up(report.settings, WARM_UP_TOKENS)
    for drafted in (False, True):
        if _run(pair, ids[:1], short, drafted, stop) is None:
            return
    pool = list(islice(cycle(ids), report.rows_each))
    for repeat, size, part, drafted in _batches(report):
        if size not in report.fitting:
            continue
        first = part * size
        prompts = list(islice(cycle(pool), first, first + size))
        # A prompt has the same seed in batches of any size, so that sizes do not differ by luck.
        settings = replace(report.settings, seed=(report.settings.seed + first) % SEEDS)
        try:
            figures = _run(pair, prompts, settings, drafted, stop)
        except MemoryShortage:
            finished, report = None, replace(report, ran_out=size)
        else:
            if figures is None:
                return
            rows_done += size
            finished = SizeRun(size, part, repeat, drafted, figures)
            report = replace(report, runs=(*report.runs, finished))
        rows = 2 * report.repeats * sum(size * report.parts(size) for size in report.fitting)
        yield Progress(len(report.runs), report.total, finished, seconds_left(began, rows_done, rows), report)


def _batches(report: SizeReport) -> Iterator[tuple[int, int, int, bool]]:
    """(repeat, size, part of the prompts, whether it drafts), plain and drafted first in turns."""
    for repeat in range(report.repeats):
        for size in report.sizes:
            for part in range(report.parts(size)):
                for drafted in (False, True) if (repeat + part) % 2 else (True, False):
                    yield repeat, size, part, drafted


def _run(
    pair: ModelPair, prompts: list[list[int]], settings: Settings, drafted: bool, stop: Event
) -> BatchMetrics | None:
    """The figures of one batch; None if it was stopped."""
    settings = settings if drafted else replace(settings, strategy="autoregressive")
    with closing(stream_batch(pair, prompts, row_settings(settings, len(prompts)))) as steps:
        for _ in steps:
            if stop.is_set():
                return None
        return measure_batch(steps.traces())
