"""Greedy answers of a model to tasks, and the table of how many are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.training.tasks.task import Answer, Domain, Grade, Task
from specdemo.training.tasks.tokenizer import BOS_ID, END_ID, prompt_text

AT_ONCE = 25  # prompts


@dataclass(frozen=True, slots=True)
class Checked:
    """One domain's tasks with answers and grades."""

    tasks: Sequence[Task]
    answers: Sequence[Answer]
    grades: Sequence[Grade]

    def counts(self) -> dict[str, tuple[int, int]]:
        """(right, of how many) of every figure, over all answers."""
        return {
            name: (sum(g[name][0] for g in self.grades), sum(g[name][1] for g in self.grades))
            for name in self.grades[0]
        }


@torch.no_grad()
def answers(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tasks: Sequence[Task], longest: int
) -> list[Answer]:
    """Greedy answers of at most ``longest`` tokens; prompts of like length are answered together."""
    prompts = [tokenizer(prompt_text(t), add_special_tokens=False)["input_ids"] for t in tasks]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    found: dict[int, Answer] = {}
    for start in range(0, len(order), AT_ONCE):
        some = order[start : start + AT_ONCE]
        width = max(len(prompts[i]) for i in some)
        rows = [[BOS_ID] * (width - len(prompts[i])) + prompts[i] for i in some]
        mask = [[0] * (width - len(prompts[i])) + [1] * len(prompts[i]) for i in some]
        out = model.generate(
            torch.tensor(rows, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=longest,
            do_sample=False,
            eos_token_id=END_ID,
            pad_token_id=BOS_ID,
        )
        for i, row in zip(some, out[:, width:].tolist(), strict=True):
            ended = END_ID in row
            ids = row[: row.index(END_ID)] if ended else row
            found[i] = Answer(tokenizer.decode(ids), ended, tuple(ids))
    return [found[i] for i in range(len(tasks))]


def check(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    domains: Mapping[str, Domain],
    asked: Mapping[str, Sequence[Task]],
) -> dict[str, Checked]:
    """Answers and grades of all the tasks that are asked, by domain."""
    checked = {}
    for name, tasks in asked.items():
        given = answers(model, tokenizer, tasks, domains[name].longest)
        checked[name] = Checked(tasks, given, domains[name].grades(tasks, given))
    return checked


def table(checked: Mapping[str, Checked]) -> str:
    """A Markdown table: domain, what is counted, right, of how many, share."""
    lines = ["| domain | counted | right | of | share |", "|---|---|---|---|---|"]
    for name, domain in checked.items():
        for figure, (right, of) in domain.counts().items():
            lines.append(f"| {name} | {figure} | {right} | {of} | {right / max(1, of):.1%} |")
    return "\n".join(lines)
