"""A pair's model card: right answers and what its drafters keep, on held-out prompts that nobody selected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.drafters import offered_with
from specdemo.files import write_whole
from specdemo.metrics import counts_of, totals
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.runs.single import run
from specdemo.settings import Settings
from specdemo.training.answers import Checked, check, prompt_ids, table
from specdemo.training.models import read_model
from specdemo.training.tasks.mixture import held_out_tasks
from specdemo.training.tasks.task import Domain

GAMMA, TOKENS = 4, 96
DRAFTED_SHARE = 5
"""Acceptance is counted on one prompt of so many: every drafter answers each."""

DATA = """\
| data | what | licence |
|---|---|---|
| Schema-Guided Dialogue | task dialogues (restaurants, flights, music, banks): chat | CC BY-SA 4.0 |
| TinyStories | very simple stories | CDLA-Sharing-1.0 |
| Pratham Books, African Storybook | children's picture-book stories | CC BY |
| generators of this project (`specdemo/training/tasks`) | data, arithmetic, code, edit | Apache-2.0 |
"""


def write_card(
    folder: Path,
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    domains: Mapping[str, Domain],
    prompts: int,
) -> str:
    """Write ``folder/README.md`` from what the files in the folder answer and draft; returns its tables.

    Args:
        prompts: held-out ones, of each domain.
    """
    draft = read_model(folder / "draft") if (folder / "draft").is_dir() else None
    head = Eagle3Head.load(folder / "head", target) if (folder / "head").is_dir() else None
    pair = ModelPair(target, draft, tokenizer, name="builtin", head=head)
    asked = {name: held_out_tasks(name, domain, prompts) for name, domain in domains.items()}
    checked = check(target, tokenizer, domains, asked)
    count = max(1, prompts // DRAFTED_SHARE)
    rows = [f"| drafter | domain | {' | '.join(f'token {j + 1}' for j in range(GAMMA))} | τ |"]
    rows += ["|---|---|" + "---|" * (GAMMA + 1), *_kept(pair, tokenizer, checked, count)]
    tables = f"{table(checked)}\n\n" + "\n".join(rows)
    parts = [("target", "target", target), ("draft", "draft", draft), ("head", "EAGLE-3 head", head)]
    there = [(part, name, model) for part, name, model in parts if model is not None]
    shapes = "\n".join(f"- **{name}**: {_shape(model)}" for _, name, model in there)
    notes = "\n".join(f"- **{name}**: {_note(folder / part)}" for part, name, _ in there)
    samples = "\n\n".join(f"### {name}\n\n{_sample(domain)}" for name, domain in checked.items())
    write_whole(folder / "README.md", _card(shapes, notes, tables, samples, prompts, tokenizer))
    return f"right answers, and tokens that are kept:\n{tables}"


def _note(folder: Path) -> str:
    """How a model was trained, which its stage wrote into its configuration."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config.get("training_note", "not told.")


def _shape(model: LlamaForCausalLM | Eagle3Head) -> str:
    count = f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters"
    if isinstance(model, Eagle3Head):
        return f"{count}, one layer that reads what enters the target's layers {', '.join(map(str, model.taps))}"
    config = model.config
    layers = f"{config.num_hidden_layers} layer{'s' if config.num_hidden_layers > 1 else ''}"
    return f"{count}, {layers} × {config.hidden_size} wide, {config.num_attention_heads} heads"


def _kept(
    pair: ModelPair, tokenizer: PreTrainedTokenizerFast, checked: Mapping[str, Checked], count: int
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


def _sample(domain: Checked) -> str:
    """The first held-out prompt and its answer, as Markdown quotes code."""
    text = f"{domain.tasks[0].prompt}\n⟶ {domain.answers[0].text}"
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _card(
    shapes: str, notes: str, tables: str, samples: str, prompts: int, tokenizer: PreTrainedTokenizerFast
) -> str:
    return f"""---
license: cc-by-sa-4.0
language: en
pipeline_tag: text-generation
tags: [speculative-decoding, llama, eagle3]
---
# The builtin pair

Small Llama models made for showing speculative decoding on any CPU without a download. They answer tasks of six
domains: chat about a service, simple stories, tables and JSON, sums worked step by step, short Python functions,
and a text given again with one change. They know nothing else.

{shapes}
- **tokenizer**: byte-level BPE of {len(tokenizer)} tokens, digits one by one, shared
- **context**: {tokenizer.model_max_length} tokens
- **format**: bfloat16 safetensors; run in float32 on a CPU

The target is deep and narrow because a CPU then spends its time on the layers' fixed costs: verifying several
tokens costs little more than one, and a shallow drafter is cheap.

## Training

{notes}

`python -m specdemo.training` makes such a pair; every number is in `specdemo/training/recipe.py`.

{DATA}
## Held-out prompts

Right answers of the target to {prompts} held-out prompts a domain, greedy; below, the share of rounds that keep
so many drafted tokens or more, and the tokens a round (τ), greedy, γ = {GAMMA}, on the first
{max(1, prompts // DRAFTED_SHARE)} of them. What counts as right, and what is held out, is in
`specdemo/training/README.md`.

{tables}

## Samples

The first held-out prompt of each domain, with the target's greedy answer as it came.

{samples}
"""
