"""What a losslessness check looks like: verdict, statement, evidence and the two distributions, as HTML."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from specdemo.drafters import DRAFTERS
from specdemo.losslessness.certificate import Certificate, Table, TokenCount, rounded
from specdemo.losslessness.deployment_check import DeploymentCheck, ServedSamples
from specdemo.losslessness.greedy_check import GreedyCheck
from specdemo.models.request import is_public
from specdemo.settings import ACCEPTANCE_RULES
from specdemo.view.assets import fill
from specdemo.view.tables import number

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
    "parted": ("?", "open", "The outputs part; a tie or not, the server does not tell"),
    "noisy": ("!", "bad", "The baseline contradicts itself"),
    "error": ("!", "bad", "Not checked"),
}
"""Sign, kind and headline of each verdict."""

BAD = ("diverged", "noisy")
SHOWN_PROMPT = 48
"""Characters of a prompt in a table."""


def render(phase: str, message: str, result: Certificate | GreedyCheck | DeploymentCheck | None) -> str:
    """The whole view of a check in the phase ``loading``, ``running``, ``stopped``, ``done`` or ``error``.

    Addresses of deployments are shown to those who run this program only, not on a public page.
    """
    served = result if isinstance(result, DeploymentCheck) else None
    found = served.certificate if served else result
    certificate = found if isinstance(found, Certificate) else None
    greedy = result if isinstance(result, GreedyCheck) else None
    values: dict[str, Any] = {}
    if certificate:
        open_ = certificate.verdict == "undecided" and phase in ("running", "stopped")
        reached = math.log(max(certificate.evidence, 1.0)) / math.log(1 / certificate.error_rate)
        asked = certificate.settings
        how = f"{ACCEPTANCE_RULES[asked.acceptance]} · {DRAFTERS[asked.drafter].label}, γ {asked.gamma}"
        values = {"word": phase if open_ else certificate.verdict, "reached": min(1.0, reached)}
        warmth = f"temperature {asked.temperature:g}"
        values["checked"] = warmth if served else f"{how} · {warmth}"
    if served:
        values["heads"], values["lines"] = deployment_rows(served)
        values["bash"] = served.reproduction(addresses=not is_public())
        ended = certificate is not None or len(served.rows) == served.prompts
        outcome = "parted" if served.outcome == "undecided" else served.outcome
        values["judged"] = outcome if ended or phase not in ("running", "stopped") or outcome in BAD else phase
    if greedy:
        values["odd"] = [(i, p) for i, p in enumerate(greedy.positions, start=1) if p.outcome != "identical"]
    known = {"phase": phase, "message": message, "certificate": certificate, "greedy": greedy, "served": served}
    known |= values
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


def deployment_rows(check: DeploymentCheck) -> tuple[list[str], list[list[str]]]:
    """The heads of a comparison of deployments, and its rows."""
    samples = [row for row in check.rows if isinstance(row, ServedSamples)]
    if samples:
        heads = ["prompt", "pairs of runs", "log p of the baseline's tokens", "of the other's"]
        means = [[fmean(logs) if logs else None for logs in (r.plain, r.speculative)] for r in samples]
        cells = [
            [f"{r.runs}", *(number(m, ".3f") for m in found)] for r, found in zip(samples, means, strict=True)
        ]
    else:
        heads, cells = ["prompt", "outcome", "alike", "baseline", "other", "log p apart"], []
        for row in check.greedy:
            found, outcome = row.difference, row.outcome(check.rounding)
            outcome += ", beside other requests" if row.beside else ""
            outcome += ", baseline noisy" if row.contradiction else ""
            parted = [visible(found.own.text), visible(found.other.text), found.apart] if found else ["", "", ""]
            cells.append([outcome, f"{found.position if found else row.length} {row.unit}s", *parted])
    prompts = [" ".join(row.prompt.split())[:SHOWN_PROMPT] for row in check.rows]
    return heads, [[prompt, *each] for prompt, each in zip(prompts, cells, strict=True)]
