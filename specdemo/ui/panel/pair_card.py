"""The card under the pair's name, as HTML: one conclusion, the models, how far a load is. Names are untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdemo.models.memory import Footprint
from specdemo.models.preflight import ModelReport, Preflight, gigabytes
from specdemo.models.progress import LoadStep
from specdemo.models.request import catalog
from specdemo.runs.store import Load
from specdemo.servers.catalog import ServerEntry
from specdemo.servers.probe import Health
from specdemo.view.assets import fill
from specdemo.view.progress_text import describe

DEPLOYMENTS = {"autoregressive": "plain", "speculative": "speculative"}
"""A server's deployments by strategy, and how the page calls them."""


def card(state: str, conclusion: str, **parts: Any) -> str:
    """A card in the state ``working``, ``possible``, ``problem`` or ``ready``; ``parts`` are the template's."""
    nothing = {"share": None, "deployments": (), "notes": (), "models": (), "opened": False}
    return fill("pair-card.html", state=state, conclusion=conclusion, **{**nothing, **parts})


def working(step: LoadStep) -> str:
    """A load under way."""
    return card("working", describe(step), share=step.fraction)


def checked(report: Preflight) -> str:
    """The preflight's report."""
    state = "possible" if report.ok else "problem"
    weights = {m.role: m.weights for m in report.models}
    notes = _remarks(report)
    return card(state, report.conclusion, notes=notes, opened=True, **_models(report, weights))


def loaded(load: Load) -> str:
    """A pair in memory, with the bytes that were counted there."""
    conclusion = f"{load.place}, {gigabytes(sum(f.nbytes for f in load.weights.values()))}."
    if load.report is None:  # it was never examined
        return card("ready", conclusion, notes=load.notes)
    notes = [*load.notes, *_remarks(load.report)]
    return card("ready", conclusion, notes=notes, **_models(load.report, load.weights))


def server(entry: ServerEntry, states: Mapping[str, Health] | None) -> str:
    """A server in place of models, its deployments, and whether they answer; no address, no key.

    Args:
        entry: as it was configured.
        states: of its deployments by strategy; None while they are being asked.
    """
    notes = [entry.note] if entry.note else []
    notes.append("The models run there and nothing is loaded here; times are this app’s, the network included.")
    deployments = [(name, _deployment(entry, strategy, states)) for strategy, name in DEPLOYMENTS.items()]
    failed = sum(not health.ok for health in (states or {}).values())
    state, conclusion = "ready", f"{entry.label} answers."
    if states is None:
        state, conclusion = "working", f"Asking {entry.label}…"
    elif failed:
        answers = "does not answer" if failed == len(states) else "answers in part"
        state, conclusion = "problem", f"{entry.label} {answers}."
    return card(state, conclusion, deployments=deployments, notes=notes)


def _deployment(entry: ServerEntry, strategy: str, states: Mapping[str, Health] | None) -> str:
    if strategy not in entry.strategies:
        return "no deployment"
    return entry.pair.model_of(strategy) + (f": {states[strategy].text}" if states else "")


def _models(report: Preflight, weights: dict[str, Footprint]) -> dict[str, Any]:
    """Each model with its name and size, and what is known of all of them."""
    entry = catalog().get(report.request.name)
    licences = list(dict.fromkeys(m.licence for m in report.models if m.licence))
    licence = ", ".join(licences) or (entry.licence if entry else "")
    gated = " (gated)" if any(m.gated for m in report.models) else ""
    facts = [
        report.tokenizers.text if report.tokenizers else "",
        "caches can be rolled back" if report.ok else "",
        _context(report),
        f"licence {licence}{gated}" if licence else "",
        f"on {report.device}",
    ]
    models = [(m, m.name.removeprefix("assets:"), _size(m, weights[m.role])) for m in report.models]
    lines = [" · ".join(filter(None, facts)), entry.note if entry else ""]
    return {"models": models, "facts": list(filter(None, lines))}


def _context(report: Preflight) -> str:
    contexts = {model.role: model.context for model in report.models}
    target, draft = contexts.get("target"), contexts.get("draft")
    short = draft and (not target or draft < target)
    said = [f"reads {target:,} tokens" if target else "", f"the draft {draft:,}" if short else ""]
    return ", ".join(filter(None, said))


def _remarks(report: Preflight) -> list[str]:
    """Further problems and notes, which stay visible when the models are folded away."""
    return [*report.problems[1:], *report.notes]


def _size(model: ModelReport, weights: Footprint) -> str:
    saved = f", {weights.saved:.0%} saved" if model.quantization else ""
    return f"{_count(model.parameters)} · {model.quantization or model.dtype} · {gigabytes(weights.nbytes)}{saved}"


def _count(parameters: int) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.1f} B"
    return f"{parameters / 1e6:.{1 if parameters < 1e7 else 0}f} M"
