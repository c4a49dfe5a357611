"""The buttons under Run that need no server: a link to the page as it stands, and the view for a talk."""

from __future__ import annotations

import gradio as gr

from specdemo.ui.event_options import QUIET


def create_link_buttons() -> None:
    """Build them in the current layout."""
    copy = gr.Button("Copy link", size="sm", elem_id="copy-link", elem_classes="quiet-button", min_width=60)
    talk = gr.Button("Talk view", size="sm", elem_id="enter-talk", elem_classes="quiet-button", min_width=60)
    copy.click(None, None, None, js="() => { window.SpecDemoLinks.copy(); }", **QUIET)
    talk.click(None, None, None, js="() => { window.SpecDemoTalk.enter(); }", **QUIET)
