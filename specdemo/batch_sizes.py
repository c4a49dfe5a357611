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
from specdemo.batch import check_batch, row_settings, stream_batch
from specdemo.errors import MemoryShortage, SettingsError
from specdemo.lanes import Prompt, checked, trace_of
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair
from specdemo.prompt import encode_all
from specdemo.settings import Settings, at_least_one, check_measurable, whole_numbers
from specdemo.trace import Round, Trace

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
        prompts: one or several; a larger batch takes them again from the first, in sampled runs with other seeds.
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
        machine=machine_of(pair.device),
    )
    return _runs(pair, ids, report, stop or Event())


def _runs(pair: ModelPair, ids: list[list[int]], report: SizeReport, stop: Event) -> Iterator[SizeProgress]:
    """Repeat by repeat, the sizes ascending, plain and drafted first in turns."""
    began = time.perf_counter()
    if not _warm_up(pair, ids, report.settings, stop):
        return
    rows_done = 0
    for repeat in range(report.repeats):
        for size in report.sizes:
            for drafted in (False, True) if (repeat + size) % 2 else (True, False):
                if size not in report.fitting:
                    continue
                try:
                    run = _run(pair, ids, report.settings, size, drafted, repeat, stop)
                except MemoryShortage:
                    run, report = None, replace(report, ran_out=size)
                else:
                    if run is None:
                        return
                    rows_done += size
                    report = replace(report, runs=(*report.runs, run))
                rows = 2 * report.repeats * sum(report.fitting)
                left = (time.perf_counter() - began) / max(rows_done, 1) * max(rows - rows_done, 0)
                yield SizeProgress(len(report.runs), report.total, run, left, report)


def _run(
    pair: ModelPair,
    ids: list[list[int]],
    settings: Settings,
    size: int,
    drafted: bool,
    repeat: int,
    stop: Event,
) -> SizeRun | None:
    """One batch; None if it was stopped."""
    prompts = list(islice(cycle(ids), size))
    rows = row_settings(settings if drafted else replace(settings, strategy="autoregressive"), size)
    rounds: list[list[Round]] = [[] for _ in prompts]
    with closing(stream_batch(pair, prompts, rows)) as steps:
        for number, round_ in steps:
            rounds[number].append(round_)
            if stop.is_set():
                return None
    traces: list[Trace] = [
        trace_of(pair, prompt, s, row) for prompt, s, row in zip(prompts, rows, rounds, strict=True)
    ]
    return SizeRun(size, drafted, repeat, measure_batch(traces))


def _warm_up(pair: ModelPair, ids: list[list[int]], settings: Settings, stop: Event) -> bool:
    """Let both ways of decoding pay for what only a first run pays; False if it was stopped."""
    short = replace(settings, max_new_tokens=min(WARM_UP_TOKENS, settings.max_new_tokens))
    return all(_run(pair, ids, short, 1, drafted, 0, stop) is not None for drafted in (False, True))
