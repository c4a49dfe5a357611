"""Run and Stop: each tab has a button that starts it, and the page shows the open tab's; Stop is one for all."""

from __future__ import annotations

import gradio as gr

from specdemo.ui.event_options import UNQUEUED
from specdemo.ui.panel.controls import Controls

STARTS = {
    "race": ("Run race", "run"),
    "sweep": ("Measure", "sweep-run"),
    "batch": ("Measure sizes", "batch-measure"),
    "losslessness": ("Check", "losslessness-start"),
}
"""Label and element of each tab's button; page.css shows the one of the tab that is open."""

# Not an update by the server, which could arrive after the last one of what was stopped and stay.
STOPPING = """
() => {
  for (const line of document.querySelectorAll(".job-state:has(.bar) p")) line.textContent = "Stopping…";
}
"""


def create_run_row(controls: Controls) -> None:
    """Build the buttons in the current layout; what they start is wired by the tabs."""

    def halt(request: gr.Request) -> None:
        controls.signals.stop(request.session_hash or "")

    with gr.Column(elem_id="run-dock"):
        with gr.Row(elem_classes="actions", elem_id="run-row"):
            controls.starts = {
                tab: gr.Button(
                    label, variant="primary", elem_id=element, elem_classes=["start", f"on-{tab}"], min_width=120
                )
                for tab, (label, element) in STARTS.items()
            }
            controls.stop = gr.Button("Stop", variant="secondary", interactive=False, elem_id="stop", min_width=80)
        with gr.Row(elem_id="text-buttons"):
            copy, talk = (
                gr.Button(label, size="sm", elem_id=element, elem_classes="text-button", min_width=60)
                for label, element in (("Copy link", "copy-link"), ("Talk view", "enter-talk"))
            )
    controls.stop.click(halt, None, None, js=STOPPING, **UNQUEUED)
    copy.click(None, None, None, js="() => { window.SpecDemoLinks.copy(); }", **UNQUEUED)
    talk.click(None, None, None, js="() => { window.SpecDemoTalk.enter(); }", **UNQUEUED)
