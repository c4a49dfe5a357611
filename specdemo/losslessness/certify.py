"""Is sampling lossless? Many short runs of both strategies, with a verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence

from specdemo.errors import SettingsError
from specdemo.losslessness.certificate import Certificate, Table, count_tokens
from specdemo.losslessness.model_runs import ModelRuns, RunSource
from specdemo.losslessness.sequential_test import RunEvidence, TestMartingale, detectable, too_alike
from specdemo.models.pair import ModelPair
from specdemo.runs.single import Prompt, checked
from specdemo.servers.pair import check_here
from specdemo.settings import Settings

RUNS, TOKENS, ERROR_RATE = 250, 12, 0.001
PROMPT = "Can you find me a movie?"  # can be answered in many ways; of a list no test can say anything
LOOK_PAIRS = 24  # after which it is known whether the runs are too alike to go on
POWER_PAIRS = 500  # from whose runs the power is computed
TABLES = {"All tokens after the first": None, "The second token": 1}
"""Title of a table of tokens → of each run so many at most."""


def certify(
    pair: ModelPair,
    prompt: Prompt,
    settings: Settings,
    runs: int = RUNS,
    tokens: int = TOKENS,
    error_rate: float = ERROR_RATE,
) -> Certificate:
    """Judge whether ``settings`` draw from the distribution that plain sampling draws from.

    Args:
        pair: the models.
        prompt: for all runs.
        settings: of the strategy to be judged, at a temperature above 0; their seed is that of the whole test.
        runs: pairs of runs, one plain and one of the strategy; fewer are made if a difference shows earlier.
        tokens: of each run, in place of the settings' length. The first is the prefill's in any strategy.
        error_rate: the chance, at most, that a lossless strategy is said to differ, over the whole test.

    Raises:
        PromptError: the prompt is empty, too long or outside the vocabulary.
        SettingsError: what is asked for is out of range, or the pair does not have it.
    """
    *_, last = stream_certificate(pair, prompt, settings, runs, tokens, error_rate)
    return last


def stream_certificate(
    pair: ModelPair,
    prompt: Prompt,
    settings: Settings,
    runs: int = RUNS,
    tokens: int = TOKENS,
    error_rate: float = ERROR_RATE,
) -> Generator[Certificate]:
    """The same a few pairs of runs at a time: what is known so far, and last the verdict.

    What ``certify`` raises is raised here at once, not at the first pair.
    """
    check_test(settings, runs, tokens, error_rate)
    check_here([settings], "this test")
    return certificates(ModelRuns(pair, prompt, settings, tokens), runs, error_rate)


def certificates(source: RunSource, runs: int, error_rate: float) -> Generator[Certificate]:
    """What is known after every few pairs of a source, and last the verdict; pairs count one by one."""
    martingale, evidence = TestMartingale(exact=source.exact), list[tuple[RunEvidence, RunEvidence]]()
    seconds, differs, alike = 0.0, False, False
    while not (differs or alike or martingale.pairs >= runs):
        began = time.perf_counter()
        for pair in source.pairs(min(source.at_once, runs - martingale.pairs)):
            evidence.append(pair)
            martingale.update(*pair)
            differs = martingale.peak >= 1 / error_rate
            if differs:
                break
            if martingale.pairs == LOOK_PAIRS < runs:
                alike = too_alike([plain for plain, _ in evidence], runs, error_rate)
        seconds += time.perf_counter() - began
        made = [each for both in evidence[:POWER_PAIRS] for each in both]
        power = None if differs else detectable(made, martingale.pairs, error_rate, exact=source.exact)
        passes = martingale.pairs >= runs and power and not alike
        yield Certificate(
            verdict="differs" if differs else "passes" if passes else "undecided",
            settings=source.settings,
            runs=martingale.pairs,
            budget=runs,
            tokens=source.settings.max_new_tokens,
            evidence=martingale.peak,
            error_rate=error_rate,
            detectable=power,
            reference=source.reference,
            tables=tuple(_table(title, most, evidence, source.texts) for title, most in TABLES.items()),
            seconds=seconds,
            pair=source.name,
            prompt_ids=source.ids,
            alike=alike,
        )


def _table(
    title: str, most: int | None, evidence: Sequence[tuple[RunEvidence, RunEvidence]], texts: dict[int, str]
) -> Table:
    plain, speculative = ([token for both in evidence for token in both[side].tokens[:most]] for side in (0, 1))
    return count_tokens(title, plain, speculative, texts)


def check_test(settings: Settings, runs: int, tokens: int, error_rate: float) -> None:
    """Raises SettingsError of what cannot be tested."""
    if checked(settings).greedy:
        raise SettingsError(
            "temperature",
            "0 is greedy: every run gives the same text, so one is enough; use check_greedy on its trace, or "
            "choose a temperature such as 1.",
        )
    for field, value, low, high in (("runs", runs, 1, 100_000), ("tokens", tokens, 2, 256)):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise SettingsError(field, f"must be a whole number from {low} to {high:,}, not {value!r}.")
    number = isinstance(error_rate, int | float) and math.isfinite(error_rate)
    if not number or not 1e-12 <= error_rate <= 0.1:
        raise SettingsError(
            "error_rate", f"must be a number from 1e-12 to 0.1, such as 0.001, not {error_rate!r}."
        )
