"""Drafted batches against plain ones, size by size: where is the crossover?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle, islice
from threading import Event

from specdemo.analysis.batch_metrics import measure_batch
from specdemo.analysis.batch_sizes import SizeReport, SizeRun
from specdemo.errors import MemoryShortage, SettingsError
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import check_batch, row_settings, stream_batch
from specdemo.runs.encode import encode_all
from specdemo.runs.single import Prompt, checked
from specdemo.settings import SEEDS, Settings, at_least_one, check_measurable, whole_numbers

SIZES = (1, 2, 4, 8, 16)
LARGEST = 256
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class SizeProgress:
    """A batch was finished, or did not fit.

    Attributes:
        done, total: finished batches, and all of them.
        run: the one that was finished last; None if memory ran out.
        seconds_left: estimated from the rows decoded so far, waits included.
        report: everything measured so far.
    """

    done: int
    total: int
    run: SizeRun | None
    seconds_left: float
    report: SizeReport


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
    settings = checked(settings)
    if settings.strategy != "speculative":
        raise SettingsError("strategy", f"{settings.strategy!r} drafts no batch to compare; choose 'speculative'.")
    check_measurable(settings)
    ids = encode_all(pair, prompts, settings.chat)
    check_batch(pair, [settings])
    report = SizeReport(
        settings=settings,
        sizes=whole_numbers("sizes", sizes, LARGEST, "(1, 2, 4, 8, 16)"),
        prompts=len(ids),
        repeats=at_least_one("repeats", repeats),
        pair=pair.name,
        dtype=pair.dtype,
        quantization=pair.quantization,
        machine=machine_of(pair.device, pair.threads),
    )
    return _runs(pair, ids, report, stop or Event())


def _runs(pair: ModelPair, ids: list[list[int]], report: SizeReport, stop: Event) -> Iterator[SizeProgress]:
    """Repeat by repeat, the sizes ascending, plain and drafted first in turns."""
    began = time.perf_counter()
    warm = _Batch(1, 0, 0, False)
    short = replace(report.settings, max_new_tokens=min(WARM_UP_TOKENS, report.settings.max_new_tokens))
    for each in (warm, replace(warm, drafted=True)):  # both ways pay for what only a first run pays
        if _run(pair, ids[:1], short, each, stop) is None:
            return
    rows_done = 0
    for batch in _batches(report):
        if batch.size not in report.fitting:
            continue
        try:
            run = _run(pair, _prompts(ids, report, batch), report.settings, batch, stop)
        except MemoryShortage:
            run, report = None, replace(report, ran_out=batch.size)
        else:
            if run is None:
                return
            rows_done += batch.size
            report = replace(report, runs=(*report.runs, run))
        rows = 2 * report.repeats * sum(size * report.parts(size) for size in report.fitting)
        left = (time.perf_counter() - began) / max(rows_done, 1) * max(rows - rows_done, 0)
        yield SizeProgress(len(report.runs), report.total, run, left, report)


@dataclass(frozen=True, slots=True)
class _Batch:
    """One batch to be made; ``part`` says which of the prompts."""

    size: int
    part: int
    repeat: int
    drafted: bool


def _batches(report: SizeReport) -> Iterator[_Batch]:
    for repeat in range(report.repeats):
        for size in report.sizes:
            for part in range(report.parts(size)):
                turns = (False, True) if (repeat + part) % 2 else (True, False)
                yield from (_Batch(size, part, repeat, drafted) for drafted in turns)


def _prompts(ids: list[list[int]], report: SizeReport, batch: _Batch) -> list[list[int]]:
    """The next so many of the prompts that every size decodes, from the first again where they end."""
    pool = list(islice(cycle(ids), report.rows_each))
    return list(islice(cycle(pool), batch.part * batch.size, (batch.part + 1) * batch.size))


def _run(
    pair: ModelPair, prompts: list[list[int]], settings: Settings, batch: _Batch, stop: Event
) -> SizeRun | None:
    """One batch; None if it was stopped."""
    settings = settings if batch.drafted else replace(settings, strategy="autoregressive")
    # A prompt draws alike in whatever batch it stands, so that sizes do not differ by luck.
    first = (settings.seed + batch.part * batch.size) % SEEDS
    rows = row_settings(replace(settings, seed=first), len(prompts))
    with closing(stream_batch(pair, prompts, rows)) as steps:
        for _ in steps:
            if stop.is_set():
                return None
        return SizeRun(batch.size, batch.part, batch.repeat, batch.drafted, measure_batch(steps.traces()))
