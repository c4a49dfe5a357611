"""The side panel: everything a person chooses before pressing Run; Run, and Stop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import gradio as gr

from specdemo.models.request import catalog
from specdemo.runs.prompts import by_domain
from specdemo.runs.store import room
from specdemo.settings import MAX_TREE_NODES, Settings
from specdemo.ui.panel.controls import UNQUEUED, Controls, updates
from specdemo.ui.panel.first_pair import EXPECT, is_builtin, offers, size_here
from specdemo.ui.state.couplings import BROUGHT, DRAFTER, MODE, RULE, nearest_offered
from specdemo.ui.state.methods import FIRST_LANES, server_of, wish_of
from specdemo.ui.state.request import OPTIONS, shown_options
from specdemo.ui.state.state import METHOD_PARAMETERS, of_lanes, pairs, parameter_of, precision_of

TREES = [
    ("none: one guess a position", "0"),
    *((f"{n} tokens", str(n)) for n in (4, 6, 8, 12, 16, 24, 32, 48, 64)),
]
TYPED = f"Any number from 2 to {MAX_TREE_NODES} can be typed."
UNTRAINED = "Models not trained to exit early accept little; the output is the target's all the same."
Row = tuple[str, str, Any, dict[str, Any]]
FIRST: tuple[Row, ...] = (
    ("lane-how", "method", gr.Dropdown, {}),
    ("lane-gamma", "gamma", gr.Number, {}),  # no limits: Gradio would end a run with an error of its own
)
MORE: tuple[Row, ...] = (
    ("lane-gamma", "adaptive_gamma", gr.Checkbox, {"container": False}),
    ("lane-gamma", "tree_nodes", gr.Dropdown, {"choices": TREES, "info": TYPED, "allow_custom_value": True}),
    ("lane-how", "acceptance", gr.Dropdown, {}),
    ("lane-how", "p_min", gr.Slider, {"step": 0.05}),
    ("lane-how", "earlier_outputs", gr.Checkbox, {"container": False}),
    ("lane-how", "accept_top_k", gr.Number, {"precision": 0}),
    ("lane-how", "lookup_ngram", gr.Slider, {}),
    ("lane-how", "exit_layer", gr.Number, {"precision": 0, "info": UNTRAINED}),
)
"""A lane's controls: the column, which a tab that does not use it dims as a whole by its class; how they look."""
# What is shown follows the values, whoever sets them; the browser does that by itself.
SHOW_OPTIONS = "(...read) => window.SpecDemoPanel.options(...read)"
PROMPT_LINES = 9
"""The prompt has one height, so that Run stays where it is."""
SHOW_PAIR = """
(pair) => [pair === "custom", !pair.startsWith("server:"), pair.startsWith("builtin")]
  .map((visible) => ({ __type__: "update", visible }))
"""
NAME_TARGET = """
(pair) => setTimeout(() => pair === "custom"
  && document.querySelector("#custom-target input:placeholder-shown")?.focus(), 100)
"""
# Exact match needs temperature 0; a rule that stays is not set, since it may have been chosen meanwhile.
WARM = """
(temperature, ...rules) => rules.map((rule) => temperature && rule === "exact"
  ? { __type__: "update", value: "sampling" } : { __type__: "update" })
"""


def create_panel(controls: Controls) -> None:
    """Build the panel in the current layout and wire what only concerns itself."""
    with gr.Row(elem_classes="chips"):
        look: dict[str, Any] = {"size": "sm", "min_width": 40, "elem_classes": "chip"}
        chips = {name: gr.Button(name, elem_id=f"example-{name}", **look) for name in by_domain()}
    prompt = controls.build("prompt", gr.Textbox, lines=PROMPT_LINES, max_lines=PROMPT_LINES)
    for domain, chip in chips.items():
        chip.click(partial(_next_example, domain), prompt, prompt, **UNQUEUED)
    create_run_row(controls)
    with gr.Column(elem_id="first-pair") as first_pair:
        gr.HTML(f"<p>{EXPECT}</p>", padding=False, elem_id="expect")
        gr.HTML(offers(), padding=False, elem_id="real-models")
    sheet = gr.Button("Settings: models, lanes, length, sampling", size="sm", elem_id="settings-toggle")
    sheet.click(None, None, None, js="() => { window.SpecDemoPanel.toggleSettings(); }", **UNQUEUED)
    with gr.Column(elem_id="settings"):
        custom = create_pair_controls(controls)
        create_lanes(controls)
        with gr.Accordion("More of the run", open=False, elem_id="run-more", elem_classes="more"):
            controls.build("length", gr.Slider)
            controls.build("ignore-eos", gr.Checkbox)
            temperature = controls.build("temperature", gr.Slider, step=0.05)
            with gr.Row(elem_classes="pairwise"):
                controls.build("top-k", gr.Number, precision=0, min_width=110)
                controls.build("seed", gr.Number, precision=0, min_width=110)
            controls.build("top-p", gr.Slider, step=0.01)
            controls.build("chat", gr.Checkbox)
            eager = "CUDA graphs need a GPU; what cannot have them runs eagerly, and its lane says so."
            controls.build("engine", gr.Dropdown, info=eager)
            with gr.Column(elem_id="precision") as precision:  # which a server has no use for
                for row in (("target-weights", "draft-weights"), ("dtype", "device")):
                    with gr.Row(elem_classes="pairwise"):
                        for name in row:
                            controls.build(name, gr.Dropdown, min_width=110)
    controls.wished = gr.State(list(FIRST_LANES))
    pair = controls["pair"]
    pair.change(None, pair, [custom, precision, first_pair], js=SHOW_PAIR, **UNQUEUED)
    # Only what a person does triggers these couplings: a link has a value for every control.
    pair.input(None, pair, None, js=NAME_TARGET, **UNQUEUED)
    rules = controls.named(of_lanes("acceptance"))
    temperature.input(None, [temperature, *rules], rules, js=WARM, **UNQUEUED)


def _next_example(domain: str, current: str | None) -> str:
    """A domain's first prompt, or the one after the current."""
    prompts, now = [e.prompt.strip() for e in by_domain()[domain]], (current or "").strip()
    return prompts[(prompts.index(now) + 1 if now in prompts else 0) % len(prompts)]


def create_pair_controls(controls: Controls) -> gr.Column:
    """Build the controls in the current layout; returns the fields for names, which a custom pair has."""
    free = room() / 1e9
    sizes = {e.id: size_here(e) for e in catalog().values() if not is_builtin(e.id)}
    sized = {n: f" · {s:.3g} GB, {'fits' if s <= free else 'too large'} here" for n, s in sizes.items()}
    choices = [(label + sized.get(name, ""), name) for name, label in pairs().items()]
    controls.build("pair", gr.Dropdown, choices=choices)
    with gr.Column(visible=False, elem_id="custom-pair") as custom:
        controls.build("target", gr.Textbox, placeholder="Qwen/Qwen3-4B", max_lines=1)
        controls.build("draft", gr.Textbox, placeholder="Qwen/Qwen3-0.6B", max_lines=1)
    card = gr.HTML(value=None, padding=False, elem_id="pair-card")
    with gr.Row(elem_classes="actions"):
        load = gr.Button("Load", size="sm", visible=False, elem_id="load", min_width=120)
        cancel = gr.Button("Stop loading", size="sm", visible=False, elem_id="cancel-load", min_width=120)
    controls.card = card, load, cancel
    return custom


def create_lanes(controls: Controls) -> None:
    """Build the lanes in the current layout: the first that drafts, and the others by *+ lane*."""
    with gr.Column(elem_id="lanes-box"):
        add = gr.Button("+ lane", size="sm", elem_id="add-lane", elem_classes="text-button")
        with gr.Tabs(selected=2, elem_id="lanes") as tabs:
            for number, method in enumerate(FIRST_LANES, start=1):
                with gr.Tab(f"Lane {number}", id=number, elem_classes="lane-tab"):
                    _create_lane(controls, number, method)
    add.click(None, None, tabs, js="() => window.SpecDemoPanel.addLane()", **UNQUEUED)


def _create_lane(controls: Controls, number: int, method: str) -> None:
    """Build the controls of a lane, from 1, in the current layout; shown are those that its first method reads."""
    read = shown_options(method, Settings().acceptance)
    lane: dict[str, Any] = {}

    def build(rows: Sequence[Row]) -> None:
        for column, controls_of in groupby(rows, key=itemgetter(0)):
            with gr.Column(elem_classes=f"lane-part {column}"):
                for _, field, kind, look in controls_of:
                    name, shown = parameter_of(f"lane{number}", field), field in ("method", *read)
                    lane[field] = controls.build(name, kind, visible=shown, **look)

    build(FIRST)
    # Who goes to another lane than the one that stands here at first has come for its options.
    look: dict[str, Any] = {"open": number != 2, "elem_id": f"lane{number}-more", "elem_classes": "more"}
    with gr.Accordion("More of this lane", visible=len(read) > 1, **look) as more:
        build(MORE)
    changed = [lane[field] for field in ("method", "acceptance", "tree_nodes")]
    outputs = [*(lane[field] for field in OPTIONS), more]
    gr.on([each.change for each in changed], None, changed, outputs, js=SHOW_OPTIONS, **UNQUEUED)


def connect_couplings(controls: Controls) -> None:
    """Let what a person chooses bring what goes with it; a method that a pair lacks comes back later.

    By hand only: a link says for itself what goes with its pair and its kind of check.
    """
    names = ("pair", "target", "draft", "target-weights")
    pair, target, draft, weights = controls.named(names)
    wished = controls.wished
    # Leaving the draft's field empty changes nothing in it, but says that there is no draft model.
    drafts = [target.blur, target.submit, draft.input, draft.blur, draft.submit, weights.input]
    for events, read, brought, brings in (
        ([pair.input], names, BROUGHT["pair"], (*precision_of(pair.value), "chat", *METHOD_PARAMETERS)),
        (drafts, names, nearest_offered, METHOD_PARAMETERS),
        # Apart: the page sends what a tab holds that was never opened a moment late, which Gradio may refuse.
        ([pair.input, target.input, draft.input], (*names, DRAFTER), nearest_offered, (DRAFTER,)),
        ([controls[MODE].input], (MODE, RULE), BROUGHT[MODE], (RULE,)),
    ):

        def follow(wishes: list[str], *sent: Any, read=read, brought=brought, brings=brings) -> Any:
            values = dict(zip((*read, *METHOD_PARAMETERS), (*sent, *wishes), strict=True))
            found = updates(brings, values | brought(values))
            return found if len(found) > 1 else found[0]

        inputs = [wished, *controls.named(read)]
        gr.on(events, follow, inputs, controls.named(brings), trigger_mode="always_last", **UNQUEUED)

    def wish(lane: int, chosen: str, name: str, wishes: list[str]) -> list[str]:
        return [*wishes[:lane], wish_of(chosen, server_of(name)), *wishes[lane + 1 :]]

    for lane, method in enumerate(controls.methods):  # a person's choices only: what a pair brings is no wish
        method.input(partial(wish, lane), [method, pair, wished], wished, **UNQUEUED)


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
            talk, copy = (
                gr.Button(label, size="sm", elem_id=element, elem_classes="text-button", min_width=60)
                for label, element in (("Talk view", "enter-talk"), ("Copy link", "copy-link"))
            )
        controls.note = gr.HTML(value=None, padding=False, elem_id="panel-note")
    controls.stop.click(halt, None, None, js=STOPPING, **UNQUEUED)
    copy.click(None, None, None, js="() => { window.SpecDemoLinks.copy(); }", **UNQUEUED)
    talk.click(None, None, None, js="() => { window.SpecDemoTalk.enter(); }", **UNQUEUED)
