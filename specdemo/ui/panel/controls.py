"""The side panel: everything a person chooses before pressing Run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.events import Dependency

from specdemo.models.catalog import catalog
from specdemo.runs.prompts import by_domain
from specdemo.settings import Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.jobs.limits import limits
from specdemo.ui.panel.lane_controls import LaneControls, create_lane
from specdemo.ui.panel.methods import (
    FIRST_LANES,
    method_choices,
    methods_on,
    nearest_method,
    wish_of,
)
from specdemo.ui.panel.pair_controls import (
    NONE,
    PairControls,
    create_pair_controls,
    held_as,
    parts_of,
)
from specdemo.ui.panel.run_row import RunRow, create_run_row
from specdemo.ui.panel.server_choice import server_chats, server_of

ENGINES = {
    "auto": "Automatic: the fastest there is",
    "eager": "Eager: transformers, call by call",
    "graphs": "CUDA graphs",
}
"""What runs the models' layers, and how the page calls it."""


@dataclass(frozen=True, slots=True)
class Controls:
    """The components of the side panel."""

    pair: PairControls
    prompt: gr.Textbox
    temperature: gr.Slider
    top_k: gr.Number
    top_p: gr.Slider
    seed: gr.Number
    chat: gr.Checkbox
    engine: gr.Dropdown
    max_new_tokens: gr.Slider
    ignore_eos: gr.Checkbox
    lanes: list[LaneControls]
    wished: gr.State
    followed: Dependency
    """A pair was chosen, and the lanes have followed."""
    note: gr.HTML
    """Says what is wrong with these values."""
    row: RunRow

    def inputs(self) -> list[gr.components.Component]:
        """What a run reads: see :func:`specdemo.ui.panel.request.panel_request`."""
        sampling = [self.temperature, self.top_k, self.top_p, self.seed]
        shared = [*sampling, self.chat, self.engine, self.max_new_tokens, self.ignore_eos]
        lanes = [component for lane in self.lanes for component in lane.inputs()]
        return [*self.pair.inputs(), self.prompt, *shared, *lanes]


def create_controls() -> Controls:
    """Build the panel in the current layout and wire what only concerns itself."""
    defaults = Settings()
    first_prompt = next(iter(by_domain().values()))[0].prompt
    prompt = gr.Textbox(first_prompt, label="Prompt", lines=3, max_lines=10, elem_id="prompt")
    _example_chips(prompt)
    sheet = gr.Button("Settings: models, lanes, length, sampling", size="sm", elem_id="settings-toggle")
    sheet.click(None, None, None, js="() => { window.SpecDemoPanel.toggleSettings(); }", **QUIET)
    with gr.Column(elem_id="settings"):
        pair = create_pair_controls()
        lanes, parts = [], parts_of(pair.pair.value, None, None)
        with gr.Tabs(selected=2, elem_id="lanes"):
            for number, method in enumerate(FIRST_LANES, start=1):
                with gr.Tab(f"Lane {number}", id=number, elem_classes="lane-tab"):
                    lanes.append(create_lane(number, method, optional=number > 1, parts=parts))
        max_new_tokens = gr.Slider(
            1,
            limits().tokens,
            defaults.max_new_tokens,
            step=1,
            label="Length, tokens",
            buttons=[],
            elem_id="max-tokens",
        )
        ignore_eos = gr.Checkbox(False, label="Ignore the end token: always the full length", elem_id="ignore-eos")
        with gr.Accordion("Sampling", open=False, elem_id="sampling"):
            temperature = gr.Slider(
                0, 2, 0, step=0.05, label="Temperature, 0 is greedy", buttons=[], elem_id="temperature"
            )
            with gr.Row(elem_classes="pairwise"):
                top_k = gr.Number(0, label="Top-k, 0 is off", precision=0, min_width=110, elem_id="top-k")
                seed = gr.Number(0, label="Seed", precision=0, min_width=110, elem_id="seed")
            top_p = gr.Slider(0.05, 1, 1, step=0.01, label="Top-p, 1 is off", buttons=[], elem_id="top-p")
            chat = gr.Checkbox(True, label="Use the chat template", elem_id="chat")
            engine = gr.Dropdown(
                [(label, name) for name, label in ENGINES.items()],
                value=defaults.engine,
                label="Engine of single lanes",
                info="CUDA graphs need a GPU; what cannot have them runs eagerly, and its lane says so.",
                elem_id="engine",
            )
    note = gr.HTML(value=None, padding=False, elem_id="panel-note")
    row = create_run_row()
    _couple_temperature(temperature, [lane.acceptance for lane in lanes])
    # Only what a person does triggers these couplings: a link has a value for every control.
    pair.pair.input(chats, pair.pair, chat, **QUIET)
    wished, followed = _offer_methods(pair, [lane.method for lane in lanes])
    return Controls(
        pair=pair,
        prompt=prompt,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        chat=chat,
        engine=engine,
        max_new_tokens=max_new_tokens,
        ignore_eos=ignore_eos,
        lanes=lanes,
        wished=wished,
        followed=followed,
        note=note,
        row=row,
    )


def _example_chips(prompt: gr.Textbox) -> None:
    """One small button a domain; pressing it again gives the domain's next prompt."""

    def next_example(domain: str, current: str) -> str:
        prompts = [e.prompt.strip() for e in by_domain()[domain]]
        place = prompts.index(current.strip()) + 1 if current.strip() in prompts else 0
        return prompts[place % len(prompts)]

    with gr.Row(elem_classes="chips"):
        for domain in by_domain():
            gr.Button(domain, size="sm", min_width=40, elem_classes="chip", elem_id=f"example-{domain}").click(
                lambda current, domain=domain: next_example(domain, current or ""),
                prompt,
                prompt,
                **QUIET,
            )


def _couple_temperature(temperature: gr.Slider, rules: list[gr.Dropdown]) -> None:
    """Above temperature 0, which exact match needs, rejection sampling takes its place."""
    gr.on(
        temperature.input,
        # A rule that stays is not sent back: a slow answer would undo what was chosen meanwhile.
        lambda t, *chosen: ["sampling" if t and rule == "exact" else gr.skip() for rule in chosen],
        [temperature, *rules],
        rules,
        trigger_mode="always_last",
        **QUIET,
    )


def chats(pair: str) -> bool:
    """Whether a pair's prompts go into its chat template unless one says otherwise."""
    server = server_of(pair)
    if server is not None:
        return server_chats(server)
    return pair not in catalog() or catalog()[pair].chat


def _offer_methods(pair: PairControls, methods: list[gr.Dropdown]) -> tuple[gr.State, Dependency]:
    """Offer in each lane the methods that the pair has; one whose method is gone takes the nearest for so long.

    Returns:
        The method that was last wished for each lane, and the event after which the lanes go with a chosen pair.
    """
    wished = gr.State(list(FIRST_LANES))

    def offer(name: str, target: str, draft: str, quantization: str, wishes: list[str]) -> list[Any]:
        updates = []
        server = server_of(name)
        wanted = wishes if server is None else methods_on(server, wishes)
        for number, wish in enumerate(wanted, start=1):
            choices = method_choices(
                parts=parts_of(name, target, draft),
                quantized=quantization != NONE,
                optional=number > 1,
                server=server,
            )
            method = nearest_method(wish, [value for _, value in choices])
            updates.append(gr.update(choices=choices, value=method))
        return updates

    def offer_first(name: str, target: str, draft: str, wishes: list[str]) -> list[Any]:
        return offer(name, target, draft, held_as(name)[0], wishes)

    named = [pair.pair, pair.target, pair.draft]
    followed = pair.pair.input(offer_first, [*named, wished], methods, trigger_mode="always_last", **QUIET)
    # Leaving the draft's field empty changes nothing in it, but says that there is no draft model.
    triggers = [pair.draft.input, pair.draft.blur, pair.draft.submit, pair.target_quantization.input]
    inputs = [*named, pair.target_quantization, wished]
    gr.on(triggers, offer, inputs, methods, trigger_mode="always_last", **QUIET)

    def wish(lane: int, chosen: str, name: str, wishes: list[str]) -> list[str]:
        return [*wishes[:lane], wish_of(chosen, server_of(name)), *wishes[lane + 1 :]]

    for lane, method in enumerate(methods):  # a person's choices only: what a pair brings about is no wish
        method.input(partial(wish, lane), [method, pair.pair, wished], wished, **QUIET)
    return wished, followed
