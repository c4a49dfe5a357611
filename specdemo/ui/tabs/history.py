"""The runs of this visit: what was raced, how fast it was, and a way back to each."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specdemo.ui.jobs.session_recordings import SessionRecordings
from specdemo.ui.tabs.recordings_panel import GONE, IN_TURN, Desk
from specdemo.ui.tabs.round_streams import RoundStreams
from specdemo.view.race_value import replay_value

CONNECT = """
const show = () => window.SpecDemoHistory.show(element.querySelector(".history"), props.value, (number) => {
  trigger("select", { number });
});
watch("value", show);
show();
"""


def create_history(
    view: gr.HTML, saves: gr.Row, recordings: SessionRecordings, desk: Desk, streams: RoundStreams
) -> gr.HTML:
    """Build the list in the current layout, empty until there is a run; one that is chosen is replayed."""
    runs = gr.HTML(
        value=None,
        html_template='<div class="history"></div>',
        js_on_load=CONNECT,
        apply_default_css=False,
        padding=False,
        elem_id="history",
    )

    def look_back(event: gr.EventData, request: gr.Request) -> list[Any]:
        return desk.do(lambda: found(getattr(event, "number", None), request.session_hash or ""))

    def found(number: Any, session: str) -> list[Any]:
        chosen = None
        if isinstance(number, int) and not recordings.running(session):
            chosen = recordings.look_back(session, number)
        if chosen is None:
            gr.Warning(GONE)
            return [gr.skip(), gr.skip(), recordings.history(session)]
        return [streams.offer(replay_value(chosen)), gr.update(visible=True), recordings.history(session)]

    runs.select(look_back, None, [view, saves, runs], **IN_TURN)
    return runs
