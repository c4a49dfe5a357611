"""A γ sweep as a measurement for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event

from specdemo.analysis.sweep_report import SweepReport
from specdemo.models.pair import ModelPair
from specdemo.runs.sweep import GAMMAS, SweepProgress, stream_sweep
from specdemo.settings import Settings
from specdemo.ui.jobs.gpu_time import decode_seconds
from specdemo.ui.jobs.measuring import Measurement
from specdemo.view.progress_text import counted, left

SERVERS_OWN = (None,)
"""In place of γ on a server, which has its own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a visitor wants measured."""

    prompts: list[str]
    settings: Settings
    gammas: Sequence[int | None]
    repeats: int

    @property
    def measurement(self) -> Measurement:
        """How to do it."""
        plain = replace(self.settings, strategy="autoregressive")
        contenders = [plain, *(replace(self.settings, gamma=g or self.settings.gamma) for g in self.gammas)]
        seconds = sum(map(decode_seconds, contenders)) * len(self.prompts) * self.repeats
        return Measurement(self._start, _told, _counted, seconds)

    def _start(self, pair: ModelPair | None, stop: Event) -> Iterator[SweepProgress]:
        gammas = GAMMAS if self.gammas == SERVERS_OWN else self.gammas
        return stream_sweep(pair, self.prompts, self.settings, gammas, self.repeats, stop)


def _told(progress: SweepProgress) -> str:
    gamma = progress.run.gamma
    what = "plain decoding" if gamma == 0 else "speculative decoding" if gamma is None else f"γ = {gamma}"
    return (
        f"Run {progress.done} of {progress.total} ({what}, prompt {progress.run.prompt + 1}, "
        f"repeat {progress.run.repeat + 1}), {left(progress.seconds_left)}"
    )


def _counted(report: SweepReport) -> str:
    prompts, repeats = counted(report.prompts, "prompt"), counted(report.repeats, "repeat")
    tokens = counted(report.settings.max_new_tokens, "token")
    return f"Done: {len(report.runs)} runs ({prompts}, {repeats}), interleaved, of at most {tokens} each."
