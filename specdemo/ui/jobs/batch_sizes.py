"""Batch sizes as a measurement for the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Event

from specdemo.analysis.batch_sizes import SizeReport
from specdemo.models.pair import ModelPair
from specdemo.runs.batch_sizes import SizeProgress, stream_batch_sizes
from specdemo.settings import Settings
from specdemo.ui.jobs.gpu_time import decode_seconds
from specdemo.ui.jobs.measuring import Measurement
from specdemo.view.progress_text import counted, left


@dataclass(frozen=True, slots=True)
class SizesPlan:
    """What a visitor wants measured."""

    prompts: list[str]
    settings: Settings
    sizes: tuple[int, ...]
    repeats: int

    @property
    def measurement(self) -> Measurement:
        """How to do it."""
        plain = replace(self.settings, strategy="autoregressive")
        both = decode_seconds(plain) + decode_seconds(self.settings)
        # Every size decodes the prompts of the largest, in so many batches.
        batches = sum(-(-max(self.sizes) // size) for size in self.sizes) * self.repeats
        return Measurement(self._start, _told, _counted, both * batches)

    def _start(self, pair: ModelPair, stop: Event) -> Iterator[SizeProgress]:
        return stream_batch_sizes(pair, self.prompts, self.settings, self.sizes, self.repeats, stop)


def _told(progress: SizeProgress) -> str:
    if progress.run is None:
        return f"Memory ran out at {counted(progress.report.ran_out, 'row')}, {left(progress.seconds_left)}"
    how = "drafted" if progress.run.drafted else "plain"
    rows = counted(progress.run.size, "row")
    return f"Batch {progress.done} of {progress.total} ({how}, {rows}), {left(progress.seconds_left)}"


def _counted(report: SizeReport) -> str:
    repeats = counted(report.repeats, "repeat")
    tokens = counted(report.settings.max_new_tokens, "token")
    return f"Done: {len(report.runs)} batches ({repeats}), plain and drafted in turns, of at most {tokens} a row."
