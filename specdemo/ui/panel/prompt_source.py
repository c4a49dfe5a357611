"""Where the prompts of a measurement come from: the panel, the builtin domains, or a person's own lines."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import gradio as gr

from specdemo.errors import PromptError
from specdemo.runs.prompts import MOST_PROMPTS, by_domain, prompt_lines, read_with_kinds
from specdemo.ui.event_options import UNQUEUED
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.state import DOMAINS, OWN, PANEL, Batch, Sweep

SHOW = """
(source) => ["domains", "own"].map((name) => ({ __type__: "update", visible: source === name }))
"""


def create_prompt_source(controls: Controls, tab: str) -> gr.File:
    """Build the choice of a tab in the current layout; returns what is no part of the page's state."""
    source = controls.build(f"{tab}.prompts", gr.Radio)
    domains = controls.build(f"{tab}.domains", gr.CheckboxGroup, visible=source.value == DOMAINS)
    with gr.Row(visible=source.value == OWN, elem_classes="own-prompts") as own:
        label = "One prompt a line, here or in a .txt file; .jsonl with “prompt” or “text” in each line"
        controls.build(f"{tab}.own", gr.Textbox, label=label, lines=5, max_lines=12, scale=2)
        file = gr.File(label="File, up to 1 MB", file_types=[".txt", ".jsonl"], height=150, elem_id=f"{tab}-file")
    source.change(None, source, [domains, own], js=SHOW, **UNQUEUED)
    return file


def chosen_prompts(
    panel_prompt: str, tab: Sweep | Batch, file: str | None, *, mixed: bool = False
) -> list[tuple[str, str]]:
    """The prompts in the order of the page, each with its domain or the kind that a file names.

    Args:
        panel_prompt: the panel's.
        tab: what is chosen there.
        file: a person's own.
        mixed: take the domains' prompts by turns, so that the first few are of all domains.

    Raises:
        PromptError: there is none, or a file cannot be read; says what to do.
    """
    if tab.prompts == PANEL:
        return [(panel_prompt, "")]
    if tab.prompts == DOMAINS:
        grouped = [[(e.prompt, e.domain) for e in by_domain().get(name, [])] for name in tab.domains or []]
        turns = zip_longest(*grouped) if mixed else grouped
        found = [each for group in turns for each in group if each is not None]
        if not found:
            raise PromptError("no domain is chosen; tick at least one.")
        return found
    typed = [(line, "") for line in prompt_lines(tab.own)] if tab.own and tab.own.strip() else []
    uploaded = read_with_kinds(Path(file)) if file else []
    if not typed and not uploaded:
        raise PromptError("there is none; write one a line, or choose a file.")
    if len(typed) + len(uploaded) > MOST_PROMPTS:
        raise PromptError(f"there are {len(typed) + len(uploaded):,} in all; give at most {MOST_PROMPTS}.")
    return [*typed, *uploaded]
