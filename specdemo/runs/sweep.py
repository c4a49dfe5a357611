"""The γ sweep: plain decoding and every γ, on every prompt, several times over, in an order fair to all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Event

from specdemo.analysis.rows import Run
from specdemo.analysis.sweep_report import SweepReport
from specdemo.decoding.drafters.registry import check_drafter
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode_all
from specdemo.runs.measuring import (
    Block,
    Driver,
    Progress,
    drafting,
    measured_on,
    seconds_left,
    turned,
    warm_up,
)
from specdemo.runs.single import Prompt
from specdemo.servers.pair import ServerPair, on_server
from specdemo.settings import MAX_GAMMA, Settings, at_least_one, whole_numbers
from specdemo.trace import Trace

GAMMAS = range(2, 9)
WARM_UP_TOKENS = 2 * MAX_GAMMA
SweepProgress = Progress[Run, SweepReport]


def sweep(
    pair: ModelPair | ServerPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    gammas: Sequence[int] = GAMMAS,
    repeats: int = 1,
) -> SweepReport:
    """Measure every γ against plain decoding.

    Args:
        pair: the models; or their deployments, or None if the settings name a configured server. γ is then the
            server's own, and the report has one row.
        prompts: one prompt or several; a list of whole numbers is one prompt's token ids.
        settings: of the speculative runs; ``gamma`` is the sweep's.
        gammas: the γ to try, each from 1 to 16.
        repeats: times each run is made; a sampled run with another seed each time.

    Raises:
        PromptError: there is no prompt, or one cannot be decoded; says which.
        SettingsError: γ, repeats or settings are out of range, or ask for what this pair does not have.
        ServerError: a server cannot be asked, or fails on the way.
    """
    for progress in stream_sweep(pair, prompts, settings, gammas, repeats):
        report = progress.report
    return report


def stream_sweep(
    pair: ModelPair | ServerPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    gammas: Sequence[int] = GAMMAS,
    repeats: int = 1,
    stop: Event | None = None,
) -> Iterator[SweepProgress]:
    """The same sweep a run at a time; every step holds the report so far, so that a caller may stop at any time.

    What ``sweep`` raises is raised here at once, not at the first run. Setting ``stop`` ends the sweep within one
    round; a run that was not finished is not counted.
    """
    settings = drafting(settings, "a sweep drafts by itself and cannot run {}")
    if settings.adaptive_gamma:
        raise SettingsError("adaptive_gamma", "a sweep holds γ still to measure it; switch adaptive γ off.")
    if settings.drafts_trees:
        raise SettingsError("tree_nodes", "a sweep measures chains of each γ; set tree nodes to 0.")
    stop = stop or Event()
    if on_server(pair, settings):
        return _on_server(pair, prompts, settings, gammas, at_least_one("repeats", repeats), stop)
    ids = encode_all(pair, prompts, settings.chat, [settings])
    check_drafter(pair, settings)
    report = SweepReport(
        settings=settings,
        gammas=whole_numbers("gammas", gammas, MAX_GAMMA, "range(2, 9)"),
        prompts=len(ids),
        repeats=at_least_one("repeats", repeats),
        **measured_on(pair),
    )
    return _runs(pair, ids, report, stop)


def _on_server(
    pair: ServerPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings,
    gammas: Sequence[int],
    repeats: int,
    stop: Event,
) -> Iterator[SweepProgress]:
    if list(gammas) != list(GAMMAS):
        raise SettingsError("gammas", "a server drafts with a γ of its own; leave gammas out.")
    from specdemo.servers.request import sweep_prompts  # with the libraries that only servers need

    pair, texts = sweep_prompts(pair, prompts, settings)
    report = SweepReport(settings, (None,), len(texts), repeats, pair=pair.name, dtype="unknown", server=pair.name)
    return _runs(pair, texts, report, stop)


class _Sweep(Driver[SweepReport]):
    """Every prompt in every repeat."""

    def blocks(self) -> Iterator[Block]:
        """As of every driver."""
        contenders = self.report.contenders
        for repeat in range(self.report.repeats):
            for prompt in range(len(self.prompts)):
                yield prompt, repeat, turned(contenders, prompt + repeat)

    def add(self, run: Run, trace: Trace) -> SweepProgress:
        """As of every driver."""
        if trace.server is not None:
            self.report = replace(self.report, server_gamma=self.report.server_gamma or trace.server.gamma)
        self.report = replace(self.report, runs=(*self.report.runs, run))
        done, total = len(self.report.runs), self.report.total
        return Progress(done, total, run, seconds_left(self.began, done, total), self.report)


def _runs(
    pair: ModelPair | ServerPair, prompts: Sequence[Prompt], report: SweepReport, stop: Event
) -> Iterator[SweepProgress]:
    driver, contenders = _Sweep(pair, prompts, report, stop, report.settings), report.contenders
    return driver.steps(warm_up(report.settings, WARM_UP_TOKENS), (contenders[0], contenders[-1]))
