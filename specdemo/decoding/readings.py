"""What a model's scores say of single tokens, read from the device in one copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Reading:
    """What one row of scores says of one token.

    Attributes:
        probability: softmax of the row at the token; 0 for a token this model does not have.
        margin: the token's score minus that of the best other one; None if either is cut from the distribution.
        top: the most likely tokens with their probabilities.
    """

    probability: float
    margin: float | None
    top: tuple[tuple[int, float], ...]


def readings(scores: torch.Tensor, tokens: Sequence[int]) -> list[Reading]:
    """Readings of ``tokens`` (n,), one at each row of ``scores`` (n, V)."""
    rows = packed(scores, torch.arange(len(tokens)), torch.tensor(tokens), top=0).tolist()
    return [unpacked(row, token, top=0) for row, token in zip(rows, tokens, strict=True)]


def packed(scores: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor, top: int) -> torch.Tensor:
    """All that :func:`unpacked` needs, on the device of ``scores``.

    Args:
        scores: (n, V).
        rows: (m,) which row each token is looked up in.
        tokens: (m,) ids; those from V on are tokens this model does not have.
        top: so many most likely tokens of each row are wanted.

    Returns:
        float32 (m, 2 + 2k), k = min(max(2, top), V): the token's score, the log of the row's total, the k best
        scores, and their ids, which float32 holds exactly up to 2²⁴.
    """
    rows, tokens = rows.to(scores.device), tokens.to(scores.device)
    width = scores.shape[1]
    picked = scores[rows]
    best = picked.topk(min(max(2, top), width))
    own = picked.gather(1, tokens.clamp(max=width - 1).unsqueeze(1)).squeeze(1)
    own = own.where(tokens < width, -torch.inf)
    head = torch.stack([own, picked.logsumexp(-1)], dim=1)
    return torch.cat([head, best.values, best.indices.to(head.dtype)], dim=1)


def unpacked(row: Sequence[float], token: int, top: int) -> Reading:
    """The reading of one row of :func:`packed`."""
    own, total = row[:2]
    count = len(row) // 2 - 1
    values, ids = row[2 : 2 + count], [int(i) for i in row[2 + count :]]
    runner_up = values[1] if count > 1 else -math.inf
    margin = own - (runner_up if token == ids[0] else values[0])
    return Reading(
        probability=min(1.0, math.exp(own - total)),
        margin=margin if math.isfinite(margin) else None,
        top=tuple((i, math.exp(v - total)) for i, v in zip(ids[:top], values[:top], strict=True)),
    )
