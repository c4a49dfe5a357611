"""Text that the target itself writes: what the draft will have to guess when it is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM, StaticCache

from specdemo.training.corpus import Stream
from specdemo.training.pretrain import Run
from specdemo.training.recipe import Recipe

SHORTEST_OPENING, LONGEST_OPENING = 8, 48  # tokens of a document given to the target to continue


def openings(
    streams: list[Stream], separator: int, rows: int, length: int, generator: torch.Generator
) -> torch.Tensor:
    """The first ``length`` tokens of random documents, separator included: int64 (rows, length)."""
    weights = torch.tensor([s.source.share for s in streams], dtype=torch.float64)
    picks = torch.multinomial(weights, rows, replacement=True, generator=generator).tolist()
    starts = [np.flatnonzero(s.train[:-length] == separator) for s in streams]
    out = np.empty((rows, length), dtype=np.int64)
    for row, pick in enumerate(picks):
        choice = int(torch.randint(len(starts[pick]), (1,), generator=generator))
        start = starts[pick][choice]
        out[row] = streams[pick].train[start : start + length]
    return torch.from_numpy(out)


@torch.no_grad()
def continuations(
    model: LlamaForCausalLM, prompts: torch.Tensor, length: int, separator: int, generator: torch.Generator
) -> torch.Tensor:
    """Continue ``prompts`` (rows, n) to ``length`` tokens: int64 (rows, length).

    Half of the rows are greedy, a quarter at temperature 0.7, a quarter at 1. A row that ends its document
    begins another one, sampled, since a greedy one would be the same in every row.
    """
    rows, given = prompts.shape
    cache = StaticCache(config=model.config, max_cache_len=length)
    temperature = torch.tensor([0.0, 0.0, 0.7, 1.0], device=prompts.device).repeat(rows // 4 + 1)[:rows]
    ids = torch.cat([prompts, prompts.new_zeros(rows, length - given)], 1)
    feed = prompts
    for place in range(given, length):
        logits = model(feed, past_key_values=cache, logits_to_keep=1).logits[:, -1].float()
        warm = (logits / temperature.clamp(min=0.01).unsqueeze(1)).softmax(-1)
        drawn = torch.multinomial(warm, 1, generator=generator).squeeze(1)
        token = torch.where(temperature == 0, logits.argmax(-1), drawn)
        temperature = torch.where(token == separator, torch.ones_like(temperature), temperature)
        ids[:, place] = token
        feed = token.unsqueeze(1)
    return ids


def write_rollouts(
    teacher: LlamaForCausalLM, streams: list[Stream], separator: int, recipe: Recipe, run: Run
) -> np.ndarray:
    """All rollouts, uint16 (rows, length); one file a batch in ``folder/rollouts``, resumable.

    ``teacher`` is the target in evaluation mode on the run's device, in 16 bit for speed.
    """
    folder: Path = run.folder / "rollouts"
    folder.mkdir(exist_ok=True)
    batches = max(1, recipe.rollout_tokens // (recipe.rollout_batch * recipe.rollout_length))
    parts = []
    for index in range(batches):
        stored = folder / f"{index:04d}.npy"
        if not stored.exists():
            seed = recipe.seed * 1_000_003 + index
            chooser = torch.Generator().manual_seed(seed)
            longest = min(LONGEST_OPENING, recipe.rollout_length // 2)
            length = int(torch.randint(SHORTEST_OPENING, longest + 1, (1,), generator=chooser))
            prompts = openings(streams, separator, recipe.rollout_batch, length, chooser).to(run.device)
            drawer = torch.Generator(device=run.device).manual_seed(seed)
            ids = continuations(teacher, prompts, recipe.rollout_length, separator, drawer)
            np.save(folder / "part.npy", ids.cpu().numpy().astype(np.uint16))
            (folder / "part.npy").replace(stored)
            run.log(f"rollouts: {index + 1}/{batches}")
        parts.append(np.load(stored))
    return np.concatenate(parts)
