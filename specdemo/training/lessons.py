"""What the draft learns from: texts, and at every place of them what the target would say next.

The target answers once and the draft reads the answers many times: for a target of ten times the draft's size
this is most of distillation's cost. Of each answer the likeliest tokens are kept, and the rest as one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

KEPT = 32  # tokens of each distribution; they held 90 % of the builtin target's mass


@dataclass(frozen=True, slots=True)
class Lessons:
    """Texts with the target's distributions.

    Attributes:
        ids: int32 of shape (rows, length).
        likeliest: int32 of shape (rows, length, KEPT): best first, for the token *after* each place.
        probabilities: float16 of the same shape.
    """

    ids: torch.Tensor
    likeliest: torch.Tensor
    probabilities: torch.Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, picks: torch.Tensor) -> Lessons:
        """The chosen rows; ``picks`` is int64 of shape (n,)."""
        return Lessons(self.ids[picks], self.likeliest[picks], self.probabilities[picks])

    def to(self, device: torch.device) -> Lessons:
        """The same on a device, in the types the loss computes with."""
        return Lessons(
            self.ids.to(device).long(), self.likeliest.to(device).long(), self.probabilities.to(device).float()
        )


def joined(parts: list[Lessons]) -> Lessons:
    """All rows of several lessons of one length."""
    return Lessons(
        torch.cat([p.ids for p in parts]),
        torch.cat([p.likeliest for p in parts]),
        torch.cat([p.probabilities for p in parts]),
    )


def answers(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The KEPT likeliest tokens of each distribution and their probabilities; logits of shape (…, vocabulary)."""
    best = logits.float().softmax(-1).topk(min(KEPT, logits.size(-1)), dim=-1)
    return best.indices.int().cpu(), best.values.half().cpu()


def save(lessons: Lessons, path: Path) -> None:
    """Write beside, then rename: a run killed while saving leaves nothing half-written."""
    partial = path.with_suffix(".part.npz")
    np.savez(
        partial,
        ids=lessons.ids.numpy().astype(np.uint16),
        likeliest=lessons.likeliest.numpy().astype(np.uint16),
        probabilities=lessons.probabilities.numpy(),
    )
    partial.replace(path)


def load(path: Path) -> Lessons:
    """What :func:`save` wrote."""
    with np.load(path) as arrays:
        return Lessons(
            torch.from_numpy(arrays["ids"].astype(np.int32)),
            torch.from_numpy(arrays["likeliest"].astype(np.int32)),
            torch.from_numpy(arrays["probabilities"]),
        )
