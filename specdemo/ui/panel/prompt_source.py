"""Where the prompts of a measurement come from: the panel, the builtin domains, or a person's own lines."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.errors import PromptError
from specdemo.runs.prompts import MOST_PROMPTS, by_domain, prompt_lines, read_with_kinds
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.state import DOMAINS, OWN, PANEL

SHOW = """
(source) => ["domains", "own"].map((name) => ({ __type__: "update", visible: source === name }))
"""


@dataclass(frozen=True, slots=True)
class PromptSource:
    """The components that name the prompts."""

    source: gr.Radio
    domains: gr.CheckboxGroup
    own: gr.Textbox
    file: gr.File

    def inputs(self) -> list[Any]:
        """What :func:`chosen_prompts` reads, in its order."""
        return [getattr(self, f.name) for f in fields(self)]


SOURCE_INPUTS = len(fields(PromptSource))


def create_prompt_source(controls: Controls, tab: str) -> PromptSource:
    """Build the choice of a tab in the current layout."""
    source = controls.build(f"{tab}.prompts", gr.Radio)
    domains = controls.build(f"{tab}.domains", gr.CheckboxGroup, visible=source.value == DOMAINS)
    with gr.Row(visible=source.value == OWN, elem_classes="own-prompts") as mine:
        label = "One prompt a line, here or in a .txt file; .jsonl with “prompt” or “text” in each line"
        own = controls.build(f"{tab}.own", gr.Textbox, label=label, lines=5, max_lines=12, scale=2)
        file = gr.File(label="File, up to 1 MB", file_types=[".txt", ".jsonl"], height=150, elem_id=f"{tab}-file")
    source.change(None, source, [domains, mine], js=SHOW, **QUIET)
    return PromptSource(source, domains, own, file)


def chosen_prompts(panel_prompt: str, *source: Any, mixed: bool = False) -> list[str]:
    """The prompts in the order of the page, without their kinds; as :func:`chosen_with_kinds`."""
    return [prompt for prompt, _ in chosen_with_kinds(panel_prompt, *source, mixed=mixed)]


def chosen_with_kinds(
    panel_prompt: str,
    source: str,
    domains: list[str] | None,
    own: str | None,
    file: str | None,
    *,
    mixed: bool = False,
) -> list[tuple[str, str]]:
    """The prompts in the order of the page, each with its domain or the kind that a file names.

    Args:
        panel_prompt: the panel's.
        source, domains, own, file: what is chosen.
        mixed: take the domains' prompts by turns, so that the first few are of all domains.

    Raises:
        PromptError: there is none, or a file cannot be read; says what to do.
    """
    if source == PANEL:
        return [(panel_prompt, "")]
    if source == DOMAINS:
        grouped = [[(e.prompt, e.domain) for e in by_domain().get(name, [])] for name in domains or []]
        turns = zip_longest(*grouped) if mixed else grouped
        found = [each for group in turns for each in group if each is not None]
        if not found:
            raise PromptError("no domain is chosen; tick at least one.")
        return found
    typed = [(line, "") for line in prompt_lines(own)] if own and own.strip() else []
    uploaded = read_with_kinds(Path(file)) if file else []
    if not typed and not uploaded:
        raise PromptError("there is none; write one a line, or choose a file.")
    if len(typed) + len(uploaded) > MOST_PROMPTS:
        raise PromptError(f"there are {len(typed) + len(uploaded):,} in all; give at most {MOST_PROMPTS}.")
    return [*typed, *uploaded]
