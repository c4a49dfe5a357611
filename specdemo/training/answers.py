"""Answers of a model to tasks: generated, graded, counted in a table; and the model card of a pair."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jinja2 import Template
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdemo.drafters import offered_with
from specdemo.files import write_whole
from specdemo.metrics import counts_of, totals
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.runs.single import run
from specdemo.settings import Settings
from specdemo.training.tasks.mixture import ASKED, Domain, held_out_tasks
from specdemo.training.tasks.task import Answer, Grade, Side, Task
from specdemo.training.tasks.tokenizer import BOS_ID, END_ID, prompt_text

GAMMA, TOKENS = 4, 96
SHORT = 64  # tokens of an answer; longer ones go on by themselves
DRAFTED_SHARE = 5
"""Acceptance is counted on one prompt of so many: every drafter answers each."""
PARTS = {"target": "target", "draft": "draft", "head": "EAGLE-3 head"}
"""Folder → what the card calls the model in it."""


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
    return tokenizer.backend_tokenizer.encode(prompt_text(task), add_special_tokens=False).ids


@torch.no_grad()
def generated(
    model: PreTrainedModel, prompts: Sequence[list[int]], longest: int, sampled: bool = False, at_once: int = 25
) -> list[list[int]]:
    """The ids of the answers, each up to its end token or of ``longest`` tokens; greedy, or at temperature 1.

    ``at_once``: prompts that are answered together, those of like length. Long answers go on by themselves, so
    that few steps are of rows that have ended.
    """
    now = min(longest, SHORT)
    options: dict[str, Any] = {"max_new_tokens": now, "do_sample": sampled, "eos_token_id": END_ID}
    # The usual cache is copied whole in every step; code would be compiled again for every shape of a batch.
    options |= {"cache_implementation": "static", "disable_compile": True, "pad_token_id": BOS_ID}
    options |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if sampled else {}
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
    if now < longest and (long := [i for i, ids in found.items() if END_ID not in ids]):
        more = generated(model, [prompts[i] + found[i] for i in long], longest - now, sampled, at_once)
        found |= {i: found[i] + ids for i, ids in zip(long, more, strict=True)}
    return [found[i] for i in range(len(prompts))]


def check_held_out(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, domains: Mapping[str, Domain], prompts: int
) -> dict[str, dict[str, Checked]]:
    """Graded greedy answers to so many held-out prompts of each domain, of unseen and of known words."""
    both: tuple[Side, Side] = ("unseen", "known")
    sides: dict[str, dict[str, Checked]] = {side: {} for side in both}
    for side, name in product(both, (*ASKED, "outside")):
        domain, answers = domains[name], []
        tasks = held_out_tasks(name, domain, prompts, side)
        for ids in generated(model, [prompt_ids(tokenizer, task) for task in tasks], domain.longest):
            ended = ids[-1] == END_ID
            answers.append(Answer(str(tokenizer.decode(ids[:-1] if ended else ids)), ended))
        grades = [domain.grade(task, answer) for task, answer in zip(tasks, answers, strict=True)]
        sides[side][name] = Checked(tasks, answers, grades)
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


def write_card(folder: Path, domains: Mapping[str, Domain], prompts: int) -> str:
    """Write ``folder/README.md`` from what the files in the folder answer and draft; returns its tables."""
    found = [part for part in PARTS if part == "target" or (folder / part).is_dir()]
    pair = load_pair(" + ".join(str((folder / part).resolve()) for part in found), "cpu", "float32")
    assert pair.tokenizer is not None
    sides = check_held_out(pair.target, pair.tokenizer, domains, prompts)
    drafted = max(1, prompts // DRAFTED_SHARE)
    rows = [f"| drafter | domain | {' | '.join(f'token {j + 1}' for j in range(GAMMA))} | τ |"]
    rows += ["|---|---|" + "---|" * (GAMMA + 1), *_acceptance(pair, sides["unseen"], drafted)]
    tables = f"{table(sides)}\n\n" + "\n".join(rows)
    configs = (json.loads((folder / part / "config.json").read_text(encoding="utf-8")) for part in found)
    notes = [config.get("training_note", "not known.") for config in configs]
    parts = [(PARTS[p], _shape(getattr(pair, p)), note) for p, note in zip(found, notes, strict=True)]
    samples = {name: f"{c.tasks[0].prompt}\n⟶ {c.answers[0].text}" for name, c in sides["unseen"].items()}
    template = Template(Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8"), trim_blocks=True)
    figures = {"prompts": prompts, "drafted": drafted, "gamma": GAMMA, "tables": tables}
    card = template.render(parts=parts, samples=samples, tokenizer=pair.tokenizer, **figures)
    write_whole(folder / "README.md", card.rstrip() + "\n")
    return f"right answers, and tokens that are kept:\n{tables}"


def _shape(model: PreTrainedModel | Eagle3Head) -> str:
    count = f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters"
    if isinstance(model, Eagle3Head):
        layers = ", ".join(map(str, model.aux_layers))
        return f"{count}, one layer that reads what enters the target's layers {layers}"
    config = model.config
    layers = f"{config.num_hidden_layers} layer{'s' if config.num_hidden_layers > 1 else ''}"
    return f"{count}, {layers} × {config.hidden_size} wide, {config.num_attention_heads} heads"


def _acceptance(pair: ModelPair, checked: Mapping[str, Checked], count: int) -> Iterator[str]:
    """Of each drafter and domain, the share of rounds that keep so many drafted tokens or more."""
    tokenizer: Any = pair.tokenizer
    for spec in (spec for spec in offered_with(pair.parts) if not spec.copies):
        settings = Settings(drafter=spec.name, gamma=GAMMA, max_new_tokens=TOKENS)
        for name, domain in checked.items():
            traces = [run(pair, prompt_ids(tokenizer, task), settings) for task in domain.tasks[:count]]
            sums = totals([r for trace in traces for r in counts_of(trace.rounds)], GAMMA)
            shares = " | ".join(f"{share:.0%}" for share in sums.per_position)
            yield f"| {spec.label} | {name} | {shares} | {sums.mean_acceptance_length or 1.0:.2f} |"
