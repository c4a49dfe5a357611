"""The side panel: everything a person chooses before pressing Run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError
from specdemo.models.catalog import catalog
from specdemo.prompts import by_domain
from specdemo.settings import MAX_GAMMA, Settings

STRATEGY_LABELS = {"autoregressive": "Plain", "speculative": "Speculative"}
ACCEPTANCE_LABELS = {
    "exact": "exact match · lossless",
    "sampling": "rejection sampling · lossless",
    "top_k": "among top k · lossy",
}
LONGEST_OUTPUT = 1024


@dataclass(frozen=True, slots=True)
class Controls:
    """The components of the side panel."""

    pair: gr.Dropdown
    prompt: gr.Textbox
    left: gr.Dropdown
    right: gr.Dropdown
    gamma: gr.Slider
    acceptance: gr.Dropdown
    accept_top_k: gr.Number
    temperature: gr.Slider
    top_k: gr.Number
    top_p: gr.Slider
    seed: gr.Number
    chat: gr.Checkbox
    max_new_tokens: gr.Slider
    run: gr.Button
    stop: gr.Button

    def inputs(self) -> list[gr.components.Component]:
        """What a run reads, in the order of ``race_settings`` after pair and prompt."""
        return [
            self.pair,
            self.prompt,
            self.left,
            self.right,
            self.gamma,
            self.acceptance,
            self.accept_top_k,
            self.temperature,
            self.top_k,
            self.top_p,
            self.seed,
            self.chat,
            self.max_new_tokens,
        ]


def race_settings(
    left: str,
    right: str,
    gamma: float,
    acceptance: str,
    accept_top_k: float | None,
    temperature: float | None,
    top_k: float | None,
    top_p: float | None,
    seed: float | None,
    chat: bool,
    max_new_tokens: float | None,
) -> list[Settings]:
    """Both lanes' settings from the panel's values.

    Raises:
        SettingsError: a value is missing or out of range; names the field.
    """
    shared: dict[str, Any] = {
        "temperature": temperature,
        "top_k": _whole("top_k", top_k),
        "top_p": top_p,
        "seed": _whole("seed", seed),
        "chat": None if chat else False,
        "max_new_tokens": _whole("max_new_tokens", max_new_tokens),
    }
    drafting: dict[str, Any] = {
        "gamma": _whole("gamma", gamma),
        "acceptance": acceptance,
        "accept_top_k": _whole("accept_top_k", accept_top_k),
    }
    return [Settings(strategy=s, **shared, **(drafting if s == "speculative" else {})) for s in (left, right)]


def _whole(field: str, value: float | None) -> int | float | None:
    """JSON knows one kind of number; what is whole becomes an int, the rest is left for Settings to refuse."""
    if value is None:
        raise SettingsError(field, "is empty; give a whole number.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def create_controls() -> Controls:
    """Build the panel in the current layout and wire what only concerns itself."""
    pairs = [(e.label, e.id) for e in catalog().values()]
    strategies = [(label, name) for name, label in STRATEGY_LABELS.items()]
    defaults = Settings()
    first_prompt = next(iter(by_domain().values()))[0].prompt
    pair = gr.Dropdown(pairs, value=pairs[0][1], label="Model pair", elem_id="pair")
    prompt = gr.Textbox(first_prompt, label="Prompt", lines=3, max_lines=10, elem_id="prompt")
    _example_chips(prompt)
    with gr.Row(elem_classes="pairwise"):
        left = gr.Dropdown(strategies, value="autoregressive", label="Left lane", min_width=110, elem_id="left")
        right = gr.Dropdown(strategies, value="speculative", label="Right lane", min_width=110, elem_id="right")
    gamma = gr.Slider(1, MAX_GAMMA, defaults.gamma, step=1, label="γ, tokens drafted per round", elem_id="gamma")
    acceptance = gr.Dropdown(
        [(label, name) for name, label in ACCEPTANCE_LABELS.items()],
        value=defaults.acceptance,
        label="Acceptance",
        elem_id="acceptance",
    )
    accept_top_k = gr.Number(
        defaults.accept_top_k,
        label="Accept among the target's top",
        precision=0,
        visible=False,
        elem_id="accept-top-k",
    )
    max_new_tokens = gr.Slider(
        1, LONGEST_OUTPUT, defaults.max_new_tokens, step=1, label="Length, tokens", elem_id="max-tokens"
    )
    with gr.Accordion("Sampling", open=False, elem_id="sampling"):
        temperature = gr.Slider(0, 2, 0, step=0.05, label="Temperature, 0 is greedy", elem_id="temperature")
        with gr.Row(elem_classes="pairwise"):
            top_k = gr.Number(0, label="Top-k, 0 is off", precision=0, min_width=110, elem_id="top-k")
            seed = gr.Number(0, label="Seed", precision=0, min_width=110, elem_id="seed")
        top_p = gr.Slider(0.05, 1, 1, step=0.01, label="Top-p, 1 is off", elem_id="top-p")
        chat = gr.Checkbox(True, label="Use the chat template", elem_id="chat")
    with gr.Row(elem_classes="actions"):
        run = gr.Button("Run", variant="primary", elem_id="run", min_width=120)
        stop = gr.Button("Stop", variant="secondary", interactive=False, elem_id="stop", min_width=80)
    _couple_temperature(temperature, acceptance)
    acceptance.change(
        lambda rule: gr.update(visible=rule == "top_k"),
        acceptance,
        accept_top_k,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    return Controls(
        pair=pair,
        prompt=prompt,
        left=left,
        right=right,
        gamma=gamma,
        acceptance=acceptance,
        accept_top_k=accept_top_k,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        chat=chat,
        max_new_tokens=max_new_tokens,
        run=run,
        stop=stop,
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
                queue=False,
                show_progress="hidden",
                api_visibility="private",
            )


def _couple_temperature(temperature: gr.Slider, acceptance: gr.Dropdown) -> None:
    """Exact match means nothing above temperature 0: warming up turns it into its lossless counterpart."""
    temperature.change(
        lambda t, rule: "sampling" if t and rule == "exact" else rule,
        [temperature, acceptance],
        acceptance,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
