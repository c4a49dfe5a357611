"""What a losslessness check looks like: verdict, statement, evidence and the two distributions, as HTML."""

from __future__ import annotations

import math
from html import escape
from typing import Protocol

from specdemo.losslessness.certificate import Certificate, Outcome, Table
from specdemo.losslessness.greedy_check import GreedyCheck, Position
from specdemo.view.measured_table import number

LISTED = 20
"""Ties and divergences that are listed below the strip of positions, at most."""

WORDS = {
    "passes": ("✓", "good", "Passes: no difference found"),
    "differs": ("✗", "bad", "Differs: this is not the target’s distribution"),
    "undecided": ("–", "open", "Undecided"),
    "running": ("…", "open", "Testing"),
    "stopped": ("■", "open", "Stopped: undecided"),
    "identical": ("✓", "good", "Identical to plain greedy decoding"),
    "tie": ("≈", "good", "Identical up to numerical ties"),
    "diverged": ("✗", "bad", "Diverged from plain greedy decoding"),
    "error": ("!", "bad", "Not checked"),
}
"""Sign, kind and headline of each verdict."""


class CheckState(Protocol):
    """How far a check is, and its result so far; phases: ``loading running stopped done error``."""

    @property
    def phase(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def result(self) -> Certificate | GreedyCheck | None: ...


def render(state: CheckState) -> str:
    """The whole view of a state."""
    parts = []
    if state.phase == "error":
        parts.append(_head("error", state.message))
    elif state.result is None or state.message:
        parts.append(f'<p class="waiting" role="status">{escape(state.message)}</p>')
    if isinstance(state.result, Certificate):
        parts.append(_certificate(state.result, state.phase))
    elif isinstance(state.result, GreedyCheck):
        parts.append(_greedy(state.result, state.phase))
    return f'<div class="losslessness" data-phase="{state.phase}">{"".join(parts)}</div>'


def _head(word: str, text: str) -> str:
    sign, kind, headline = WORDS[word]
    return (
        f'<div class="verdict" data-kind="{kind}" data-verdict="{word}" role="status">'
        f'<span aria-hidden="true">{sign}</span><strong>{headline}</strong></div>'
        f'<p class="statement">{escape(text)}</p>'
    )


def _certificate(found: Certificate, phase: str) -> str:
    word = found.verdict
    if word == "undecided" and phase in ("running", "stopped"):
        word = phase
    goal = math.log(1 / found.error_rate)
    reached = min(1.0, math.log(max(found.evidence, 1.0)) / goal)
    bars = _meter("Pairs of runs", found.runs / found.budget, f"{found.runs:,} of {found.budget:,}") + _meter(
        "Evidence of a difference", reached, f"{_short(found.evidence)} of {_short(1 / found.error_rate)}"
    )
    tables = "".join(_table(table) for table in found.tables if table.outcomes)
    per_pair = found.seconds / max(found.runs, 1)
    return (
        _head(word, found.text)
        + f'<div class="meters">{bars}</div>'
        + '<p class="key"><i class="plain"></i> plain <i class="speculative"></i> speculative '
        + "<span>whiskers: 95 % of a share drawn from so many tokens</span></p>"
        + f'<div class="tables">{tables}</div>'
        + f"<details><summary>How this is decided</summary><p>{escape(found.evidence_text)}</p>"
        + f"<p>A lossless rule is wrongly said to differ in at most 1 of {_short(1 / found.error_rate)} tests, "
        + "however often one looks and whenever one stops. The bars show the same runs; they do not decide. "
        + "Whiskers are Wilson’s intervals of tokens drawn each alone: the second tokens are; those of a whole "
        + "run hang together, so that theirs are a little short.</p>"
        + "<p>The saved certificate holds the pair’s name, the prompt’s tokens, settings and seed, counts and "
        + "evidence. <code>specdemo.Certificate.from_json</code> reads it, and <code>specdemo.certify</code> with "
        + "these makes the same runs again: the same counts, on a machine that rounds alike.</p>"
        + f"<p>Each run has up to {found.tokens} tokens; a pair took {per_pair:.2f} s.</p></details>"
    )


def _meter(label: str, share: float, value: str) -> str:
    return (
        f'<div class="meter"><span>{label}</span><b>{value}</b>'
        f'<i><i style="width:{100 * share:.1f}%"></i></i></div>'
    )


def _table(table: Table) -> str:
    widest = max(high for outcome in table.outcomes for _, high in table.intervals(outcome))
    rows = "".join(_row(table, outcome, widest) for outcome in table.outcomes)
    return f"<figure><figcaption>{escape(table.title)}</figcaption>{rows}</figure>"


def _row(table: Table, outcome: Outcome, widest: float) -> str:
    """A token's two bars, each with its whisker; ``widest`` is the share that fills the width."""

    def bar(kind: str, count: int, share: float, ends: tuple[float, float]) -> str:
        low, high = (100 * end / widest for end in ends)
        return (
            f'<span class="{kind}" title="{kind}: {count:,}, 95 % from {ends[0]:.1%} to {ends[1]:.1%}">'
            f'<b><i style="width:{100 * share / widest:.1f}%"></i>'
            f'<u style="left:{low:.1f}%;width:{high - low:.1f}%"></u></b>{share:.1%}</span>'
        )

    counts = (outcome.plain, outcome.speculative)
    parts = zip(("plain", "speculative"), counts, table.shares(outcome), table.intervals(outcome), strict=True)
    bars = "".join(bar(*part) for part in parts)
    return f'<div class="row"><code>{escape(visible(outcome.text))}</code><div>{bars}</div></div>'


def _greedy(found: GreedyCheck, phase: str) -> str:
    text = found.text if phase != "stopped" else f"As far as it got: {found.text}"
    strip = "".join(_place(number, position) for number, position in enumerate(found.positions, start=1))
    return (
        _head(found.outcome, text)
        + '<p class="key"><i class="identical"></i> identical <i class="tie"></i> numerical tie '
        + '<i class="diverged"></i> diverged</p>'
        + f'<div class="strip">{strip}</div>{_listed(found)}'
        + "<details><summary>How this is decided</summary><p>The target reads the whole output in one forward and "
        + "names its best token after every prefix. A position is identical if that is the emitted token, a tie "
        + f"if the two are at most {found.tie_margin:g} logits apart, which rounding can turn. Positions after a "
        + "tie are judged too.</p></details>"
    )


def _place(number: int, position: Position) -> str:
    tip = f"{number}: {position.outcome}"
    if position.margin is not None:
        tip += f", margin {position.margin:.3g} logits"
    return f'<span data-outcome="{position.outcome}" title="{escape(tip)}">{escape(visible(position.text))}</span>'


def _listed(found: GreedyCheck) -> str:
    """The first ties and divergences, with their margins."""
    odd = [i for i, position in enumerate(found.positions) if position.outcome != "identical"]
    if not odd:
        return ""
    rows = "".join(
        f"<tr><td>{i + 1}</td><td>{p.outcome}</td><td><code>{escape(visible(p.text))}</code></td>"
        f"<td><code>{escape(visible(p.best_text))}</code></td>"
        f"<td>{number(None if p.margin is None else -p.margin, '.2g')}</td></tr>"
        for i in odd[:LISTED]
        for p in [found.positions[i]]
    )
    more = f"<p>…and {len(odd) - LISTED} more.</p>" if len(odd) > LISTED else ""
    return (
        "<table><thead><tr><th>position</th><th>outcome</th><th>emitted</th><th>target’s best</th>"
        f"<th>logits apart</th></tr></thead><tbody>{rows}</tbody></table>{more}"
    )


def visible(text: str) -> str:
    """A token's text with its white space shown."""
    inner = text.strip(" ")
    begin = len(text) - len(text.lstrip(" ")) if inner else len(text)
    shown = inner.replace("\n", "⏎").replace("\t", "⇥")
    return "␣" * begin + shown + "␣" * (len(text) - begin - len(inner)) or "∅"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}" if value < 1e7 else "over ten million"
