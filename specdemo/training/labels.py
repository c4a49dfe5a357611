"""What the draft learns from: texts, with the target's next-token distribution at every position.

The target labels each text once, and the draft reads the labels many times: for a target of ten times the draft's
size this saves most of the distillation's cost. Of each distribution only the likeliest tokens are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM, StaticCache

from specdemo.files import written_whole
from specdemo.training.corpus import Windows
from specdemo.training.loop import Run
from specdemo.training.recipe import Recipe

KEPT = 32  # tokens of each distribution; they held 90 % of the builtin target's mass
SHORTEST_OPENING, LONGEST_OPENING = 8, 48  # tokens of a document that the target continues
_READ_AT_ONCE = 16  # rows


@dataclass(frozen=True, slots=True)
class SoftLabels:
    """Texts with the target's distributions.

    Attributes:
        ids: int32 of shape (rows, length).
        likeliest: int32 of shape (rows, length, KEPT): best first, for the token *after* each position.
        probabilities: float16 of the same shape.
    """

    ids: torch.Tensor
    likeliest: torch.Tensor
    probabilities: torch.Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, picks: torch.Tensor) -> SoftLabels:
        """The chosen rows; ``picks`` is int64 of shape (n,)."""
        return SoftLabels(self.ids[picks], self.likeliest[picks], self.probabilities[picks])

    def to(self, device: torch.device) -> SoftLabels:
        """The same on a device, in the types the loss computes with."""
        return SoftLabels(
            self.ids.to(device).long(), self.likeliest.to(device).long(), self.probabilities.to(device).float()
        )


def joined(parts: list[SoftLabels]) -> SoftLabels:
    """All rows of several parts of one length."""
    fields = ((p.ids, p.likeliest, p.probabilities) for p in parts)
    return SoftLabels(*(torch.cat(tensors) for tensors in zip(*fields, strict=True)))


def likeliest_tokens(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The KEPT likeliest tokens of each distribution and their probabilities; logits of shape (…, vocabulary)."""
    best = logits.float().softmax(-1).topk(min(KEPT, logits.size(-1)), dim=-1)
    return best.indices.int().cpu(), best.values.half().cpu()


def save(labels: SoftLabels, path: Path) -> None:
    """Write one ``.npz`` file, ids as uint16."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        np.savez(
            partial,
            ids=labels.ids.numpy().astype(np.uint16),
            likeliest=labels.likeliest.numpy().astype(np.uint16),
            probabilities=labels.probabilities.numpy(),
        )


def load(path: Path) -> SoftLabels:
    """What :func:`save` wrote."""
    with np.load(path) as arrays:
        return SoftLabels(
            torch.from_numpy(arrays["ids"].astype(np.int32)),
            torch.from_numpy(arrays["likeliest"].astype(np.int32)),
            torch.from_numpy(arrays["probabilities"]),
        )


@torch.no_grad()
def generated(
    teacher: LlamaForCausalLM, prompts: torch.Tensor, length: int, separator: int, generator: torch.Generator
) -> SoftLabels:
    """The teacher's own continuation of ``prompts`` (rows, n) to ``length`` tokens, with its distributions.

    Half of the rows are greedy, a quarter at temperature 0.7, a quarter at 1. A row that ends its document
    begins another one, sampled, since a greedy one would be the same in every row.
    """
    rows = len(prompts)
    cache = StaticCache(config=teacher.config, max_cache_len=length)
    temperature = torch.tensor([0.0, 0.0, 0.7, 1.0], device=prompts.device).repeat(rows // 4 + 1)[:rows]
    ids, feed, kept = prompts, prompts, []
    while True:
        logits = teacher(feed, past_key_values=cache).logits.float()
        kept.append(likeliest_tokens(logits))
        if ids.size(1) == length:
            break
        last = logits[:, -1]
        warm = (last / temperature.clamp(min=0.01).unsqueeze(1)).softmax(-1)
        drawn = torch.multinomial(warm, 1, generator=generator).squeeze(1)
        token = torch.where(temperature == 0, last.argmax(-1), drawn)
        temperature = torch.where(token == separator, torch.ones_like(temperature), temperature)
        feed = token.unsqueeze(1)
        ids = torch.cat([ids, feed], 1)
    likeliest, probabilities = (torch.cat(part, 1) for part in zip(*kept, strict=True))
    return SoftLabels(ids.int().cpu(), likeliest, probabilities)


@torch.no_grad()
def labelled(teacher: LlamaForCausalLM, ids: torch.Tensor) -> SoftLabels:
    """Given texts, int64 (rows, length), with the teacher's distributions."""
    kept = [likeliest_tokens(teacher(some, use_cache=False).logits) for some in ids.split(_READ_AT_ONCE)]
    likeliest, probabilities = (torch.cat(part) for part in zip(*kept, strict=True))
    return SoftLabels(ids.int().cpu(), likeliest, probabilities)


def own_labels(
    teacher: LlamaForCausalLM, windows: Windows, separator: int, recipe: Recipe, run: Run
) -> SoftLabels:
    """Text that the target writes after openings of the corpus: what the draft will have to predict in use."""

    def make(index: int) -> SoftLabels:
        seed = recipe.seed * 1_000_003 + index
        generator = torch.Generator().manual_seed(seed)
        longest = min(LONGEST_OPENING, recipe.label_length // 2)
        length = int(torch.randint(SHORTEST_OPENING, longest + 1, (1,), generator=generator))
        prompts = windows.openings(separator, recipe.label_rows, length, generator).to(run.device)
        sampler = torch.Generator(device=run.device).manual_seed(seed)
        return generated(teacher, prompts, recipe.label_length, separator, sampler)

    return _stored("own", recipe.own_tokens, make, recipe, run)


def corpus_labels(teacher: LlamaForCausalLM, windows: Windows, recipe: Recipe, run: Run) -> SoftLabels:
    """Text of the corpus that the target reads."""

    def make(index: int) -> SoftLabels:
        ids = windows.batch(900_000_000 + index, recipe.label_rows, recipe.label_length)
        return labelled(teacher, ids.to(run.device))

    return _stored("corpus", recipe.corpus_tokens, make, recipe, run)


def _stored(name: str, tokens: int, make: Callable[[int], SoftLabels], recipe: Recipe, run: Run) -> SoftLabels:
    """Labels of so many tokens in parts, a file each in ``folder/labels``; parts of an earlier start are read."""
    count = max(1, tokens // (recipe.label_rows * recipe.label_length))
    parts = []
    for index in range(count):
        path = run.folder / "labels" / f"{name}-{index:04d}.npz"
        if not path.exists():
            save(make(index), path)
            run.log(f"labels, {name}: {index + 1}/{count}")
        parts.append(load(path))
    return joined(parts)
