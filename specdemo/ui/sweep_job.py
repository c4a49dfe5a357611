"""A γ sweep as a measurement for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdemo.analysis.sweep_report import SweepReport
from specdemo.settings import Settings
from specdemo.sweep import SweepProgress, stream_sweep
from specdemo.ui.measuring import Measurement
from specdemo.ui.progress_text import counted, left


@dataclass(frozen=True, slots=True)
class Plan:
    """What a visitor wants measured."""

    prompts: list[str]
    settings: Settings
    gammas: Sequence[int]
    repeats: int

    @property
    def measurement(self) -> Measurement:
        """How to do it."""
        return Measurement(
            start=lambda pair, stop: stream_sweep(
                pair, self.prompts, self.settings, self.gammas, self.repeats, stop
            ),
            told=_told,
            counted=_counted,
        )


def _told(progress: SweepProgress) -> str:
    what = "plain decoding" if progress.run.gamma == 0 else f"γ = {progress.run.gamma}"
    return (
        f"Run {progress.done} of {progress.total} ({what}, prompt {progress.run.prompt + 1}, "
        f"repeat {progress.run.repeat + 1}), {left(progress.seconds_left)}"
    )


def _counted(report: SweepReport) -> str:
    prompts, repeats = counted(report.prompts, "prompt"), counted(report.repeats, "repeat")
    tokens = counted(report.settings.max_new_tokens, "token")
    return f"Done: {len(report.runs)} runs ({prompts}, {repeats}), interleaved, of at most {tokens} each."
