"""Writes the trained pair and its model card into the assets folder."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.files import write_whole
from specdemo.training.evaluate import CARD_GAMMA, DomainReport
from specdemo.training.recipe import Recipe

DATA_TABLE = """\
| data | what | licence |
|---|---|---|
| Schema-Guided Dialogue | task dialogues (restaurants, flights, music, banks) | CC BY-SA 4.0 |
| Topical-Chat | open-domain chit-chat | CDLA-Sharing-1.0 |
| GSM8K, train split | grade-school word problems with worked answers | MIT |
| Python standard library 3.11 | modules | PSF-2.0 |
| TinyStories | very simple stories | CDLA-Sharing-1.0 |
| Pratham Books / African Storybook | children's picture-book stories | CC BY |
| FairytaleQA | classic fairy tales | public domain tales, Apache-2.0 repository |
| 19th-century children's books | books | public domain |
"""


def export_model(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, recipe: Recipe
) -> None:
    """Save in bfloat16 safetensors, in shards small enough for any git host, with the tokenizer beside them."""
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    model.to("cpu", torch.bfloat16).save_pretrained(folder, max_shard_size=recipe.shard_size)
    tokenizer.save_pretrained(folder)


def note_target_training(model: LlamaForCausalLM, recipe: Recipe, hardware: str) -> None:
    """Write into the configuration how the target was trained; a later draft's card repeats it."""
    phases = ", ".join(f"{p.tokens / 1e6:g}M tokens at {p.layers} layers" for p in recipe.target_phases)
    model.config.training_note = f"{phases}, each depth started from a copy of the one before, on {hardware}."


def note_draft_training(model: LlamaForCausalLM, recipe: Recipe, hardware: str) -> None:
    """The same for a draft."""
    pretraining = sum(p.tokens for p in recipe.draft_phases)
    model.config.training_note = (
        f"{pretraining / 1e6:g}M tokens of the corpus, then {recipe.distill_tokens / 1e6:g}M tokens of "
        f"distillation from the target (KL divergence), {recipe.distill_own_share:.0%} of them on "
        f"{recipe.own_tokens / 1e6:g}M tokens that the target wrote itself, greedily and sampled, on {hardware}."
    )


def write_card(
    path: Path,
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    losses: dict[str, dict[str, float]],
    reports: list[DomainReport],
    recipe: Recipe,
) -> None:
    """The model card, every figure of it measured.

    Args:
        losses: held-out loss in nats a token, by model ("target", "draft") and domain.
        reports: greedy runs over the example prompts, by domain.
    """
    head = _head(target, draft, recipe)
    sections = [_loss_section(losses), _acceptance_section(reports), _sample_section(reports)]
    write_whole(path, "\n".join([head, *sections]))


def _size(model: LlamaForCausalLM) -> str:
    config = model.config
    layers = f"{config.num_hidden_layers} layer{'s' if config.num_hidden_layers > 1 else ''}"
    return (
        f"{model.num_parameters() / 1e6:.1f}M parameters, {layers} × {config.hidden_size} wide, "
        f"{config.num_attention_heads} heads"
    )


def _note(model: LlamaForCausalLM) -> str:
    return getattr(model.config, "training_note", "not stated by its configuration.")


def _head(target: LlamaForCausalLM, draft: LlamaForCausalLM, recipe: Recipe) -> str:
    return f"""---
license: cc-by-sa-4.0
language: en
pipeline_tag: text-generation
tags: [speculative-decoding, llama]
---
# The builtin pair

Two small Llama models made for showing speculative decoding on any CPU without a download. They write
plausible small talk, stories, Python and sums; they know nothing, and their answers are often wrong.

- **target**: {_size(target)}
- **draft**: {_size(draft)}
- **tokenizer**: byte-level BPE of {recipe.vocab_size} tokens, digits one by one, shared
- **context**: {recipe.context} tokens
- **format**: bfloat16 safetensors; run in float32 on a CPU

The target is deep and narrow because a CPU then spends its time on the layers' fixed costs: verifying several
tokens costs little more than one, and a shallow draft is cheap.

## Training
- **target**: {_note(target)}
- **draft**: {_note(draft)}

Every number is in `specdemo/training/recipe.py`; `python -m specdemo.training` runs it again.

{DATA_TABLE}"""


def _loss_section(losses: dict[str, dict[str, float]]) -> str:
    rows = "\n".join(
        f"| {name} | {loss:.2f} | {losses['draft'][name]:.2f} |" for name, loss in losses["target"].items()
    )
    return f"""## Held-out loss
Nats a token, on every 50th document.

| domain | target | draft |
|---|---|---|
{rows}
"""


def _acceptance_section(reports: list[DomainReport]) -> str:
    rows = "\n".join(
        f"| {r.domain} | {r.acceptance_rate:.2f} | {r.mean_acceptance_length:.2f} | {r.distinct_4grams:.2f} |"
        for r in reports
    )
    return f"""## Acceptance
Greedy, γ = {CARD_GAMMA}, 128 tokens, over the prompts of `assets/prompts.toml`. The last column is
the share of distinct 4-grams in the output: a text that loops is easy to guess and would flatter
the draft.

| domain | acceptance rate | mean acceptance length τ | distinct 4-grams |
|---|---|---|---|
{rows}
"""


def _sample_section(reports: list[DomainReport]) -> str:
    parts = ["## Samples", "Greedy, as they came."]
    for report in reports:
        for prompt, text in report.samples[:2]:
            quoted = "\n".join(f"    {line}" for line in f"{prompt.strip()}\n⟶{text}".split("\n"))
            parts += ["", f"### {report.domain}", "", quoted]
    return "\n".join([*parts, ""])
