"""What a comparison of two deployments found: the judgement, and the requests that show it again."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import Any

from specdemo.analysis.wording import counted
from specdemo.losslessness.certificate import Certificate
from specdemo.losslessness.compare import TIE_MARGIN
from specdemo.servers.logprobs import Candidate
from specdemo.settings import Settings

Sent = tuple[str, dict[str, Any]]
"""Path and body of a request."""
ORDER = ("identical", "tie", "undecided", "diverged")
"""Outcomes of rows, the worst last."""
LEAST_ROUNDING, MOST_ROUNDING = TIE_MARGIN["float32"], max(TIE_MARGIN.values())
"""What counts as rounding in any case, and what no rounding explains."""
CERTAINTY = 2.0  # rounding may be so many times the largest change among a few answers to one question
PORTS = 8080, 8081
ENTITLED = '${API_KEY:+-H "Authorization: Bearer $API_KEY"}'
"""In bash the header with the key, or nothing where the variable is not set."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an output first parts from the baseline's, and what the baseline says of that place."""

    position: int  # tokens before it, which agree; characters where the outputs have no token ids
    prefix_ids: tuple[int, ...]  # of those tokens, if known
    prefix: str
    own: Candidate  # the baseline's token, with the log-probability that the baseline gives it
    other: Candidate
    gap: float | None  # the median of several answers; a lower bound where the other token is not listed
    change: float  # from the smallest to the largest of them
    question: Sent  # for the likeliest tokens there

    @property
    def apart(self) -> str:
        """The gap for people."""
        if self.gap is None:
            return "not told"
        return f"{'' if self.other.logprob is not None else 'at least '}{abs(self.gap):.2g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt, written several times by both."""

    prompt: str  # for people
    length: int  # of the baseline's output
    unit: str  # ``token``, or ``character`` where ids are not known
    difference: Difference | None  # the first; None if all outputs are the same
    beside: bool  # whether it came only beside other requests
    contradiction: Difference | None  # of the baseline's outputs beside other requests, from its first
    sent: tuple[Sent, ...]  # to each deployment

    def outcome(self, rounding: float) -> str:
        """The judgement where log-probabilities may be off by so much."""
        if self.difference is None:
            return "identical"
        gap = self.difference.gap
        return "undecided" if gap is None else "tie" if abs(gap) <= rounding else "diverged"


@dataclass(frozen=True, slots=True)
class ServedSamples:
    """What was drawn from one prompt."""

    prompt: str  # for people
    runs: int = 0  # pairs
    sent: tuple[Sent, ...] = ()  # one request to each deployment
    plain: tuple[float, ...] = ()  # log p of the tokens of the baseline's runs, by the baseline
    speculative: tuple[float, ...] = ()  # of the other's, by the baseline too


@dataclass(frozen=True)
class DeploymentCheck:
    """The judgement on two deployments, final or so far."""

    pair: str
    settings: Settings  # of both
    engines: tuple[str, ...]  # of each what it says of itself: engine, version, type of the weights
    prompts: int
    rows: tuple[Row, ...] | tuple[ServedSamples, ...] = ()  # one for each prompt that was compared
    certificate: Certificate | None = None  # above temperature 0, the test
    addresses: tuple[str, ...] = field(default=("", ""), repr=False)  # these two are not in the JSON
    flags: tuple[tuple[str, ...], ...] = field(default=(), repr=False)  # of servers that were started from here

    @property
    def greedy(self) -> list[Row]:
        """The rows at temperature 0."""
        return [row for row in self.rows if isinstance(row, Row)]

    @property
    def fraction(self) -> float:
        """How much was compared, from 0 to 1."""
        return self.certificate.fraction if self.certificate else len(self.rows) / self.prompts

    @property
    def rounding(self) -> float:
        """By how much the baseline's log-probabilities of two tokens may move against each other."""
        own = [row.contradiction for row in self.greedy if row.contradiction]
        asked = [*own, *(row.difference for row in self.greedy if row.difference)]
        return max([LEAST_ROUNDING, *(CERTAINTY * d.change for d in asked), *(abs(d.gap or 0.0) for d in own)])

    @property
    def outcome(self) -> str:
        """``passes``, ``differs`` or ``undecided`` of sampled runs; else the worst of :data:`ORDER` of all rows.

        ``noisy``: the baseline contradicts itself by more than rounding explains.
        """
        if self.certificate is not None:
            return self.certificate.verdict
        if self.rounding > MOST_ROUNDING:
            return "noisy"
        return max((row.outcome(self.rounding) for row in self.greedy), key=ORDER.index, default="undecided")

    @property
    def decisive(self) -> Row | None:
        """The first of the worst rows at temperature 0, if outputs part at all."""
        parted = [row for row in self.greedy if row.difference]
        return max(parted, key=lambda row: ORDER.index(row.outcome(self.rounding)), default=None)

    @property
    def text(self) -> str:
        """The statement for people."""
        if self.certificate is not None:
            return self.certificate.text
        noisy, of = sum(row.contradiction is not None for row in self.greedy), counted(len(self.rows), "prompt")
        said = f"The baseline contradicts itself: of {noisy} of {of} it wrote two outputs. " if noisy else ""
        return said + self._judged(of)

    def _judged(self, of: str) -> str:
        outcome, row, rounding = self.outcome, self.decisive, f"{self.rounding:.2g}"
        if outcome == "noisy":
            return (
                f"Its log-probabilities move by {rounding}, more than rounding explains, so it is not greedy, and "
                "nothing can be said of the other."
            )
        if row is None or row.difference is None:
            count, unit = sum(r.length for r in self.greedy), next((f"{r.unit}s" for r in self.greedy), "tokens")
            return f"Both wrote the same {count:,} {unit} of {of}, alone and beside other requests."
        parted, found = sum(r.outcome(self.rounding) == outcome for r in self.greedy), row.difference
        place = f"the first at {row.unit} {found.position + 1} of “{row.prompt[:40].strip()}”"
        place += ", only beside other requests" if row.beside else ""
        tokens = f"“{found.own.text}” and “{found.other.text}”"
        if outcome == "undecided":
            return f"{parted} of {of} part, {place}. The baseline gives no log-probabilities, so it may be a tie."
        if outcome == "tie":
            return (
                f"{parted} of {of} part at a numerical tie, {place}: there {tokens} are {found.apart} apart in "
                f"the baseline's log-probability, which its own rounding, {rounding}, can turn."
            )
        return (
            f"{parted} of {of} diverged, {place}: of {tokens} the baseline prefers the "
            f"{'first' if (found.gap or 0) > 0 else 'second'} by {found.apart} in log-probability, and its own "
            f"rounding is {rounding}."
        )

    def to_json(self) -> str:
        """This record as JSON, without addresses."""
        own = {name: value for name, value in asdict(self).items() if name not in ("addresses", "flags")}
        for row, written in zip(self.greedy, own["rows"], strict=False):
            written["outcome"] = row.outcome(self.rounding)
        more = {"outcome": self.outcome, "text": self.text, "rounding": self.rounding}
        return json.dumps({**own, **more, "reproduction": self.reproduction(addresses=False)}, ensure_ascii=False)

    def reproduction(self, *, addresses: bool = True) -> str:
        """Lines for bash and for a bug report: what was found, and the requests that show it.

        ``addresses``: write them; without, they stay to be filled in. A key is never written: bash reads it from
        the variable ``API_KEY``.
        """
        where = self.addresses if addresses else ("http://…", "http://…")
        lines = [f"# {self.outcome}: {' '.join(self.text.split())}"]
        lines += [
            f"# {role}: {told}" for role, told in zip(("baseline", "speculative"), self.engines, strict=True)
        ]
        if addresses and self.flags:
            where = tuple(f"http://127.0.0.1:{port}" for port in PORTS)
            both = zip(self.flags, PORTS, strict=True)
            lines += [f"# start: llama-server {shlex.join(flags)} --port {port}" for flags, port in both]
        lines += [f"BASELINE={shlex.quote(where[0])}  # where they want a key: export API_KEY=…"]
        lines += [f"SPECULATIVE={shlex.quote(where[1])}"]
        row: Any = self.decisive or next((row for row in self.rows if row.sent), None)
        for name, request in zip(("BASELINE", "SPECULATIVE"), row.sent if row else (), strict=False):
            lines += [f"# what the {name.lower()} deployment writes", _curl(name, request)]
        if isinstance(row, Row) and (found := row.difference):
            ids = f", ids {list(found.prefix_ids)}" if found.prefix_ids else ""
            lines.append(f"# common prefix: {_quoted(found.prefix)}{ids}")
            for role, token in (("baseline", found.own), ("other", found.other)):
                id_ = "" if token.id is None else f", id {token.id}"
                logprob = "not listed" if token.logprob is None else f"{token.logprob:.6f}"
                lines.append(f"# then the {role} has {_quoted(token.text)}{id_}; log-probability there: {logprob}")
            lines += ["# the baseline's likeliest tokens there", _curl("BASELINE", found.question)]
        return "\n".join(lines) + "\n"


def _curl(address: str, sent: Sent) -> str:
    path, body = sent
    data = shlex.quote(_quoted(body))
    return f"curl -sS \"${address}{path}\" {ENTITLED} -H 'Content-Type: application/json' -d {data}; echo"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
