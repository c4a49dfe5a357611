"""The race tab: Run and Stop, and the view they feed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import plotly

from specdemo.errors import SpecDemoError
from specdemo.ui.controls import Controls, race_settings
from specdemo.ui.job import BUSY, failed, race_updates, waiting
from specdemo.ui.lane_headers import lane_headers
from specdemo.ui.pairs import PairStore
from specdemo.ui.stops import Stops

HERE = Path(__file__).parent
SCRIPTS = ("race-chart.js", "race-tokens.js", "race.js")
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

CONNECT = """
const show = () => window.SpecDemoRace.mount(element.querySelector(".race-root")).update(props.value);
watch("value", show);
show();
"""


def race_head() -> str:
    """For the page's head: Plotly from its wheel, and the race view's own scripts."""
    gr.set_static_paths([PLOTLY_JS])
    own = "".join(f"<script>{(HERE / name).read_text(encoding='utf-8')}</script>" for name in SCRIPTS)
    return f'<script src="gradio_api/file={PLOTLY_JS.as_posix()}" defer></script>{own}'


def race_css() -> str:
    """The race view's styles."""
    return (HERE / "race.css").read_text(encoding="utf-8")


def create_race_tab(controls: Controls, store: PairStore) -> Stops:
    """Build the view in the current layout and wire Run and Stop to it; returns the visitors' stop signals."""
    view = gr.HTML(
        value=None,
        html_template='<div class="race-root"></div>',
        js_on_load=CONNECT,
        apply_default_css=False,
        padding=False,
        elem_id="race",
    )
    stops = Stops()
    buttons = [controls.run, controls.stop]

    def prepare(request: gr.Request, pair: str, prompt: str, *panel: Any) -> tuple[Any, ...]:
        stops.arm(request.session_hash or "")
        return waiting(_headers(panel)), *_busy(True)

    def execute(request: gr.Request, pair: str, prompt: str, *panel: Any) -> Iterator[dict[str, Any]]:
        try:
            lanes = race_settings(*panel)
        except SpecDemoError as error:
            yield failed(str(error))
            return
        stop = stops.signal(request.session_hash or "")
        yield from race_updates(store.thread, lambda: store.prefetch(pair).result(), prompt, lanes, stop)

    def stop(request: gr.Request) -> None:
        stops.stop(request.session_hash or "")

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    inputs = controls.inputs()
    # Decoding takes turns; what only touches the page does not wait in that queue.
    prepared = controls.run.click(prepare, inputs, [view, *buttons], queue=False, trigger_mode="once", **quiet)
    raced = prepared.then(execute, inputs, view, concurrency_id="model", concurrency_limit=1, **quiet)
    # What can go wrong in a race ends as a message of its own; this is the queue refusing one more run.
    raced.failure(lambda: (failed(BUSY), *_busy(False)), None, [view, *buttons], queue=False, **quiet)
    raced.then(lambda: _busy(False), None, buttons, queue=False, **quiet)
    controls.stop.click(stop, None, None, queue=False, **quiet)
    return stops


def _headers(panel: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The lanes as they will be called; none while the panel holds what cannot run."""
    try:
        return lane_headers(race_settings(*panel))
    except SpecDemoError:
        return []


def _busy(running: bool) -> tuple[Any, Any]:
    """Run and Stop, of which one can be pressed."""
    return gr.update(interactive=not running), gr.update(interactive=running)
