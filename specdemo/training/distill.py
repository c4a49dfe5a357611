"""Distillation: trains the draft on the target's next-token distributions."""

from __future__ import annotations

import torch
from transformers import LlamaForCausalLM

from specdemo.training.labels import SoftLabels, joined
from specdemo.training.loop import Run, Trainer, load_checkpoint, schedule
from specdemo.training.recipe import Recipe

_LEAST_REST = 1e-6  # of a distribution's mass outside its kept tokens, so that its logarithm stays finite


def distillation_loss(
    q_logits: torch.Tensor, likeliest: torch.Tensor, probabilities: torch.Tensor, hard_share: float
) -> torch.Tensor:
    """Mean KL divergence to a sharpened target.

    The label is (1 − h)·p + h·onehot(argmax p): p alone serves sampling, where acceptance is Σ min(p, q)
    (DistillSpec, arXiv 2310.08461), the one-hot part greedy decoding, where only the best token counts.
    The divergence is of the distributions over the kept tokens and one more outcome, "any other", and is given
    up to the label's entropy, which has no gradient.

    Args:
        q_logits: the draft's, of shape (rows, length, vocabulary).
        likeliest: int64 of shape (rows, length, kept), best first.
        probabilities: p of those, of the same shape.
        hard_share: h.
    """
    log_q = q_logits.float().log_softmax(-1).gather(-1, likeliest)
    rest_p = (1 - probabilities.sum(-1)).clamp(min=0)
    rest_log_q = (1 - log_q.exp().sum(-1)).clamp(min=_LEAST_REST).log()
    soft = (probabilities * log_q).sum(-1) + rest_p * rest_log_q
    return -((1 - hard_share) * soft + hard_share * log_q[..., 0]).mean()


def mixed_batch(own: SoftLabels, corpus: SoftLabels, recipe: Recipe, step: int, rows: int) -> SoftLabels:
    """Rows drawn at random, a fixed share of them the target's own text; a pure function of the step."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
    own_rows = round(rows * recipe.distill_own_share)
    return joined(
        [
            labels.rows(torch.randint(len(labels), (count,), generator=generator))
            for labels, count in ((own, own_rows), (corpus, rows - own_rows))
        ]
    )


def distill(
    draft: LlamaForCausalLM, own: SoftLabels, corpus: SoftLabels, recipe: Recipe, run: Run
) -> LlamaForCausalLM:
    """Train ``draft`` on the target's labels. Resumes from ``folder/draft_distilled.pt``."""
    path = run.folder / "draft_distilled.pt"
    draft.to(run.device)
    loss_function = run.compiled(draft, distillation_loss)
    rows = max(2, recipe.distill_batch_tokens // recipe.label_length)
    step_tokens = rows * recipe.label_length
    steps = max(1, recipe.distill_tokens // step_tokens)
    rates = (recipe.distill_matrix_lr, recipe.distill_vector_lr)
    trainer = Trainer("distil", draft, rates, steps, step_tokens, path, 0, load_checkpoint(path), run)
    for step in trainer.steps():
        batch = mixed_batch(own, corpus, recipe, step, rows).to(run.device)
        with run.autocast():
            logits = draft(batch.ids, use_cache=False).logits
            loss = loss_function(logits, batch.likeliest, batch.probabilities, recipe.distill_hard_share)
        trainer.update([loss], schedule(step, steps, recipe.distill_decay_share, step, recipe.warmup_steps))
    return draft.eval()
