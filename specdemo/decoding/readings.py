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
    """

    probability: float
    margin: float | None


def readings(scores: torch.Tensor, tokens: Sequence[int]) -> list[Reading]:
    """Readings of ``tokens`` (n,), one at each row of ``scores`` (n, V)."""
    rows = reading_rows(scores, torch.arange(len(tokens)), torch.tensor(tokens)).tolist()
    return [reading_of(row, token) for row, token in zip(rows, tokens, strict=True)]


def finite(scores: torch.Tensor) -> bool:
    """Whether each row of ``scores`` (n, V) is a distribution: no NaN, no infinity, not all cut off (−inf)."""
    return bool(scores.logsumexp(-1).isfinite().all())


def reading_rows(scores: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """All that :func:`reading_of` needs, on the device of ``scores``.

    Args:
        scores: (n, V).
        rows: (m,) which row each token is looked up in.
        tokens: (m,) ids; those from V on are tokens this model does not have.

    Returns:
        float32 (m, 2 + 2k), k = min(2, V): the token's score, the log of the row's total, then the two best
        scores, each followed by its id, which float32 holds exactly up to 2²⁴.
    """
    rows, tokens = rows.to(scores.device), tokens.to(scores.device)
    width = scores.shape[1]
    best = scores.topk(min(2, width))
    own = scores[rows, tokens.clamp(max=width - 1)].where(tokens < width, -torch.inf)
    pairs = torch.stack([best.values, best.indices.to(scores.dtype)], dim=2).flatten(1)
    of_rows = torch.cat([scores.logsumexp(-1, keepdim=True), pairs], dim=1)
    return torch.cat([own.unsqueeze(1), of_rows[rows]], dim=1)


def reading_of(row: Sequence[float], token: int) -> Reading:
    """The reading of one row of :func:`reading_rows`."""
    own, total, best, best_id, runner_up = row[:5] if len(row) > 4 else (*row, -math.inf)
    margin = own - (runner_up if token == best_id else best)
    return Reading(probability=min(1.0, math.exp(own - total)), margin=margin if math.isfinite(margin) else None)
