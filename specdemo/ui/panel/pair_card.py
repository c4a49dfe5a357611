"""The card under the pair's name, as HTML: one conclusion, the models, how far a load is. Names are untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from specdemo.models.catalog import catalog
from specdemo.models.memory import Footprint
from specdemo.models.preflight import ModelReport, Preflight, gigabytes
from specdemo.models.progress import Step
from specdemo.runs.store import Load
from specdemo.servers.catalog import ServerEntry
from specdemo.servers.probe import Health
from specdemo.view.progress_text import describe

DEPLOYMENTS = {"autoregressive": "plain", "speculative": "speculative"}
"""A server's deployments by strategy, and how the page calls them."""


def looking() -> str:
    """Before anything is known."""
    return _card("working", "Looking at the models…")


def unnamed() -> str:
    """A custom pair before its target is typed in."""
    return _card("working", "Type in a target, and a draft if you have one.")


def working(step: Step) -> str:
    """A load under way."""
    share = "" if step.fraction is None else f'<i class="bar"><b style="width:{step.fraction:.1%}"></b></i>'
    return _card("working", describe(step), share)


def stopped(message: str) -> str:
    """A load that the visitor stopped."""
    return _card("working", message)


def refused(message: str) -> str:
    """A pair that cannot be examined, or a load that failed."""
    return _card("problem", message)


def checked(report: Preflight) -> str:
    """The preflight's report."""
    state = "possible" if report.ok else "problem"
    facts = _facts(report, {m.role: m.weights for m in report.models})
    return _card(state, report.conclusion, *_remarks(report), _details(facts, opened=True))


def loaded(load: Load) -> str:
    """A pair in memory, with the bytes that were counted there."""
    held = load.weights
    total = gigabytes(sum(f.nbytes for f in held.values()))
    notes = [*map(_line, load.notes), *_remarks(load.report)]
    return _card("ready", f"{load.place}, {total}.", *notes, _details(_facts(load.report, held), opened=False))


def server(entry: ServerEntry, states: Mapping[str, Health] | None) -> str:
    """A server in place of models, its deployments, and whether they answer; no address, no key.

    Args:
        entry: as it was configured.
        states: of its deployments by strategy; None while they are being asked.
    """
    lines = [_deployment(entry, strategy, states) for strategy in DEPLOYMENTS]
    facts = "The models run there and nothing is loaded here; times are this app’s, the network included."
    return _card(*_answering(entry, states), *lines, *([_line(entry.note)] if entry.note else []), _line(facts))


def _answering(entry: ServerEntry, states: Mapping[str, Health] | None) -> tuple[str, str]:
    """The card's state and conclusion."""
    if states is None:
        return "working", f"Asking {entry.label}…"
    failed = sum(not health.ok for health in states.values())
    if not failed:
        return "ready", f"{entry.label} answers."
    return "problem", f"{entry.label} {'does not answer' if failed == len(states) else 'answers in part'}."


def _deployment(entry: ServerEntry, strategy: str, states: Mapping[str, Health] | None) -> str:
    if strategy not in entry.strategies:
        state = "no deployment"
    else:
        state = entry.pair.model_of(strategy) + (f": {states[strategy].text}" if states else "")
    name = DEPLOYMENTS[strategy]
    return f'<p class="model deployment"><span>{name}</span> {escape(state)}</p>'


def _card(state: str, conclusion: str, *parts: str) -> str:
    lead = f'<p class="conclusion">{escape(conclusion)}</p>'
    return f'<div class="pair-card" data-state="{state}">{lead}{"".join(parts)}</div>'


def _facts(report: Preflight, weights: dict[str, Footprint]) -> str:
    if not report.models:
        return ""
    lines = [_model(model, weights[model.role]) for model in report.models]
    entry = catalog().get(report.request.name)
    licences = list(dict.fromkeys(m.licence for m in report.models if m.licence))
    licence = ", ".join(licences) or (entry.licence if entry else "")
    gated = " (gated)" if any(m.gated for m in report.models) else ""
    contexts = [m.context for m in report.models if m.context]
    facts = [
        report.tokenizers.text if report.tokenizers else "",
        "caches can be rolled back" if report.ok else "",
        f"reads {min(contexts):,} tokens" if contexts else "",
        f"licence {licence}{gated}" if licence else "",
        f"on {report.device}",
    ]
    lines.append(_line(" · ".join(fact for fact in facts if fact)))
    lines += [_line(entry.note)] if entry and entry.note else []
    return "".join(lines)


def _remarks(report: Preflight) -> list[str]:
    """Lines for further problems and notes, which stay visible when the models are folded away."""
    return [_line(text) for text in (*report.problems[1:], *report.notes)]


def _details(facts: str, *, opened: bool) -> str:
    """The facts about the models, which can be folded away."""
    return f"<details{' open' if opened else ''}><summary>Models</summary>{facts}</details>" if facts else ""


def _model(model: ModelReport, weights: Footprint) -> str:
    saved = f", {weights.saved:.0%} saved" if model.quantization else ""
    kind = model.quantization or model.dtype
    size = f"{_count(model.parameters)} · {kind} · {gigabytes(weights.nbytes)}{saved}"
    name = model.name.removeprefix("assets:")
    detail = f"<br>{escape(model.detail)}" if model.detail else ""
    return f'<p class="model"><span>{model.role}</span> <b>{escape(name)}</b><br>{escape(size)}{detail}</p>'


def _line(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _count(parameters: int) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.1f} B"
    return f"{parameters / 1e6:.{1 if parameters < 1e7 else 0}f} M"
