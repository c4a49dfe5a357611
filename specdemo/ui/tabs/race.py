"""The race tab: Run and Stop, and the view they feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.models.request import PairRequest
from specdemo.runs.store import Load, PairStore
from specdemo.settings import Settings
from specdemo.ui.event_options import QUIET, UNSEEN
from specdemo.ui.jobs.limits import check_lanes, check_prompts
from specdemo.ui.jobs.queue import Turns, visitor_of
from specdemo.ui.jobs.race import BUSY, failed, race_updates, wait_updates, waiting
from specdemo.ui.jobs.server_jobs import place_of
from specdemo.ui.jobs.session_recordings import Kept
from specdemo.ui.jobs.stops import Stops
from specdemo.ui.panel.controls import Controls, race_settings, split, unquantized_lanes
from specdemo.ui.panel.pair_controls import pair_request
from specdemo.ui.panel.pair_loading import PairLoading
from specdemo.ui.tabs.recordings_panel import create_recordings, create_saves
from specdemo.ui.tabs.tab_parts import busy
from specdemo.view.assets import plotly_js, race_scripts
from specdemo.view.lane_headers import lane_headers

CONNECT = """
const show = () => window.SpecDemoPlayer.mount(element.querySelector(".race-root")).update(props.value);
watch("value", show);
show();
"""


def race_head() -> str:
    """For the page's head: Plotly from its wheel, and the views' own scripts."""
    plotly = plotly_js()
    gr.set_static_paths([plotly])
    own = "".join(f"<script>{script}</script>" for script in race_scripts())
    return f'<script src="gradio_api/file={plotly.as_posix()}" defer></script>{own}'


def create_race_tab(
    controls: Controls, store: PairStore, loading: PairLoading, line: Turns, away: Turns
) -> tuple[Stops, Kept]:
    """Build the view in the current layout and wire Run, Stop and recordings to it.

    Races take their turns in ``line``, those on servers alone in ``away``. Returns the visitors' stop signals and
    recordings, both to be told when one leaves.
    """
    view = gr.HTML(
        value=None,
        html_template='<div class="race-root"></div>',
        js_on_load=CONNECT,
        apply_default_css=False,
        padding=False,
        elem_id="race",
    )
    stops, kept = Stops(), Kept()
    saves = create_saves(kept)
    create_recordings(view, saves, kept)
    buttons = [controls.run, controls.stop, saves]

    def prepare(request: gr.Request, *values: Any) -> tuple[Any, ...]:
        stops.arm(request.session_hash or "")
        kept.begin(request.session_hash or "")
        return waiting(_headers(values)), *busy(True), gr.update(visible=False)

    def over(request: gr.Request) -> tuple[Any, ...]:
        kept.end(request.session_hash or "")
        saveable = kept.get(request.session_hash or "") is not None
        return *busy(False), gr.update(visible=saveable)

    def refused(request: gr.Request) -> tuple[Any, ...]:
        return failed(BUSY), *over(request)

    def execute(request: gr.Request, *values: Any) -> Iterator[dict[str, Any]]:
        pair, prompt, panel = split(values)
        session = request.session_hash or ""
        stop = stops.signal(session)
        try:
            check_prompts([prompt])
            lanes = race_settings(*panel)
            check_lanes(lanes)
            with _loads(store, pair, lanes, unquantized_lanes(*panel)) as loads:
                thread, queue = place_of(loads, store, line, away)
                with queue.place(visitor_of(request)) as place:
                    yield from wait_updates(_headers(values), place.wait(stop, loads))
                    yield from race_updates(thread, loads, prompt, lanes, stop, partial(kept.finish, session))
        except SpecDemoError as error:
            yield failed(str(error))

    def stop(request: gr.Request, *pair: Any) -> None:
        stops.stop(request.session_hash or "")
        loading.leave(request.session_hash or "", pair)

    inputs = controls.inputs()
    # Decoding takes turns in a line of our own, which tells where one stands and hears Stop; Gradio's does not.
    prepared = controls.run.click(prepare, inputs, [view, *buttons], trigger_mode="once", **QUIET)
    raced = prepared.then(execute, inputs, view, concurrency_id="race", concurrency_limit=None, **UNSEEN)
    # What can go wrong in a race ends as a message of its own; this is the queue refusing one more run.
    raced.failure(refused, None, [view, *buttons], **QUIET)
    # A run may have loaded its pair, and put another out of memory.
    card = [controls.pair.card, controls.pair.load, controls.pair.cancel]
    raced.then(over, None, buttons, **QUIET).then(
        lambda *values: loading.now(values), controls.pair.inputs(), card, **UNSEEN
    )
    controls.stop.click(stop, controls.pair.inputs(), None, **QUIET)
    return stops, kept


@contextmanager
def _loads(
    store: PairStore, pair: Sequence[Any], lanes: Sequence[Settings], unquantized: list[bool]
) -> Iterator[list[Load | None]]:
    """The pair of each lane, kept in memory meanwhile: the chosen one, or its target as it was trained.

    None for a lane on a server; where all are, nothing is loaded.
    """
    with ExitStack() as stack:
        loads: dict[PairRequest, Load] = {}
        found: list[Load | None] = []
        for settings, plain in zip(lanes, unquantized, strict=True):
            if settings.engine == "server":
                found.append(None)
                continue
            request = pair_request(*pair).unquantized_target() if plain else pair_request(*pair)
            if request not in loads:
                loads[request] = stack.enter_context(store.using(request))
            found.append(loads[request])
        yield found


def _headers(values: Sequence[Any]) -> list[dict[str, Any]]:
    """The lanes as they will be called; none while the panel holds what cannot run."""
    pair, _, panel = split(values)
    try:
        lanes, full = race_settings(*panel), unquantized_lanes(*panel)
        here = any(settings.engine != "server" for settings in lanes)
        weights = pair_request(*pair).target_quantization if here else None
        return lane_headers(
            lanes,
            [None if f or s.engine == "server" else weights for s, f in zip(lanes, full, strict=True)],
        )
    except SpecDemoError:
        return []
