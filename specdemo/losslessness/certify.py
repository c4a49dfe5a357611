"""Is sampling lossless? Many short runs of both strategies, with a verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, replace
from random import Random

from specdemo.errors import SettingsError
from specdemo.losslessness.certificate import Certificate, Conclusion, Table, count_tokens
from specdemo.losslessness.scoring import EvidenceCollector
from specdemo.losslessness.sequential_test import RunEvidence, TestMartingale, detectable, too_alike
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import can_batch, run_batch
from specdemo.runs.encode import encode
from specdemo.runs.single import Prompt, run
from specdemo.runs.threads import decoding_threads
from specdemo.servers.pair import check_here
from specdemo.settings import Settings
from specdemo.trace import Trace

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
) -> Iterator[Certificate]:
    """The same a few pairs of runs at a time: what is known so far, and last the verdict.

    What ``certify`` raises is raised here at once, not at the first pair.
    """
    certifier = Certifier(pair, prompt, settings, runs, tokens, error_rate)

    def steps() -> Iterator[Certificate]:
        while not certifier.done:
            certifier.step()
            yield certifier.certificate()

    return steps()


@dataclass
class Certifier:
    """A test under way. Arguments and errors are those of :func:`certify`."""

    pair: ModelPair
    prompt: InitVar[Prompt]
    settings: Settings
    runs: int = RUNS
    tokens: int = TOKENS
    error_rate: float = ERROR_RATE

    def __post_init__(self, prompt: Prompt) -> None:
        pair, settings, tokens = self.pair, self.settings, self.tokens
        _check(settings, self.runs, tokens, self.error_rate)
        self.ids = encode(pair, prompt, settings.chat, [settings])
        context = pair.context_for(settings)
        if context is not None and len(self.ids) + tokens > context:
            raise SettingsError(
                "tokens",
                f"the prompt's {len(self.ids):,} and {tokens} more do not fit in this pair's context of "
                f"{context:,}; shorten the prompt or the runs.",
            )
        self.settings = replace(settings, max_new_tokens=tokens)
        self._seeds = Random(settings.seed)
        self._collector: EvidenceCollector | None = None
        self._exact = pair.dtype == "float32" and pair.quantization is None
        self._at_once = AT_ONCE if self._exact and can_batch(pair, settings) else 1
        self._martingale = TestMartingale(exact=self._exact)
        self._evidence: list[tuple[RunEvidence, RunEvidence]] = []
        self._alike = False
        self._texts: dict[int, str] = {}
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
        with decoding_threads(self.pair):
            if self._collector is None:
                self._collector = EvidenceCollector(self.pair, self.ids, self.settings)
            for traces in self._pairs(min(self._at_once, self.runs - self._martingale.pairs)):
                plain, speculative = (self._collector.evidence(trace.token_ids) for trace in traces)
                self._evidence.append((plain, speculative))
                for trace in traces:
                    self._texts |= {t.id: t.text for t in trace.output if t.id is not None and t.text}
                self._martingale.update(plain, speculative)
                if self._differs:
                    break
                if self._martingale.pairs == LOOK_PAIRS < self.runs:
                    plain_runs = [plain for plain, _ in self._evidence]
                    self._alike = too_alike(plain_runs, self.runs, self.error_rate)
        self._seconds += time.perf_counter() - begin

    def _pairs(self, count: int) -> Iterator[tuple[Trace, Trace]]:
        """That many (plain, speculative) runs; several are rows of a batch, as eight take no longer than two."""
        # Each run has a seed of its own: two runs of one seed would share their first token and be no
        # independent pair.
        both = (replace(self.settings, strategy="autoregressive"), self.settings)
        wanted = [[replace(s, seed=self._seeds.getrandbits(62)) for s in both] for _ in range(count)]
        if count == 1:
            plain, speculative = wanted[0]
            yield run(self.pair, self.ids, plain), run(self.pair, self.ids, speculative)
            return
        batches = (run_batch(self.pair, [self.ids] * count, list(rows)) for rows in zip(*wanted, strict=True))
        yield from zip(*batches, strict=True)

    def certificate(self) -> Certificate:
        """What is known so far; runs no model."""
        pairs = self._martingale.pairs
        runs = [run_ for pair in self._evidence[:POWER_PAIRS] for run_ in pair]
        power = None if self._differs else detectable(runs, pairs, self.error_rate, exact=self._exact)
        verdict: Conclusion = "passes" if self.done and power and not self._alike else "undecided"
        drafts = self._collector is not None and self._collector.drafts
        return Certificate(
            verdict="differs" if self._differs else verdict,
            settings=self.settings,
            runs=pairs,
            budget=self.runs,
            tokens=self.settings.max_new_tokens,
            evidence=self._martingale.peak,
            error_rate=self.error_rate,
            detectable=power,
            reference="the draft's token" if drafts else "the likeliest token",
            tables=(self._table("All tokens after the first"), self._table("The second token", 1)),
            seconds=self._seconds,
            pair=self.pair.name,
            prompt_ids=tuple(self.ids),
            alike=self._alike,
        )

    def _table(self, title: str, most: int | None = None) -> Table:
        """The tokens of all runs after the first, of each run so many at most."""
        plain, speculative = (
            [token for pair in self._evidence for token in pair[side].tokens[:most]] for side in (0, 1)
        )
        return count_tokens(title, plain, speculative, self._texts)


def _check(settings: Settings, runs: int, tokens: int, error_rate: float) -> None:
    if not isinstance(settings, Settings):
        raise SettingsError("settings", f"must be a specdemo.Settings, not {type(settings).__name__}.")
    check_here([settings], "this test")
    if settings.greedy:
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
