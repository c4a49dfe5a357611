"""The training-time test of EAGLE-3 (Li et al., arXiv 2503.01840, section 3): a head trained as it will draft.

Step 0 reads the target's features at every index at once. Step k reads at each index what step k − 1 gave there,
with the true token k places on, as a draft step does that follows k kept ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import DynamicCache

from specdemo.models.eagle3_head import Eagle3Head


@dataclass(frozen=True, slots=True)
class TargetView:
    """What the target computed of a batch of texts.

    Attributes:
        ids: (B, n) the texts, filled up.
        learned: (B, n) the tokens that are to be predicted: those of answers.
        features: (B, n, taps · Ht) what entered the tapped layers.
        logits: (B, n, V) of the token behind each.
    """

    ids: torch.Tensor
    learned: torch.Tensor
    features: torch.Tensor
    logits: torch.Tensor


def unrolled_loss(
    head: Eagle3Head, table: torch.Tensor, seen: TargetView, unrolled: int, step_decay: float, hard_share: float
) -> tuple[torch.Tensor, list[float]]:
    """The loss over all steps, and of each step the share of tokens whose best token is the target's.

    Of step k at index t the label is what the target says of token t + k + 2: the share ``hard_share`` is its best
    token, the rest its distribution over the draft vocabulary. Tokens whose best one is not in that vocabulary are
    left out. Attention is causal over the rows of step 0, and sees of each later step the row of its own index.

    Args:
        head: in training.
        table: (V, H) embeddings.
        seen: of the batch.
        unrolled: steps.
        step_decay: step k counts this to the power of k.
        hard_share: see above.
    """
    rows, count = seen.ids.shape
    best = seen.logits.argmax(-1)
    kept = torch.isin(best, head.target_ids)
    draft_ids = torch.full((head.config.vocabulary,), 0, device=best.device)
    draft_ids[head.target_ids] = torch.arange(len(head.target_ids), device=best.device)
    hidden, cache = head.project(seen.features), DynamicCache()
    total, agreement = hidden.new_zeros((), dtype=torch.float32), []
    for step in range(unrolled):
        ahead = step + 1
        if ahead + 1 >= count:
            break
        embeddings = functional.embedding(_shifted(seen.ids, ahead), table)
        positions = torch.arange(step, step + count, device=hidden.device).expand(rows, -1)
        h = head(hidden, embeddings, positions, _mask(count, step, hidden), cache)
        hidden = head.feed_back(h)
        counts = _shifted(seen.learned, ahead + 1) & _shifted(kept, ahead)
        counts[:, count - ahead - 1 :] = False
        row, index = counts.nonzero(as_tuple=True)  # only the places that count pass the output layer
        says = index + ahead  # index t of the target's logits is of token t + 1
        q = head.logits(h[row, index]).float()
        p = seen.logits[row, says][:, head.target_ids].float().softmax(-1)
        wanted = draft_ids[best[row, says]]
        soft, hard = (functional.cross_entropy(q, label, reduction="sum") for label in (p, wanted))
        number = max(1, len(row))
        total = total + step_decay**step * ((1 - hard_share) * soft + hard_share * hard) / number
        agreement.append((q.argmax(-1) == wanted).sum().item() / number)
    return total, agreement


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """Along dimension 1: what stands so many places on; the last places hold what must not be counted."""
    return x.roll(-places, dims=1)


def _mask(count: int, step: int, like: torch.Tensor) -> torch.Tensor:
    """(1, 1, n, (step + 1) · n): causal over the rows of step 0, of later steps the own index only."""
    causal = torch.full((count, count), -torch.inf, dtype=like.dtype, device=like.device).triu_(1)
    own = torch.full_like(causal, -torch.inf).fill_diagonal_(0.0)
    return torch.cat([causal, *([own] * step)], dim=1)[None, None]
