"""The γ sweep: plain decoding and every γ, on every prompt, several times over, in an order fair to all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Event

from specdemo.analysis.sweep_report import PLAIN, SweepReport
from specdemo.analysis.sweep_rows import SweepRun
from specdemo.decoding.drafters.registry import check_drafter
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode_all
from specdemo.runs.measuring import (
    Progress,
    drafting,
    finished_run,
    measured_on,
    run_of,
    seconds_left,
    warm_up,
)
from specdemo.runs.single import Prompt
from specdemo.servers.pair import ServerPair, on_server
from specdemo.settings import MAX_GAMMA, SEEDS, Settings, at_least_one, whole_numbers

GAMMAS = range(2, 9)
WARM_UP_TOKENS = 2 * MAX_GAMMA
SweepProgress = Progress[SweepRun, SweepReport]


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
        runs=(),
        **measured_on(pair),
    )
    return _runs(pair, ids, report, stop)


def order(contenders: Sequence[int | None], prompt: int, repeat: int) -> list[int | None]:
    """The contenders for a prompt in a repeat, rotated by one each time: a machine that slows down is fair."""
    first = (prompt + repeat) % len(contenders)
    return [*contenders[first:], *contenders[:first]]


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
    report = SweepReport(
        settings, (None,), len(texts), repeats, (), pair=pair.name, dtype="unknown", server=pair.name
    )
    return _runs(pair, texts, report, stop)


def _runs(
    pair: ModelPair | ServerPair, prompts: list[Prompt], report: SweepReport, stop: Event
) -> Iterator[SweepProgress]:
    began, contenders = time.perf_counter(), (PLAIN, *report.gammas)
    short = warm_up(report.settings, WARM_UP_TOKENS)
    for gamma in (PLAIN, report.gammas[-1]):
        if finished_run(pair, prompts[0], _settings(short, gamma, 0), stop) is None:
            return
    for repeat in range(report.repeats):
        for number, prompt in enumerate(prompts):
            for gamma in order(contenders, number, repeat):
                trace = finished_run(pair, prompt, _settings(report.settings, gamma, repeat), stop)
                if trace is None:
                    return
                finished = run_of(trace, gamma, number, repeat)
                if trace.server is not None:
                    report = replace(report, server_gamma=report.server_gamma or trace.server.gamma)
                report = replace(report, runs=(*report.runs, finished))
                done = len(report.runs)
                yield Progress(done, report.total, finished, seconds_left(began, done, report.total), report)


def _settings(settings: Settings, gamma: int | None, repeat: int) -> Settings:
    """The settings of one run. Repeats have other seeds, so that sampled figures are not those of one text."""
    seed = (settings.seed + repeat) % SEEDS
    if gamma == PLAIN:
        return replace(settings, strategy="autoregressive", seed=seed)
    return replace(settings, gamma=gamma or settings.gamma, seed=seed)
