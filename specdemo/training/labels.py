"""The target as a teacher: it writes texts of its own, reads texts of the corpus, and tells what comes next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM, StaticCache

from specdemo.training.corpus import Windows
from specdemo.training.lessons import Lessons, answers, joined, load, save
from specdemo.training.pretrain import Run
from specdemo.training.recipe import Recipe

SHORTEST_OPENING, LONGEST_OPENING = 8, 48  # tokens of a document given to the target to continue
_READ_AT_ONCE = 16  # rows


def openings(windows: Windows, separator: int, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """The first ``length`` tokens of random documents, separator included: int64 (rows, length)."""
    picks = torch.multinomial(windows.weights, rows, replacement=True, generator=generator).tolist()
    starts = [np.flatnonzero(s.train[:-length] == separator) for s in windows.streams]
    out = np.empty((rows, length), dtype=np.int64)
    for row, pick in enumerate(picks):
        choice = int(torch.randint(len(starts[pick]), (1,), generator=generator))
        start = starts[pick][choice]
        out[row] = windows.streams[pick].train[start : start + length]
    return torch.from_numpy(out)


@torch.no_grad()
def written(
    teacher: LlamaForCausalLM, prompts: torch.Tensor, length: int, separator: int, generator: torch.Generator
) -> Lessons:
    """Continue ``prompts`` (rows, n) to ``length`` tokens, every step's distribution kept.

    Half of the rows are greedy, a quarter at temperature 0.7, a quarter at 1. A row that ends its document
    begins another one, sampled, since a greedy one would be the same in every row.
    """
    rows = len(prompts)
    cache = StaticCache(config=teacher.config, max_cache_len=length)
    temperature = torch.tensor([0.0, 0.0, 0.7, 1.0], device=prompts.device).repeat(rows // 4 + 1)[:rows]
    ids, feed, said = prompts, prompts, []
    while True:
        logits = teacher(feed, past_key_values=cache).logits.float()
        said.append(answers(logits))
        if ids.size(1) == length:
            break
        last = logits[:, -1]
        warm = (last / temperature.clamp(min=0.01).unsqueeze(1)).softmax(-1)
        drawn = torch.multinomial(warm, 1, generator=generator).squeeze(1)
        token = torch.where(temperature == 0, last.argmax(-1), drawn)
        temperature = torch.where(token == separator, torch.ones_like(temperature), temperature)
        feed = token.unsqueeze(1)
        ids = torch.cat([ids, feed], 1)
    likeliest, probabilities = (torch.cat(part, 1) for part in zip(*said, strict=True))
    return Lessons(ids.int().cpu(), likeliest, probabilities)


@torch.no_grad()
def read(teacher: LlamaForCausalLM, ids: torch.Tensor) -> Lessons:
    """The teacher's distributions over given texts, int64 (rows, length)."""
    said = [answers(teacher(some, use_cache=False).logits) for some in ids.split(_READ_AT_ONCE)]
    likeliest, probabilities = (torch.cat(part) for part in zip(*said, strict=True))
    return Lessons(ids.int().cpu(), likeliest, probabilities)


def _kept(name: str, count: int, make: Callable[[int], Lessons], run: Run) -> Lessons:
    """``count`` parts of lessons, one file each in ``folder/lessons``, made where an earlier start did not."""
    folder: Path = run.folder / "lessons"
    folder.mkdir(exist_ok=True)
    parts = []
    for index in range(count):
        path = folder / f"{name}-{index:04d}.npz"
        if not path.exists():
            save(make(index), path)
            run.log(f"lessons, {name}: {index + 1}/{count}")
        parts.append(load(path))
    return joined(parts)


def own_lessons(teacher: LlamaForCausalLM, windows: Windows, separator: int, recipe: Recipe, run: Run) -> Lessons:
    """Text the target writes after openings of the corpus: what the draft will have to guess when it is used."""

    def make(index: int) -> Lessons:
        seed = recipe.seed * 1_000_003 + index
        chooser = torch.Generator().manual_seed(seed)
        longest = min(LONGEST_OPENING, recipe.lesson_length // 2)
        length = int(torch.randint(SHORTEST_OPENING, longest + 1, (1,), generator=chooser))
        prompts = openings(windows, separator, recipe.lesson_rows, length, chooser).to(run.device)
        drawer = torch.Generator(device=run.device).manual_seed(seed)
        return written(teacher, prompts, recipe.lesson_length, separator, drawer)

    return _kept("own", _parts(recipe.own_tokens, recipe), make, run)


def corpus_lessons(teacher: LlamaForCausalLM, windows: Windows, recipe: Recipe, run: Run) -> Lessons:
    """Corpus text the target reads."""

    def make(index: int) -> Lessons:
        ids = windows.batch(900_000_000 + index, recipe.lesson_rows, recipe.lesson_length)
        return read(teacher, ids.to(run.device))

    return _kept("corpus", _parts(recipe.corpus_tokens, recipe), make, run)


def _parts(tokens: int, recipe: Recipe) -> int:
    return max(1, tokens // (recipe.lesson_rows * recipe.lesson_length))
