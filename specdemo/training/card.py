"""A pair's model card: right answers and what its drafters keep, on held-out prompts that nobody selected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from jinja2 import Template
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdemo.drafters import offered_with
from specdemo.files import write_whole
from specdemo.metrics import counts_of, totals
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.runs.single import run
from specdemo.settings import Settings
from specdemo.training.answers import Checked, check_held_out, prompt_ids, table
from specdemo.training.tasks.mixture import Domain

GAMMA, TOKENS = 4, 96
DRAFTED_SHARE = 5
"""Acceptance is counted on one prompt of so many: every drafter answers each."""
PARTS = {"target": "target", "draft": "draft", "head": "EAGLE-3 head"}
"""Folder → what the card calls the model in it."""


def write_card(folder: Path, domains: Mapping[str, Domain], prompts: int) -> str:
    """Write ``folder/README.md`` from what the files in the folder answer and draft; returns its tables.

    Args:
        prompts: held-out ones, of each domain and of each kind of words.
    """
    found = [part for part in PARTS if part == "target" or (folder / part).is_dir()]
    pair = load_pair(" + ".join(str((folder / part).resolve()) for part in found), "cpu", "float32")
    assert pair.tokenizer is not None
    sides = check_held_out(pair.target, pair.tokenizer, domains, prompts)
    drafted = max(1, prompts // DRAFTED_SHARE)
    rows = [f"| drafter | domain | {' | '.join(f'token {j + 1}' for j in range(GAMMA))} | τ |"]
    rows += ["|---|---|" + "---|" * (GAMMA + 1), *_acceptance(pair, pair.tokenizer, sides["unseen"], drafted)]
    tables = f"{table(sides)}\n\n" + "\n".join(rows)
    parts = [(PARTS[part], _shape(getattr(pair, part)), _note(folder / part)) for part in found]
    samples = {name: f"{c.tasks[0].prompt}\n⟶ {c.answers[0].text}" for name, c in sides["unseen"].items()}
    template = Template(Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8"), trim_blocks=True)
    figures = {"prompts": prompts, "drafted": drafted, "gamma": GAMMA, "tables": tables}
    card = template.render(parts=parts, samples=samples, tokenizer=pair.tokenizer, **figures)
    write_whole(folder / "README.md", card.rstrip() + "\n")
    return f"right answers, and tokens that are kept:\n{tables}"


def _note(folder: Path) -> str:
    """How a model was trained, which its stage wrote into its configuration."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config.get("training_note", "not known.")


def _shape(model: PreTrainedModel | Eagle3Head) -> str:
    count = f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters"
    if isinstance(model, Eagle3Head):
        layers = ", ".join(map(str, model.aux_layers))
        return f"{count}, one layer that reads what enters the target's layers {layers}"
    config = model.config
    layers = f"{config.num_hidden_layers} layer{'s' if config.num_hidden_layers > 1 else ''}"
    return f"{count}, {layers} × {config.hidden_size} wide, {config.num_attention_heads} heads"


def _acceptance(
    pair: ModelPair, tokenizer: PreTrainedTokenizerBase, checked: Mapping[str, Checked], count: int
) -> Iterator[str]:
    """Of each drafter and domain, the share of rounds that keep so many drafted tokens or more."""
    for spec in offered_with(pair.parts):
        if spec.copies:
            continue
        settings = Settings(drafter=spec.name, gamma=GAMMA, max_new_tokens=TOKENS)
        for name, domain in checked.items():
            traces = [run(pair, prompt_ids(tokenizer, task), settings) for task in domain.tasks[:count]]
            sums = totals([r for trace in traces for r in counts_of(trace.rounds)], GAMMA)
            shares = " | ".join(f"{share:.0%}" for share in sums.per_position)
            yield f"| {spec.label} | {name} | {shares} | {sums.mean_acceptance_length or 1.0:.2f} |"
