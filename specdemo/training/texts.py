"""What drafters learn from: answers that their target writes, half of them greedily, half at temperature 1."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from specdemo.files import written_whole
from specdemo.training.loop import Run
from specdemo.training.recipe import Recipe
from specdemo.training.tasks.plan import Plan
from specdemo.training.tasks.task import Domain, Draw, Task


@dataclass(frozen=True, slots=True)
class Texts:
    """Prompts with the target's answers.

    Attributes:
        ids: of each text, prompt and answer.
        begins: where each answer begins.
    """

    ids: list[np.ndarray]
    begins: list[int]

    def batch(self, picks: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The picked texts as ids (rows, n), filled up with 0, and which of them are the answer's, (rows, n)."""
        rows = [self.ids[i] for i in picks]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        answers = torch.zeros(ids.shape, dtype=torch.bool)
        for row, (text, pick) in enumerate(zip(rows, picks, strict=True)):
            ids[row, : len(text)] = torch.from_numpy(text.astype(np.int64))
            answers[row, self.begins[pick] : len(text)] = True
        return ids, answers


def prompt_ids(tokenizer: PreTrainedTokenizerFast, task: Task) -> list[int]:
    """A task's prompt in the chat template, as it is used."""
    turns = [{"role": "user", "content": task.prompt}]
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def written(
    target: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    domains: dict[str, Domain],
    recipe: Recipe,
    run: Run,
    seconds: float,
) -> Texts:
    """Texts in parts, a file each in ``folder/texts``, until so many seconds were spent on them in all starts.

    Every part holds how long it took; there is at least one.
    """
    parts, spent = [], 0.0
    for index in count():
        path = run.folder / "texts" / f"{index:04d}.npz"
        if not path.exists():
            if parts and spent >= seconds:
                break
            began = time.monotonic()
            _save(_answered(target, _tasks(domains, index, recipe), tokenizer, recipe, index), path, began)
            run.log(f"texts: {(index + 1) * recipe.texts_at_once}")
        with np.load(path) as arrays:
            parts.append(_split(arrays))
            spent += float(arrays["seconds"])
    return Texts([ids for part in parts for ids in part.ids], [b for part in parts for b in part.begins])


def _tasks(domains: dict[str, Domain], index: int, recipe: Recipe) -> Iterator[Task]:
    """Training tasks of the domains by their shares in the target's training; held-out ones are never drawn."""
    shares = {name: share for name, share in Plan().shares.items() if name in domains}
    order = np.random.default_rng([recipe.seed, index])
    weights = np.array(list(shares.values())) / sum(shares.values())
    for number, name in enumerate(order.choice(list(shares), size=recipe.texts_at_once, p=weights)):
        yield domains[str(name)].task(Draw(f"head {recipe.seed} {index} {number}"))


@torch.no_grad()
def _answered(
    target: PreTrainedModel,
    tasks: Iterator[Task],
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    index: int,
) -> Texts:
    prompts = [prompt_ids(tokenizer, task)[-recipe.longest_prompt :] for task in tasks]
    ends = target.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    texts = Texts([], [])
    half = len(prompts) // 2
    with torch.random.fork_rng([target.device] if target.device.type == "cuda" else []):
        torch.manual_seed(recipe.seed * 1_000_003 + index)
        for some, sampled in ((prompts[:half], False), (prompts[half:], True)):
            width = max(map(len, some))
            rows = torch.tensor([[0] * (width - len(p)) + p for p in some], device=target.device)
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in some], device=target.device)
            whole = target.generate(
                rows,
                attention_mask=mask,
                max_new_tokens=recipe.answer_tokens,
                do_sample=sampled,
                **({"temperature": 1.0, "top_k": 0, "top_p": 1.0} if sampled else {}),
                pad_token_id=0,
                cache_implementation="static",  # the usual one is copied whole in every step
            )
            for prompt, row in zip(some, whole[:, width:].tolist(), strict=True):
                end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
                texts.ids.append(np.asarray([*prompt, *row[:end]], dtype=np.int32))
                texts.begins.append(len(prompt))
    return texts


def _save(texts: Texts, path: Path, began: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        np.savez(
            partial,
            ids=np.concatenate(texts.ids),
            lengths=[len(ids) for ids in texts.ids],
            begins=texts.begins,
            seconds=time.monotonic() - began,
        )


def _split(arrays: np.lib.npyio.NpzFile) -> Texts:
    return Texts(np.split(arrays["ids"], np.cumsum(arrays["lengths"])[:-1]), arrays["begins"].tolist())
