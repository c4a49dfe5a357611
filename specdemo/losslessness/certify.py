"""Is sampling lossless? Many short runs of both strategies, with a verdict."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import replace
from random import Random

from specdemo.errors import SettingsError
from specdemo.losslessness.certificate import Certificate, Conclusion, Table, count_tokens
from specdemo.losslessness.scoring import EvidenceCollector
from specdemo.losslessness.sequential_test import RunEvidence, TestMartingale, detectable, too_alike
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import can_batch, run_batch
from specdemo.runs.encode import encode
from specdemo.runs.single import Prompt, checked, run
from specdemo.runs.threads import decoding_threads
from specdemo.servers.pair import check_here
from specdemo.settings import Settings

RUNS, TOKENS, ERROR_RATE = 250, 12, 0.001
PROMPT = "Tell a story of a little girl named Lily."  # can go on in many ways; of a list no test can say anything
LOOK_PAIRS = 24  # after which it is known whether the runs are too alike to go on
POWER_PAIRS = 500  # from whose runs the power is computed
AT_ONCE = 8  # pairs run together; a row of a float32 batch has the tokens of a run of its own


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


class RunSource(ABC):
    """Where the pairs of runs of a test come from; ``exact`` as of ``sequential_test.gains``."""

    reference = "the likeliest token"

    def __init__(self, name: str, ids: Sequence[int], settings: Settings, *, exact: bool, at_once: int) -> None:
        self.name, self.ids, self.settings, self.exact, self.at_once = name, tuple(ids), settings, exact, at_once
        self.texts = dict[int, str]()  # of the tokens that came so far
        self._seeds = Random(settings.seed)

    @abstractmethod
    def pairs(self, count: int) -> list[tuple[RunEvidence, RunEvidence]]:
        """The evidence of so many more pairs of runs, plain and to be judged."""

    def seeded(self, count: int) -> list[list[Settings]]:
        """Of each pair the plain and the other run, each with a seed of its own.

        Two runs of one seed would share their first token and be no independent pair.
        """
        both = (replace(self.settings, strategy="autoregressive"), self.settings)
        return [[replace(s, seed=self._seeds.getrandbits(62)) for s in both] for _ in range(count)]


class ModelRuns(RunSource):
    """Runs of a pair in this process, from one prompt."""

    def __init__(self, pair: ModelPair, prompt: Prompt, settings: Settings, tokens: int) -> None:
        ids = encode(pair, prompt, settings.chat, [settings])
        context = pair.context_for(settings)
        if context is not None and len(ids) + tokens > context:
            raise SettingsError(
                "tokens",
                f"the prompt's {len(ids):,} and {tokens} more do not fit in this pair's context of "
                f"{context:,}; shorten the prompt or the runs.",
            )
        settings = replace(settings, max_new_tokens=tokens)
        exact = pair.dtype == "float32" and pair.quantization is None
        at_once = AT_ONCE if exact and can_batch(pair, settings) else 1
        super().__init__(pair.name, ids, settings, exact=exact, at_once=at_once)
        self._pair = pair
        self._collector: EvidenceCollector | None = None

    def pairs(self, count: int) -> list[tuple[RunEvidence, RunEvidence]]:
        """As rows of a batch, where that is the same: eight take no longer than two."""
        with decoding_threads(self._pair):
            if self._collector is None:
                self._collector = EvidenceCollector(self._pair, self.ids, self.settings)
                self.reference = "the draft's token" if self._collector.drafts else self.reference
            sides = []
            for lanes in zip(*self.seeded(count), strict=True):
                if count == 1:
                    traces = [run(self._pair, self.ids, lanes[0])]
                else:
                    traces = run_batch(self._pair, [self.ids] * count, list(lanes))
                self.texts |= {t.id: t.text for tr in traces for t in tr.output if t.id is not None and t.text}
                sides.append([self._collector.evidence(trace.token_ids) for trace in traces])
        return [*zip(*sides, strict=True)]


def certificates(source: RunSource, runs: int, error_rate: float) -> Generator[Certificate]:
    """What is known after every few pairs of a source, and last the verdict."""
    tested = Certifier(source, runs, error_rate)
    while not tested.done:
        tested.step()
        yield tested.certificate()


class Certifier:
    """A test under way: ``runs`` pairs of a source at most, at a rate of false alarms."""

    def __init__(self, source: RunSource, runs: int, error_rate: float) -> None:
        self.source, self.runs, self.error_rate = source, runs, error_rate
        self._martingale = TestMartingale(exact=source.exact)
        self._evidence: list[tuple[RunEvidence, RunEvidence]] = []
        self._alike = False
        self._seconds = 0.0

    @property
    def done(self) -> bool:
        """Whether there is a verdict, or no run is left."""
        return self._differs or self._alike or self._martingale.pairs >= self.runs

    @property
    def _differs(self) -> bool:
        return self._martingale.peak >= 1 / self.error_rate

    def step(self) -> None:
        """Make a few more pairs of runs; they count one by one, up to a verdict."""
        begin = time.perf_counter()
        for pair in self.source.pairs(min(self.source.at_once, self.runs - self._martingale.pairs)):
            self._evidence.append(pair)
            self._martingale.update(*pair)
            if self._differs:
                break
            if self._martingale.pairs == LOOK_PAIRS < self.runs:
                plain_runs = [plain for plain, _ in self._evidence]
                self._alike = too_alike(plain_runs, self.runs, self.error_rate)
        self._seconds += time.perf_counter() - begin

    def certificate(self) -> Certificate:
        """What is known so far; runs no model."""
        pairs, source = self._martingale.pairs, self.source
        runs = [run_ for pair in self._evidence[:POWER_PAIRS] for run_ in pair]
        power = None if self._differs else detectable(runs, pairs, self.error_rate, exact=source.exact)
        verdict: Conclusion = "passes" if self.done and power and not self._alike else "undecided"
        return Certificate(
            verdict="differs" if self._differs else verdict,
            settings=source.settings,
            runs=pairs,
            budget=self.runs,
            tokens=source.settings.max_new_tokens,
            evidence=self._martingale.peak,
            error_rate=self.error_rate,
            detectable=power,
            reference=source.reference,
            tables=(self._table("All tokens after the first"), self._table("The second token", 1)),
            seconds=self._seconds,
            pair=source.name,
            prompt_ids=source.ids,
            alike=self._alike,
        )

    def _table(self, title: str, most: int | None = None) -> Table:
        """The tokens of all runs after the first, of each run so many at most."""
        plain, speculative = (
            [token for pair in self._evidence for token in pair[side].tokens[:most]] for side in (0, 1)
        )
        return count_tokens(title, plain, speculative, self.source.texts)


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
