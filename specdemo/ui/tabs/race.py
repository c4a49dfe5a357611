"""The race tab: Run and Stop, and the view they feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from specdemo.ui.event_options import UNSEEN
from specdemo.ui.jobs.job import JobState
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.race import RaceJob, race_job, race_value
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.jobs.session_recordings import SessionRecordings
from specdemo.ui.jobs.stops import StopSignals
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.pair_loading import PairLoading
from specdemo.ui.panel.request import panel_request
from specdemo.ui.tabs.recordings_panel import Desk, create_recordings, create_saves
from specdemo.ui.tabs.tab_parts import Start, Updates, connect
from specdemo.view.assets import plotly_js, race_scripts

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
    controls: Controls, runner: JobRunner, loading: PairLoading
) -> tuple[StopSignals, SessionRecordings]:
    """Build the view in the current layout and wire Run, Stop and recordings to it.

    Returns the visitors' stop signals and recordings, both to be told when one leaves.
    """
    view = gr.HTML(
        value=None,
        html_template='<div class="race-root"></div>',
        js_on_load=CONNECT,
        apply_default_css=False,
        padding=False,
        elem_id="race",
    )
    recordings, desk = SessionRecordings(limits().kept), Desk()
    saves = create_saves(recordings, desk)
    create_recordings(view, saves, recordings, desk)

    def job(*values: Any) -> RaceJob:
        panel = panel_request(values)
        return race_job(panel.prompt, panel.lane_requests())

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            if state.ended and state.result is not None and state.result.recording is not None:
                recordings.finish(session, state.result.recording)
            yield {view: race_value(state)}

    def begin(session: str) -> Updates:
        recordings.begin(session)
        return {saves: gr.update(visible=False)}

    def end(session: str) -> Updates:
        recordings.end(session)
        return {saves: gr.update(visible=recordings.has(session))}

    signals, (ended,) = connect(
        runner,
        [Start(controls.run, job, show)],
        controls.stop,
        controls.inputs(),
        [view],
        more=[saves],
        begin=begin,
        end=end,
        stop_inputs=controls.pair.inputs(),
        stopped=loading.leave,
    )
    # A run may have loaded its pair, and put another out of memory.
    card = [controls.pair.card, controls.pair.load, controls.pair.cancel]
    ended.then(lambda *values: loading.now(values), controls.pair.inputs(), card, **UNSEEN)
    return signals, recordings
