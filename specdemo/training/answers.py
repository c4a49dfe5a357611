"""Answers of a model to tasks: generated in batches, graded, and counted in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.training.tasks.task import Answer, Domain, Grade, Task
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
            right = all(a == b for a, b in grade.values())
            parts.append(f"--- {task.kind}: {'right' if right else 'WRONG'}\n{task.prompt}\n⟶\n{answer.text}")
            if not right:
                parts.append(f"… instead of:\n{task.answer}")
        return "\n".join(parts)


def prompt_ids(tokenizer: PreTrainedTokenizerFast, task: Task) -> list[int]:
    """A task's prompt in the chat template."""
    return tokenizer.backend_tokenizer.encode(prompt_text(task), add_special_tokens=False).ids


@torch.no_grad()
def generated(
    model: LlamaForCausalLM, prompts: Sequence[list[int]], longest: int, sampled: bool = False, at_once: int = 25
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
        width = max(len(prompts[i]) for i in some)
        gaps = [width - len(prompts[i]) for i in some]
        rows = [[BOS_ID] * gap + prompts[i] for gap, i in zip(gaps, some, strict=True)]
        mask = [[0] * gap + [1] * (width - gap) for gap in gaps]
        ids, seen = (torch.tensor(values, device=model.device) for values in (rows, mask))
        out = model.generate(ids, attention_mask=seen, **options)  # type: ignore[misc]  # transformers' own typing
        for i, row in zip(some, out[:, width:].tolist(), strict=True):
            found[i] = row[: row.index(END_ID) + 1] if END_ID in row else row
    return [found[i] for i in range(len(prompts))]


def check(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
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
        checked[name] = Checked(some, answers, domains[name].grades(some, answers))
    return checked


def table(sides: Mapping[str, Mapping[str, Checked]]) -> str:
    """A Markdown table of domains: what is counted, and right of how many, for each kind of words."""
    names = {name: domain for checked in sides.values() for name, domain in checked.items()}
    rows = [
        f"| domain | counted | {' | '.join(f'{side} words' for side in sides)} |",
        "|---|---|" + "---|" * len(sides),
    ]
    for name, domain in names.items():
        for figure in domain.grades[0]:
            cells = []
            for checked in sides.values():
                right, of = (sum(grade[figure][i] for grade in checked[name].grades) for i in (0, 1))
                cells.append(f"{right} of {of} ({right / max(1, of):.0%})")
            rows.append(f"| {name} | {figure} | {' | '.join(cells)} |")
    return "\n".join(rows)
