"""What a losslessness check looks like: verdict, statement, evidence and the two distributions, as HTML."""

from __future__ import annotations

import math
from typing import Any

from specdemo.drafters import DRAFTERS
from specdemo.losslessness.certificate import Certificate, Table, TokenCount, rounded
from specdemo.losslessness.greedy_check import GreedyCheck
from specdemo.settings import ACCEPTANCE_RULES
from specdemo.view.assets import fill

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


def render(phase: str, message: str, result: Certificate | GreedyCheck | None) -> str:
    """The whole view of a check in the phase ``loading``, ``running``, ``stopped``, ``done`` or ``error``."""
    certificate = result if isinstance(result, Certificate) else None
    greedy = result if isinstance(result, GreedyCheck) else None
    values: dict[str, Any] = {}
    if certificate:
        open_ = certificate.verdict == "undecided" and phase in ("running", "stopped")
        reached = math.log(max(certificate.evidence, 1.0)) / math.log(1 / certificate.error_rate)
        asked = certificate.settings
        how = f"{ACCEPTANCE_RULES[asked.acceptance]} · {DRAFTERS[asked.drafter].label}, γ {asked.gamma}"
        values = {"word": phase if open_ else certificate.verdict, "reached": min(1.0, reached)}
        values["checked"] = f"{how} · temperature {asked.temperature:g}"
    if greedy:
        values["odd"] = [(i, p) for i, p in enumerate(greedy.positions, start=1) if p.outcome != "identical"]
    known = {"phase": phase, "message": message, "certificate": certificate, "greedy": greedy, **values}
    shown = {"words": WORDS, "listed": LISTED, "bars_of": bars_of, "visible": visible, "rounded": rounded}
    return fill("losslessness.html", **known, **shown)


def bars_of(table: Table) -> list[tuple[TokenCount, list[dict[str, Any]]]]:
    """Each token with its two bars and their whiskers, in per cent of the width; the widest whisker fills it."""
    widest = max(high for outcome in table.outcomes for _, high in table.intervals(outcome))

    def bar(kind: str, count: int, share: float, ends: tuple[float, float]) -> dict[str, Any]:
        tip = f"{kind}: {count:,}, 95 % from {ends[0]:.1%} to {ends[1]:.1%}"
        low, width, high = (100 * end / widest for end in (ends[0], share, ends[1]))
        return {"kind": kind, "tip": tip, "share": share, "low": low, "width": width, "high": high}

    found = []
    for outcome in table.outcomes:
        counts = (outcome.plain, outcome.speculative)
        parts = zip(("plain", "speculative"), counts, table.shares(outcome), table.intervals(outcome), strict=True)
        found.append((outcome, [bar(*part) for part in parts]))
    return found


def visible(text: str) -> str:
    """A token's text with its white space shown."""
    inner = text.strip(" ")
    begin = len(text) - len(text.lstrip(" ")) if inner else len(text)
    shown = inner.replace("\n", "⏎").replace("\t", "⇥")
    return "␣" * begin + shown + "␣" * (len(text) - begin - len(inner)) or "∅"
