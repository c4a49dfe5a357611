"""A head's model card: its acceptance by position beside the other drafters', on prompts nobody selected."""

from __future__ import annotations

from pathlib import Path

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.drafters import DRAFTERS
from specdemo.files import write_whole
from specdemo.metrics import counts_of, totals
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.runs.single import run
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.training.head_recipe import HeadRecipe
from specdemo.training.head_texts import prompt_ids
from specdemo.training.tasks.domains import held_out_tasks
from specdemo.training.tasks.task import Domain

GAMMA = 4


def write_head_card(
    path: Path,
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM | None,
    head: Eagle3Head,
    tokenizer: PreTrainedTokenizerFast,
    domains: dict[str, Domain],
    recipe: HeadRecipe,
) -> str:
    """Write the card and return its table; the prompts are the first held-out ones of each domain."""
    pair = ModelPair(target, draft, tokenizer, name="trained", head=head)
    asked = {name: held_out_tasks(domain, recipe.card_prompts) for name, domain in domains.items()}
    prompts = {name: [prompt_ids(tokenizer, task) for task in tasks] for name, tasks in asked.items()}
    lines = ["| drafter | domain | " + " | ".join(f"token {j + 1}" for j in range(GAMMA)) + " | kept a round |"]
    lines.append("|---|---|" + "---|" * (GAMMA + 1))
    samples: list[str] = []
    for spec in DRAFTERS.values():
        if spec.copies or (spec.needs is not None and spec.needs not in pair.parts):
            continue
        settings = Settings(drafter=spec.name, gamma=GAMMA, max_new_tokens=recipe.card_tokens)
        for name, texts in prompts.items():
            traces = [run(pair, ids, settings) for ids in texts]
            lines.append(_row(spec.label, name, traces))
            if spec.needs == "head":
                samples.append(f"**{name}**: {asked[name][0].prompt}\n\n> {_quoted(traces[0].text)}")
    table = "\n".join(lines)
    write_whole(path, _card(head, table, samples, recipe))
    return table


def _row(label: str, domain: str, traces: list[Trace]) -> str:
    sums = totals([r for trace in traces for r in counts_of(trace.rounds)], GAMMA)
    shares = " | ".join(f"{share:.0%}" for share in sums.per_position)
    return f"| {label} | {domain} | {shares} | {sums.mean_acceptance_length or 1.0:.2f} |"


def _quoted(text: str) -> str:
    return text.strip().replace("\n", "\n> ") or "(nothing)"


def _card(head: Eagle3Head, table: str, samples: list[str], recipe: HeadRecipe) -> str:
    config, count = head.config, sum(p.numel() for p in head.parameters())
    shown = "\n\n".join(samples)
    return f"""\
---
license: apache-2.0
tags: [eagle3, speculative-decoding]
---
# An EAGLE-3 head

One layer of {count / 1e6:.2f}M parameters that drafts for a target of {config.target_width} × \
{config.vocabulary:,} tokens from what enters its layers {", ".join(map(str, config.taps))}. SafeAI's format.

Trained by `python -m specdemo.training head` for {recipe.minutes:g} minutes, {recipe.text_share:.0%} of them for
text that the target wrote, with {recipe.unrolled} unrolled steps (arXiv 2503.01840).

## Acceptance by position

Share of rounds that keep so many drafted tokens or more, greedy, γ = {GAMMA}, on the first {recipe.card_prompts}
held-out prompts of each domain.

{table}

## What the target answered to the first held-out prompt of each domain

{shown}
"""
