"""The card under the pair's name: the preflight at once, the load on request, as HTML. Names are untrusted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from threading import Lock
from typing import Any

import gradio as gr

from specdemo.errors import ServerError, SpecDemoError
from specdemo.models.memory import Footprint
from specdemo.models.preflight import ModelReport, Preflight, gigabytes
from specdemo.models.progress import STOPPED, LoadStep
from specdemo.models.request import PairRequest, catalog
from specdemo.runs.store import Load, PairStore
from specdemo.servers.catalog import ServerEntry, servers
from specdemo.servers.probe import Health, probe
from specdemo.ui.panel.controls import UNQUEUED, UNSEEN, Controls
from specdemo.ui.state.methods import SERVER_STRATEGIES, runs_here, server_of
from specdemo.ui.state.request import named, pair_request
from specdemo.ui.state.state import PairChoice
from specdemo.view.assets import fill
from specdemo.view.progress_text import describe


def card(state: str, conclusion: str, **parts: Any) -> str:
    """A card in the state ``working``, ``possible``, ``problem`` or ``ready``; ``parts`` are the template's."""
    nothing = {"share": None, "deployments": (), "notes": (), "models": (), "opened": False}
    return fill("pair-card.html", state=state, conclusion=conclusion, **{**nothing, **parts})


def working(step: LoadStep) -> str:
    return card("working", describe(step), share=step.fraction)


def checked(report: Preflight) -> str:
    state = "possible" if report.ok else "problem"
    weights = {m.role: m.weights for m in report.models}
    notes = [*report.problems[1:], *report.notes]
    return card(state, report.conclusion, notes=notes, opened=True, **_models(report, weights))


def loaded(load: Load) -> str:
    """A pair in memory, with the bytes that were counted there."""
    conclusion = f"{load.place}, {gigabytes(sum(f.nbytes for f in load.weights.values()))}."
    if load.report is None:  # it was never examined
        return card("ready", conclusion, notes=load.notes)
    notes = [*load.notes, *load.report.problems[1:], *load.report.notes]
    return card("ready", conclusion, notes=notes, **_models(load.report, load.weights))


def server_card(entry: ServerEntry, states: Mapping[str, Health] | None) -> str:
    """A server, its deployments, and their ``states``, None while they are being asked; no address, no key."""
    notes = [entry.note] if entry.note else []
    notes.append("The models run there and nothing is loaded here; times are this app’s, the network included.")
    deployments = [(name, _deployment(entry, strategy, states)) for name, strategy in SERVER_STRATEGIES.items()]
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
    states = any(m.states for m in report.models)
    taken_back = "states are put back, tried when loaded" if states else "caches can be rolled back"
    facts = [
        report.tokenizers.text if report.tokenizers else "",
        taken_back if report.ok and not report.request.is_gguf else "",
        _context(report),
        f"licence {licence}{gated}" if licence else "",
        "in llama.cpp" if report.request.is_gguf else f"on {report.device}",
    ]
    there = [m for m in report.models if m.role in weights]  # a head that does not fit is left out
    models = [(m, m.name.removeprefix("assets:"), _size(m, weights[m.role])) for m in there]
    lines = [" · ".join(filter(None, facts)), entry.note if entry else ""]
    return {"models": models, "facts": list(filter(None, lines))}


def _context(report: Preflight) -> str:
    contexts = {model.role: model.context for model in report.models}
    target, draft = contexts.get("target"), contexts.get("draft")
    short = draft and (not target or draft < target)
    said = [f"reads {target:,} tokens" if target else "", f"the draft {draft:,}" if short else ""]
    return ", ".join(filter(None, said))


def _size(model: ModelReport, weights: Footprint) -> str:
    saved = f", {weights.saved:.0%} saved" if model.quantization else ""
    millions = model.parameters / 1e6
    count = f"{millions / 1000:.1f} B" if millions >= 1000 else f"{millions:.{1 if millions < 10 else 0}f} M"
    return f"{count} · {model.quantization or model.dtype} · {gigabytes(weights.nbytes)}{saved}"


UPDATE_SECONDS = 0.25
LOOKS = 16
"""Cards that may be updated at once. They compute nothing: they wait for the network or for a load."""
_log = logging.getLogger(__name__)

Card = tuple[Any, Any, Any]
"""Updates of the card's HTML and of the buttons Load and Stop loading."""

UNCHANGED: Card = (gr.skip(), gr.skip(), gr.skip())
"""Ends a card that is no longer shown: Gradio sends a generator's last value again when the generator ends."""


class PairLoading:
    """The pair that each visitor looks at, and the loads they asked for, which go on while they look at others.

    A visitor's latest event owns the card: each event puts a fresh object into ``_latest``, and shows nothing once
    another has taken its place.
    """

    def __init__(self, store: PairStore) -> None:
        self._store = store
        self._latest: dict[str, object] = {}
        self._shown: dict[str, dict[str, Any]] = {}
        self._wanted: dict[str, dict[PairRequest, Callable[[], None]]] = {}
        self._stopped: dict[str, PairRequest] = {}  # the load that a visitor stopped last
        self._lock = Lock()

    def show(self, session: str, choice: PairChoice, *, load: bool = False) -> Iterator[Card]:
        """Show the chosen pair, until another event shows something: its server's answers, its preflight, or its
        load to the end, which ``load`` begins.
        """
        event = self._take_over(session)
        chosen = choice.model_dump(include=set(PairChoice.model_fields))
        again = not load and self._shown.get(session) == chosen  # looking at the same pair again must not flicker
        with closing(_explained(lambda: self._cards(session, choice, load, again))) as cards:
            for card in cards:
                if self._latest.get(session) is not event:
                    yield UNCHANGED
                    return
                self._shown[session] = chosen
                yield card

    def cancel(self, session: str, choice: PairChoice) -> Card:
        """Stop waiting for the chosen pair; its load ends unless somebody else waits for it."""
        self.leave(session, choice)
        return _stopped()

    def leave(self, session: str, choice: PairChoice) -> None:
        """Like ``cancel``, without a card; a pair that is in memory stays there."""
        try:
            request = pair_request(choice)
        except SpecDemoError:
            return  # what cannot be requested was never loaded
        load = self._store.find(request)
        if load is None or load.future.done():
            return
        self._take_over(session)
        with self._lock:
            self._stopped[session] = request
            leave = self._wanted.get(session, {}).pop(request, None)
        if leave is not None:
            leave()

    def sessions(self) -> set[str]:
        with self._lock:
            return {*self._latest, *self._shown, *self._wanted}

    def forget(self, session: str) -> None:
        """Forget a visitor who left; loads end that only they waited for."""
        with self._lock:
            self._latest.pop(session, None)
            self._shown.pop(session, None)
            self._stopped.pop(session, None)
            wanted = self._wanted.pop(session, {})
        for leave in wanted.values():
            leave()

    def _take_over(self, session: str) -> object:
        with self._lock:
            self._latest[session] = event = object()
        return event

    def _cards(self, session: str, choice: PairChoice, load: bool, again: bool) -> Iterator[Card]:
        """The cards of a choice, one after another; that it is looked at is not said ``again``."""
        server = server_of(choice.pair)
        if server is not None:
            entry = servers().get(server)
            if entry is None:
                raise ServerError(f"{server!r:.80} is not configured any more; choose another pair.")
            if not again:
                yield _update(server_card(entry, None))
            yield _update(server_card(entry, probe(entry.pair, entry.strategies)))
            return
        if not named(choice):
            yield _update(card("working", "Type in a target, and a draft if you have one."))
            return
        request = pair_request(choice)
        if load:
            self._stopped.pop(session, None)
            self._want(session, request)
        there = self._store.find(request)
        if there and not there.future.done() and self._stopped.get(session) == request:
            yield _stopped()  # an event on its way when Stop was pressed must not wait for the load again
            return
        if there is None:
            if not again:
                yield _update(card("working", "Looking at the models…"))
            report = self._store.look(request)
            size = gigabytes(report.download)
            offer = f"Download {size} and load" if report.download else "Load now"
            yield _update(checked(report), load=report.ok and offer)
            return
        with self._store.using(request) as loading:  # a visitor who watches a load waits for it too
            while not loading.future.done():
                yield _update(working(loading.progress.step), cancel=True)
                time.sleep(UPDATE_SECONDS)
            loading.future.result()  # raises what ended it
            yield _update(loaded(loading))

    def _want(self, session: str, request: PairRequest) -> None:
        _, leave = self._store.want(request)
        with self._lock:
            before = self._wanted.setdefault(session, {}).get(request)
            self._wanted[session][request] = leave
        if before is not None:
            before()


def connect_pair_card(page: gr.Blocks, controls: Controls, loading: PairLoading) -> None:
    """Wire the card and its buttons, Run, which shows the load of what it runs, and the ends of all jobs."""
    outputs = [*controls.card]
    _, load_now, stop_loading = controls.card
    inputs, methods = controls.pair(), controls.methods

    def look(request: gr.Request, *values: Any) -> Iterator[Card]:
        yield from loading.show(request.session_hash or "", controls.choice(values))

    def load(request: gr.Request, *values: Any) -> Iterator[Card]:
        yield from loading.show(request.session_hash or "", controls.choice(values), load=True)

    def load_to_run(request: gr.Request, *values: Any) -> Iterator[Card]:
        pair, chosen = values[: -len(methods)], values[-len(methods) :]
        if any(map(runs_here, chosen)):  # where servers decode all lanes, Run loads nothing
            yield from load(request, *pair)
        else:
            yield UNCHANGED

    def cancel(request: gr.Request, *values: Any) -> Card:
        return loading.cancel(request.session_hash or "", controls.choice(values))

    waits: dict[str, Any] = {"concurrency_id": "pairs", "concurrency_limit": LOOKS, **UNSEEN}
    chosen = [c.change for c in inputs if isinstance(c, gr.Dropdown)]
    typed = [event for name in ("target", "draft") for event in (controls[name].submit, controls[name].blur)]
    # Several events of one visitor may run at once; all but the latest end at their next update.
    gr.on([page.load, *chosen, *typed], look, inputs, outputs, trigger_mode="multiple", **waits)
    chosen_elsewhere = gr.Button(visible="hidden", elem_id="load-chosen")  # pressed by panel.js
    gr.on([load_now.click, chosen_elsewhere.click], load, inputs, outputs, trigger_mode="multiple", **waits)
    controls.starts["race"].click(load_to_run, [*inputs, *methods], outputs, trigger_mode="multiple", **waits)
    for ended in controls.ended:  # a job may have loaded its pair, put another out of memory, or lost its server
        ended.then(look, inputs, outputs, **waits)
    stop_loading.click(cancel, inputs, outputs, **UNQUEUED)


def _explained(run: Callable[[], Iterator[Card]]) -> Generator[Card]:
    """Show whatever goes wrong in the card, with a button to try again."""
    try:
        yield from run()
    except SpecDemoError as error:
        yield _update(card("problem", str(error)), load="Try again")
    except Exception as error:
        _log.exception("a pair could not be looked at")
        yield _update(card("problem", f"This failed: {type(error).__name__}: {error}"), load="Try again")


def _stopped() -> Card:
    return _update(card("working", STOPPED), load="Go on loading")


def _update(html: str, *, load: str | bool = False, cancel: bool = False) -> Card:
    return html, gr.update(visible=bool(load), value=load or "Load"), gr.update(visible=cancel)
