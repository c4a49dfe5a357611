"""The γ sweep: plain decoding and every γ, on every prompt, several times over, in an order fair to all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event

from specdemo.analysis.contenders import PLAIN, SERVER, Contender
from specdemo.analysis.sweep_report import SweepReport
from specdemo.decoding.drafters.registry import check_drafter
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.runs.beside import in_engine
from specdemo.runs.measuring import Driver, Progress, drafting, measured_on, opened, to_its_end
from specdemo.runs.single import Prompt
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import ServedPair
from specdemo.settings import MAX_GAMMA, Settings, at_least_one, whole_numbers

GAMMAS = range(2, 9)
WARM_UP_TOKENS = 2 * MAX_GAMMA


def stream_sweep(
    pair: ModelPair | ServedPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    gammas: Sequence[int] = GAMMAS,
    repeats: int = 1,
    stop: Event | None = None,
) -> Iterator[Progress[SweepReport]]:
    """Measure every γ against plain decoding; each step holds the report so far. ``sweep`` gives the last one.

    Args:
        pair: the models; or their deployments, or None if the settings name a configured server. γ is then the
            server's own, and the report has one row.
        prompts: one prompt or several; a list of whole numbers is one prompt's token ids.
        settings: of the speculative runs; ``gamma`` is the sweep's.
        gammas: the γ to try, each from 1 to 16.
        repeats: times each run is made; a sampled run with another seed each time.
        stop: ends it within one round; a run that was not finished is not counted.

    Raises:
        PromptError: there is no prompt, or one cannot be decoded; says which. At once, as all of these.
        SettingsError: γ, repeats or settings are out of range, or ask for what this pair does not have.
        ServerError: a server cannot be asked, or fails on the way.
    """
    settings = drafting(settings, "a sweep drafts by itself and cannot run {}")
    if settings.adaptive_gamma:
        raise SettingsError("adaptive_gamma", "a sweep holds γ still to measure it; switch adaptive γ off.")
    if settings.drafts_trees:
        raise SettingsError("tree_nodes", "a sweep measures chains of each γ; set tree nodes to 0.")
    times = at_least_one("repeats", repeats)
    pair = in_engine(pair, settings)
    pair, given = opened(pair, prompts, settings, [settings])
    if isinstance(pair, ModelPair):
        check_drafter(pair, settings)
    if isinstance(pair, ModelPair | GgufPair):
        wanted = whole_numbers("gammas", gammas, MAX_GAMMA, "range(2, 9)")
        tried = [Contender(settings.drafter, gamma) for gamma in wanted]
    elif list(gammas) == list(GAMMAS):
        tried = [Contender(SERVER)]
    else:
        raise SettingsError("gammas", "a server drafts with a γ of its own; leave gammas out.")
    report = SweepReport(
        base=settings, contenders=(PLAIN, *tried), prompts=len(given), repeats=times, **measured_on(pair)
    )
    return Driver(pair, given, report, stop or Event()).steps(WARM_UP_TOKENS, (PLAIN, tried[-1]))


sweep = to_its_end("sweep", stream_sweep)
