"""What happens as a pair is chosen: the preflight at once, the load on request, both shown in the card."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.models.preflight import gigabytes
from specdemo.models.progress import STOPPED
from specdemo.models.request import PairRequest
from specdemo.models.store import Load, PairStore
from specdemo.ui import pair_card
from specdemo.ui.pair_controls import PairControls, named, pair_request
from specdemo.ui.quiet import QUIET, UNSEEN
from specdemo.ui.stops import Stops

UPDATE_SECONDS = 0.25
LOOKS = 16
"""Visitors whose cards may be under way at once; nothing is computed, they wait for the network or a load."""
_log = logging.getLogger(__name__)

Card = tuple[Any, Any, Any]
"""The card's HTML, and what becomes of the buttons Load and Stop loading."""


def connect_pair_card(page: gr.Blocks, controls: PairControls, store: PairStore) -> Stops:
    """Wire the card and its buttons; returns the visitors' signals to stop loading."""
    stops = Stops()
    outputs = [controls.card, controls.load, controls.cancel]

    def look(*values: Any) -> Iterator[Card]:
        if not named(*values):
            yield _card(pair_card.unnamed())
            return
        yield from _explained(lambda: _look(store, pair_request(*values)))

    def load(request: gr.Request, *values: Any) -> Iterator[Card]:
        session = request.session_hash or ""
        stops.arm(session)
        yield from _explained(lambda: _load(store, pair_request(*values), stops, session))

    def cancel(request: gr.Request) -> None:
        stops.stop(request.session_hash or "")

    waits: dict[str, Any] = {"concurrency_id": "pairs", "concurrency_limit": LOOKS, **UNSEEN}
    inputs = controls.inputs()
    chosen = [c.change for c in inputs if isinstance(c, gr.Dropdown)]
    typed = [event for box in (controls.target, controls.draft) for event in (box.submit, box.blur)]
    gr.on([page.load, *chosen, *typed], look, inputs, outputs, trigger_mode="always_last", **waits)
    controls.load.click(load, inputs, outputs, trigger_mode="once", **waits)
    controls.cancel.click(cancel, None, None, **QUIET)
    return stops


def card_of(store: PairStore, values: Any) -> Card:
    """The card as it stands, without waiting for a load."""
    *_, last = _explained(lambda: _look(store, pair_request(*values), wait=False))
    return last


def _look(store: PairStore, request: PairRequest, *, wait: bool = True) -> Iterator[Card]:
    load = store.find(request)
    if load is None:
        yield _card(pair_card.looking())
        report = store.look(request)
        size = gigabytes(report.download)
        yield _card(
            pair_card.checked(report),
            load=report.ok and (f"Download {size} and load" if report.download else "Load now"),
        )
        return
    while wait and not load.future.done():
        yield _card(pair_card.working(load.progress.step))
        time.sleep(UPDATE_SECONDS)
    yield _ended(load)


def _load(store: PairStore, request: PairRequest, stops: Stops, session: str) -> Iterator[Card]:
    stop = stops.signal(session)
    with store.using(request) as load:
        while not load.future.done() and not stop.is_set():
            yield _card(pair_card.working(load.progress.step), cancel=True)
            time.sleep(UPDATE_SECONDS)
        if load.future.done():
            yield _ended(load)
            return
    # Left before it was done: it ends, unless somebody else waits for it.
    yield _card(pair_card.stopped(STOPPED), load="Go on loading")


def _ended(load: Load) -> Card:
    load.future.result()  # raises what ended it
    return _card(pair_card.loaded(load))


def _explained(run: Any) -> Iterator[Card]:
    """Whatever goes wrong stands in the card; Load tries again."""
    try:
        yield from run()
    except SpecDemoError as error:
        yield _card(pair_card.refused(str(error)), load="Try again")
    except Exception as error:
        _log.exception("a pair could not be looked at")
        yield _card(pair_card.refused(f"This failed: {type(error).__name__}: {error}"), load="Try again")


def _card(html: str, *, load: str | bool = False, cancel: bool = False) -> Card:
    return html, gr.update(visible=bool(load), value=load or "Load"), gr.update(visible=cancel)
