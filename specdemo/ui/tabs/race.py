"""The race tab: Run and Stop, and the view they feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.recording import Recording
from specdemo.ui.jobs.job import JobState, Paces
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.queue import JobRunner
from specdemo.ui.jobs.race import RaceJob, RepeatJob, race_job, race_value, repeat_job
from specdemo.ui.jobs.session_recordings import SessionRecordings
from specdemo.ui.links import LONGEST_KEPT, link_of
from specdemo.ui.panel.controls import UNQUEUED, Controls
from specdemo.ui.panel.pair_card import PairLoading
from specdemo.ui.state.request import PanelRequest
from specdemo.ui.tabs.recordings_panel import RecordingsPanel
from specdemo.ui.tabs.tab_parts import Start, Updates, connect, create_stage
from specdemo.view.assets import plotly_js, race_scripts
from specdemo.view.headline import headline
from specdemo.view.lane_headers import trace_headers
from specdemo.view.race_value import idle_value, summary


def race_head() -> str:
    """For the page's head: Plotly from its wheel, and the views' own scripts."""
    plotly = plotly_js()
    gr.set_static_paths([plotly])
    own = "".join(f"<script>{script}</script>" for script in race_scripts())
    return f'<script src="gradio_api/file={plotly.as_posix()}" defer></script>{own}'


def create_race_tab(
    controls: Controls, runner: JobRunner, loading: PairLoading, paces: Paces
) -> tuple[SessionRecordings, gr.HTML, Callable[[PanelRequest, str], Any]]:
    """Build the view in the current layout and wire Run, Stop and recordings to it.

    Returns the visitors' recordings, the view, and its value before there is a race.
    """
    chosen = controls.request([component.value for component in controls.inputs()]).lanes
    view, streams = create_stage("race", idle_value([lane.settings for lane in chosen]))
    recordings, signals = SessionRecordings(limits().kept), controls.signals
    panel = RecordingsPanel(view, recordings, signals, streams)

    again = gr.Button(visible="hidden", elem_id="race-repeat")  # pressed by the view
    last = gr.State()  # what ran last, as (its job, its value in the view)

    def keep(session: str, recording: Recording) -> None:
        if signals.running(session, "race"):  # else the visitor left meanwhile
            about = {**summary(recording), "date": recording.date, "link": link_of(recording, LONGEST_KEPT)}
            recordings.keep(session, recording, about)

    def job(request: PanelRequest) -> RaceJob:
        return race_job(request.prompt, request.lane_requests())

    def of_visit(job: RaceJob, session: str) -> RaceJob:
        return job.after(recordings.runs(session)) if any(s.settings.reads_earlier for s in job.lanes) else job

    def show(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            updates: Updates = {view: streams.offer(race_value(state))}
            if updates[view]["count"]:  # until then the last run stays, and after bad input
                recordings.leave_current(session)
            if state.ended and state.result is not None and state.result.recording is not None:
                updates[view]["link"] = link_of(state.result.recording)
                keep(session, state.result.recording)
                paces.learn_race(state.result.recording.traces)
                updates[last] = (state.result.job, updates[view])
            yield updates

    def begin(session: str) -> Updates:
        return {panel.saves: gr.update(visible=False)}

    def job_again(ran: tuple[RaceJob | None, dict[str, Any]] | None) -> RepeatJob:
        if ran is None or ran[0] is None:
            raise SpecDemoError("There is no race to repeat; press Run first.")
        return repeat_job(ran[0], ran[1])

    def show_again(states: Iterator[JobState], session: str) -> Iterator[Updates]:
        for state in states:
            if state.result is None:  # it has not begun
                yield {}
                continue
            job, speeds = state.result.job, state.result.speeds
            value = job.value | {"repeating": {"message": state.message, "over": state.ended}}
            recording = recordings.get(session) if state.ended and speeds else None
            if recording is not None:
                keep(session, replace(recording, repeats=speeds))
                value["headline"] = headline(recording.traces, trace_headers(recording.traces), speeds)
            yield {view: value, last: (job, value)}

    def end(session: str) -> Updates:
        visible = recordings.has(session)
        return {panel.saves: gr.update(visible=visible), panel.history: recordings.history(session)}

    def idle(request: PanelRequest, session: str) -> Any:
        if signals.running(session, "race") or recordings.has(session):
            return gr.skip()
        return idle_value([lane.settings for lane in request.lanes])

    def leave(request: gr.Request, *values: Any) -> None:
        loading.leave(request.session_hash or "", controls.choice(values))

    starts = [
        Start(controls.starts["race"], job, show, begin=begin, of_visit=of_visit),
        Start(again, job_again, show_again, [last], of_page=False),
    ]
    outputs = [view, last]
    connect(runner, controls, "race", starts, outputs, more=[panel.saves, panel.history], end=end)
    controls.stop.click(leave, controls.pair(), None, **UNQUEUED)  # a run also waits for its pair
    return recordings, view, idle
