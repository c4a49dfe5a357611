"""Answers of a model to tasks: generated in batches, graded, and counted in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdemo.training.tasks.mixture import ASKED, Domain, held_out_tasks
from specdemo.training.tasks.task import Answer, Grade, Task
from specdemo.training.tasks.tokenizer import BOS_ID, END_ID, prompt_text


@dataclass(frozen=True, slots=True)
class Checked:
    """One domain's tasks with answers and grades."""

    tasks: Sequence[Task]
    answers: Sequence[Answer]
    grades: Sequence[Grade]

    def shown(self, count: int) -> str:
        """The first answers with their prompts; those that are wrong also with the right one."""
        parts = []
        for task, answer, grade in list(zip(self.tasks, self.answers, self.grades, strict=True))[:count]:
            right = all(map(all, grade.values()))
            parts.append(f"--- {task.kind}: {'right' if right else 'WRONG'}\n{task.prompt}\n⟶\n{answer.text}")
            if not right:
                parts.append(f"… instead of:\n{task.answer}")
        return "\n".join(parts)


def prompt_ids(tokenizer: PreTrainedTokenizerBase, task: Task) -> list[int]:
    """A task's prompt in the chat template."""
    return tokenizer.backend_tokenizer.encode(prompt_text(task), add_special_tokens=False).ids


@torch.no_grad()
def generated(
    model: PreTrainedModel, prompts: Sequence[list[int]], longest: int, sampled: bool = False, at_once: int = 25
) -> list[list[int]]:
    """The ids of the answers, each up to its end token or of ``longest`` tokens; greedy, or at temperature 1.

    Args:
        at_once: prompts; those of like length are answered together.
    """
    # The usual cache is copied whole in every step.
    options: dict[str, Any] = {"max_new_tokens": longest, "do_sample": sampled, "cache_implementation": "static"}
    options |= {"eos_token_id": END_ID, "pad_token_id": BOS_ID}
    if sampled:
        options |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    found: dict[int, list[int]] = {}
    for start in range(0, len(order), at_once):
        some = order[start : start + at_once]
        rows = [torch.tensor(prompts[i], device=model.device) for i in some]
        ids = pad_sequence(rows, batch_first=True, padding_value=BOS_ID, padding_side="left")
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side="left")
        out = model.generate(ids, attention_mask=mask, **options)  # type: ignore[operator]  # transformers' own typing
        for i, row in zip(some, out[:, ids.size(1) :].tolist(), strict=True):
            found[i] = row[: row.index(END_ID) + 1] if END_ID in row else row
    return [found[i] for i in range(len(prompts))]


def check(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    domains: Mapping[str, Domain],
    tasks: Mapping[str, Sequence[Task]],
) -> dict[str, Checked]:
    """Greedy answers and their grades to tasks, by domain."""
    checked = {}
    for name, some in tasks.items():
        answers = []
        for ids in generated(model, [prompt_ids(tokenizer, task) for task in some], domains[name].longest):
            ended = ids[-1] == END_ID
            answers.append(Answer(str(tokenizer.decode(ids[:-1] if ended else ids)), ended))
        grades = [domains[name].grade(task, answer) for task, answer in zip(some, answers, strict=True)]
        checked[name] = Checked(some, answers, grades)
    return checked


def check_held_out(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, domains: Mapping[str, Domain], prompts: int
) -> dict[str, dict[str, Checked]]:
    """Graded answers to so many held-out prompts of each domain, of unseen and of known words."""
    sides: dict[str, dict[str, Checked]] = {}
    for side in ("unseen", "known"):
        tasks = {name: held_out_tasks(name, domains[name], prompts, side) for name in (*ASKED, "outside")}
        sides[side] = check(model, tokenizer, domains, tasks)
    return sides


def table(sides: Mapping[str, Mapping[str, Checked]]) -> str:
    """A Markdown table of domains: what is counted, and right of how many, for each kind of words."""
    rows = [f"| domain | counted | {' | '.join(f'{side} words' for side in sides)} |"]
    rows.append("|---|---|" + "---|" * len(sides))
    for name, domain in next(iter(sides.values())).items():
        for figure in domain.grades[0]:
            cells = []
            for checked in sides.values():
                counted = [right for grade in checked[name].grades for right in grade[figure]]
                cells.append(f"{sum(counted)} of {len(counted)} ({sum(counted) / max(1, len(counted)):.0%})")
            rows.append(f"| {name} | {figure} | {' | '.join(cells)} |")
    return "\n".join(rows)
