"""What happens when a pair is chosen: the preflight at once, the load on request, both shown in the card."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import gradio as gr

from specdemo.errors import ServerError, SpecDemoError
from specdemo.models.preflight import gigabytes
from specdemo.models.progress import STOPPED
from specdemo.models.request import PairRequest
from specdemo.runs.store import Load, PairStore
from specdemo.servers.catalog import servers
from specdemo.servers.probe import probe
from specdemo.ui.event_options import QUIET, UNSEEN
from specdemo.ui.panel import pair_card
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.pair_controls import PairCard
from specdemo.ui.state.methods import runs_here
from specdemo.ui.state.pairs import named, pair_request
from specdemo.ui.state.server_choice import server_of
from specdemo.ui.state.state import PairChoice

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
        self._shown: dict[str, PairRequest] = {}
        self._wanted: dict[str, dict[PairRequest, Callable[[], None]]] = {}
        self._lock = Lock()

    def look(self, session: str, choice: PairChoice) -> Iterator[Card]:
        """Show the chosen pair: its preflight, or its load until it is done or another pair is chosen."""
        event = self._begin(session)
        server = server_of(choice.pair)
        if server is not None:
            yield from _explained(lambda: self._look_at_server(server, session, event))
            return
        if not named(choice):
            yield _card(pair_card.unnamed())
            return
        yield from _explained(lambda: self._look(pair_request(choice), session, event))

    def load(self, session: str, choice: PairChoice) -> Iterator[Card]:
        """Begin to load the chosen pair, and show how far it is; a server has nothing to load."""
        if server_of(choice.pair) is not None:
            yield UNCHANGED
            return
        event = self._begin(session)

        def run() -> Iterator[Card]:
            request = pair_request(choice)
            self._want(session, request)
            yield from self._look(request, session, event)

        yield from _explained(run)

    def after_run(self, session: str, choice: PairChoice) -> Iterator[Card]:
        """The card as it stands now, without waiting for a load; a server is asked whether it still answers."""
        server = server_of(choice.pair)
        if server is not None:
            event = self._begin(session)
            *_, last = _explained(lambda: self._look_at_server(server, session, event))
        else:
            *_, last = _explained(lambda: self._look(pair_request(choice), None, None))
        yield last

    def cancel(self, session: str, choice: PairChoice) -> Card:
        """Stop waiting for the chosen pair; its load ends unless somebody else waits for it."""
        self.leave(session, choice)
        return _card(pair_card.stopped(STOPPED), load="Go on loading")

    def leave(self, session: str, choice: PairChoice) -> None:
        """Like ``cancel``, without a card; a pair that is in memory stays there."""
        try:
            request = pair_request(choice)
        except SpecDemoError:
            return  # what cannot be requested was never loaded
        load = self._store.find(request)
        if load is None or load.future.done():
            return
        self._begin(session)
        with self._lock:
            leave = self._wanted.get(session, {}).pop(request, None)
        if leave is not None:
            leave()

    def sessions(self) -> set[str]:
        """The visitors of whom something is kept."""
        with self._lock:
            return {*self._latest, *self._shown, *self._wanted}

    def forget(self, session: str) -> None:
        """Forget a visitor who left; loads end that only they waited for."""
        with self._lock:
            self._latest.pop(session, None)
            self._shown.pop(session, None)
            wanted = self._wanted.pop(session, {})
        for leave in wanted.values():
            leave()

    def _look_at_server(self, name: str, session: str, event: object) -> Iterator[Card]:
        """Show a server at once, and whether it answers when that is known."""
        entry = servers().get(name)
        if entry is None:
            raise ServerError(f"{name!r:.80} is not configured any more; choose another pair.")
        self._shown.pop(session, None)
        yield _card(pair_card.server(entry, None))
        states = probe(entry.pair, entry.strategies)
        yield _card(pair_card.server(entry, states)) if self._looks(session, event) else UNCHANGED

    def _begin(self, session: str) -> object:
        """Register an event as the visitor's latest."""
        with self._lock:
            self._latest[session] = event = object()
        return event

    def _want(self, session: str, request: PairRequest) -> None:
        _, leave = self._store.want(request)
        with self._lock:
            before = self._wanted.setdefault(session, {}).get(request)
            self._wanted[session][request] = leave
        if before is not None:
            before()

    def _look(self, request: PairRequest, session: str | None, event: object) -> Iterator[Card]:
        load = self._store.find(request)
        if load is None:
            # Looking at the same pair again must not flicker.
            if session is None or self._shown.get(session) != request:
                yield _card(pair_card.looking())
            report = self._store.look(request)
            size = gigabytes(report.download)
            offer = f"Download {size} and load" if report.download else "Load now"
            if self._looks(session, event):
                if session is not None:
                    self._shown[session] = request
                yield _card(pair_card.checked(report), load=report.ok and offer)
            else:
                yield UNCHANGED
            return
        if session is None:
            yield _card(pair_card.working(load.progress.step)) if not load.future.done() else _ended(load)
            return
        self._shown.pop(session, None)
        with self._store.using(request) as load:  # a visitor who watches a load waits for it too
            while not load.future.done():
                if not self._looks(session, event):
                    yield UNCHANGED
                    return
                yield _card(pair_card.working(load.progress.step), cancel=True)
                time.sleep(UPDATE_SECONDS)
            yield _ended(load) if self._looks(session, event) else UNCHANGED

    def _looks(self, session: str | None, event: object) -> bool:
        """Whether this event is still the visitor's latest; without a visitor it always is."""
        return session is None or self._latest.get(session) is event


def connect_pair_card(page: gr.Blocks, controls: Controls, card: PairCard, loading: PairLoading) -> None:
    """Wire the card and its buttons, Run, which shows the load of what it runs, and the ends of all jobs.

    Args:
        page, controls, card: the components to wire; all tabs have been wired.
        loading: what each visitor looks at.
    """
    outputs = [card.html, card.load, card.cancel]
    inputs, methods, row = controls.pair(), controls.methods, controls.row

    def handler(show: Callable[[str, PairChoice], Iterator[Card]]) -> Callable[..., Iterator[Card]]:
        def handle(request: gr.Request, *values: Any) -> Iterator[Card]:
            yield from show(request.session_hash or "", controls.choice(values))

        return handle

    def load_to_run(request: gr.Request, *values: Any) -> Iterator[Card]:
        pair, chosen = values[: -len(methods)], values[-len(methods) :]
        if any(map(runs_here, chosen)):  # where servers decode all lanes, Run loads nothing
            yield from loading.load(request.session_hash or "", controls.choice(pair))
        else:
            yield UNCHANGED

    def cancel(request: gr.Request, *values: Any) -> Card:
        return loading.cancel(request.session_hash or "", controls.choice(values))

    waits: dict[str, Any] = {"concurrency_id": "pairs", "concurrency_limit": LOOKS, **UNSEEN}
    chosen = [c.change for c in inputs if isinstance(c, gr.Dropdown)]
    typed = [event for name in ("target", "draft") for event in (controls[name].submit, controls[name].blur)]
    # Several events of one visitor may run at once; all but the latest end at their next update.
    gr.on([page.load, *chosen, *typed], handler(loading.look), inputs, outputs, trigger_mode="multiple", **waits)
    card.load.click(handler(loading.load), inputs, outputs, trigger_mode="multiple", **waits)
    row.starts["race"].click(load_to_run, [*inputs, *methods], outputs, trigger_mode="multiple", **waits)
    for ended in row.ended:  # a job may have loaded its pair, put another out of memory, or lost its server
        ended.then(handler(loading.after_run), inputs, outputs, **waits)
    card.cancel.click(cancel, inputs, outputs, **QUIET)


def _ended(load: Load) -> Card:
    load.future.result()  # raises what ended it
    return _card(pair_card.loaded(load))


def _explained(run: Callable[[], Iterator[Card]]) -> Iterator[Card]:
    """Show whatever goes wrong in the card, with a button to try again."""
    try:
        yield from run()
    except SpecDemoError as error:
        yield _card(pair_card.refused(str(error)), load="Try again")
    except Exception as error:
        _log.exception("a pair could not be looked at")
        yield _card(pair_card.refused(f"This failed: {type(error).__name__}: {error}"), load="Try again")


def _card(html: str, *, load: str | bool = False, cancel: bool = False) -> Card:
    return html, gr.update(visible=bool(load), value=load or "Load"), gr.update(visible=cancel)
