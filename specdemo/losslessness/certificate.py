"""What many runs say about a strategy: the verdict, how sure it is, and the two distributions side by side."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from specdemo.analysis.wording import counted
from specdemo.errors import TraceError
from specdemo.losslessness.sequential_test import Detectable
from specdemo.records import parsed, validated
from specdemo.settings import Settings

NAME = "specdemo certificate"
CERTIFICATE_SCHEMA = 1
Conclusion = Literal["passes", "differs", "undecided"]
SHOWN = 12
"""Tokens in a table, the most frequent ones."""
USUALLY_ENOUGH = 100
"""Pairs of runs after which a test of a dozen tokens a run finds what would matter."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """How often one token came, in the plain and in the speculative runs."""

    id: int
    text: str
    plain: int
    speculative: int


@dataclass(frozen=True, slots=True)
class Table:
    """The two empirical distributions over some places of the output.

    Attributes:
        title: which places.
        outcomes: the most frequent tokens.
        plain, speculative: all tokens that were counted, also those too rare to be listed.
    """

    title: str
    outcomes: tuple[TokenCount, ...]
    plain: int
    speculative: int

    def shares(self, outcome: TokenCount) -> tuple[float, float]:
        """The outcome's share of the plain and of the speculative tokens."""
        return outcome.plain / max(self.plain, 1), outcome.speculative / max(self.speculative, 1)

    def intervals(self, outcome: TokenCount) -> tuple[tuple[float, float], tuple[float, float]]:
        """95 % intervals of these two shares, as if each token were drawn by itself."""
        return wilson(outcome.plain, self.plain), wilson(outcome.speculative, self.speculative)

    def most_different(self) -> TokenCount | None:
        """The outcome whose shares lie furthest apart, in standard deviations of their difference."""

        def apart(outcome: TokenCount) -> float:
            plain, speculative = self.shares(outcome)
            share = (outcome.plain + outcome.speculative) / (self.plain + self.speculative)
            spread = share * (1 - share) * (1 / max(self.plain, 1) + 1 / max(self.speculative, 1))
            return abs(plain - speculative) / math.sqrt(spread) if spread > 0 else 0.0

        return max(self.outcomes, key=apart, default=None)


@dataclass(frozen=True)
class Certificate:
    """The judgement on a strategy's output distribution, final or so far.

    Attributes:
        verdict: ``passes``: all runs were made and no difference was found; ``differs``: the evidence reached
            1/error_rate; ``undecided``: runs are missing, or could not find anything.
        settings: of the speculative runs; their seed is that of the whole test.
        runs: pairs of runs made, one plain and one speculative.
        budget: pairs asked for.
        tokens: of a run, at most.
        evidence: the most that the test martingale reached from 1; its reciprocal is the p-value.
        error_rate: the chance, at most, that a lossless strategy is ever said to differ.
        detectable: the fault that would have been caught 99 times of 100; None if not known (yet).
        reference: what that fault takes unchecked, for people.
        tables: the empirical distributions.
        seconds: spent on the runs.
        pair: its name; empty in records of earlier versions.
        prompt_ids: the prompt of all runs; with pair, settings, budget and tokens, whose seed is that of the whole
            test, they make the same runs again.
        alike: whether the test ended early since the prompt's runs are too alike to find anything.
        schema: version of this record.
    """

    verdict: Conclusion
    settings: Settings
    runs: int
    budget: int
    tokens: int
    evidence: float
    error_rate: float
    detectable: Detectable | None
    reference: str
    tables: tuple[Table, ...]
    seconds: float
    pair: str = ""
    prompt_ids: tuple[int, ...] = ()
    alike: bool = False
    schema: int = CERTIFICATE_SCHEMA

    @property
    def fraction(self) -> float:
        """How many of the runs were made, from 0 to 1."""
        return self.runs / self.budget

    @property
    def p_value(self) -> float:
        """The chance, at most, that evidence as strong as this ever arises where nothing differs."""
        return min(1.0, 1 / self.evidence)

    @property
    def text(self) -> str:
        """The statement for people."""
        made = f"{counted(self.runs, 'pair')} of runs"
        if self.verdict == "differs":
            return (
                f"The outputs differ: were both distributions the same, evidence this strong would come up at "
                f"most once in {rounded(self.evidence)} tests.{self._where()}"
            )
        if self.verdict == "passes":
            return f"After {made} no difference was found. {self._power()}"
        if self.alike:
            return (
                f"This prompt leaves the target too little choice: {made} are so alike that {self.budget:,} could "
                "find nothing. Choose one that can go on in many ways, such as the beginning of a story."
            )
        if self.runs >= self.budget:
            more = max(2 * self.runs, USUALLY_ENOUGH)
            return f"Too few to find anything: {made}; choose at least {more}, or longer runs."
        of = counted(self.budget, "pair")
        return f"No difference found yet, after {self.runs:,} of {of} of runs. {self._power()}".strip()

    @property
    def evidence_text(self) -> str:
        """What the evidence is, for people."""
        return (
            "Bettors with a stake of 1 in all bet at fair odds that the speculative texts are no draws of the "
            "target’s exact probabilities or, in 16 bit, which text of a pair is the speculative one: where "
            f"nothing differs, no way of betting gains. Their stake was worth {rounded(self.evidence)} at its "
            f"best; {rounded(1 / self.error_rate)} ends the test."
        )

    def to_json(self) -> str:
        """This record as JSON; ``Certificate.from_json`` reads it back."""
        more = {"p_value": self.p_value, "text": self.text}
        return json.dumps({**asdict(self), **more}, ensure_ascii=False, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Certificate:
        """Read a saved certificate.

        Raises:
            TraceError: not a certificate of this schema; says where it fails.
        """
        data = parsed(text, NAME)
        if not isinstance(data, dict) or data.get("schema") != CERTIFICATE_SCHEMA:
            raise TraceError(f"This is not a {NAME}: this version reads schema {CERTIFICATE_SCHEMA}.")
        fields = {name: value for name, value in data.items() if name not in ("p_value", "text")}
        return validated(Certificate, fields, NAME)

    def _where(self) -> str:
        table = self.tables[0]
        outcome = table.most_different()
        if outcome is None:
            return ""
        plain, speculative = (_percent(share) for share in table.shares(outcome))
        name = outcome.text.strip() or outcome.text
        return f" Most visibly at “{name}”: {speculative} of tokens instead of {plain}."

    def _power(self) -> str:
        found = self.detectable
        if found is None:
            return ""
        if found.temperature is not None:
            warm = self.settings.temperature
            other = f"A temperature of {warm * found.temperature:.2g} in place of {warm:g}"
            return f"{other} would have been caught 99 times of 100."
        return (
            f"A rule that took {self.reference} unchecked at {found.share:.0%} of places, which shifts "
            f"{_percent(found.shift)} of the probability there, would have been caught 99 times of 100."
        )


def wilson(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, Journal of the American Statistical Association 22, 1927)."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, count / of
    scale = 1 + z * z / of
    middle = (share + z * z / (2 * of)) / scale
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def count_tokens(title: str, plain: Sequence[int], speculative: Sequence[int], texts: Mapping[int, str]) -> Table:
    """The table of plain and speculative tokens; ``texts`` says how a token reads."""
    counts = Counter(plain), Counter(speculative)
    common = (counts[0] + counts[1]).most_common(SHOWN)
    outcomes = [TokenCount(t, texts.get(t) or f"#{t}", counts[0][t], counts[1][t]) for t, _ in common]
    return Table(title, tuple(outcomes), len(plain), len(speculative))


def rounded(value: float) -> str:
    """Two digits are enough to say how sure one is, and rounding down never overstates."""
    if value < 100:
        return f"{math.floor(10 * value) / 10:.1f}" if value < 10 else f"{math.floor(value)}"
    scale = 10 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / scale + 1e-9) * scale:,}" if value < 1e9 else "a thousand million"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"
