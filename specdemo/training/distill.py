"""Teaches the draft to guess what the target will say."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from specdemo.training.lessons import Lessons, joined
from specdemo.training.pretrain import Optimizers, Progress, Run, compiled, save_checkpoint, schedule
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


class Mixture:
    """Batches of which a share is the target's own text and the rest corpus; a function of the step."""

    def __init__(self, own: Lessons, corpus: Lessons, recipe: Recipe) -> None:
        self._own, self._corpus, self._recipe = own, corpus, recipe

    def batch(self, step: int, rows: int) -> Lessons:
        """``rows`` lessons drawn at random."""
        generator = torch.Generator().manual_seed(self._recipe.seed * 1_000_003 + step)
        own = round(rows * self._recipe.distill_own_share)
        return joined(
            [
                self._own.rows(torch.randint(len(self._own), (own,), generator=generator)),
                self._corpus.rows(torch.randint(len(self._corpus), (rows - own,), generator=generator)),
            ]
        )


def distill(draft: LlamaForCausalLM, own: Lessons, corpus: Lessons, recipe: Recipe, run: Run) -> LlamaForCausalLM:
    """Train ``draft`` on what the target said. Resumes from ``folder/draft_distilled.pt``."""
    path: Path = run.folder / "draft_distilled.pt"
    draft.to(run.device).train()
    optimizers = Optimizers(draft, recipe.distill_matrix_lr, recipe.distill_vector_lr, run.dtype)
    first = 0
    if path.exists():
        state = torch.load(path, map_location=run.device, weights_only=True)
        draft.load_state_dict(state["model"])
        optimizers.load_state_dict(state["optimizers"])
        first = state["step"]
    loss_function = compiled(draft, distillation_loss) if run.compile else distillation_loss
    mixture = Mixture(own, corpus, recipe)
    rows = max(2, recipe.distill_batch_tokens // recipe.lesson_length)
    step_tokens = rows * recipe.lesson_length
    steps = max(1, recipe.distill_tokens // step_tokens)
    progress = Progress("distil", first, steps, step_tokens, run.log)
    for step in range(first, steps):
        batch = mixture.batch(step, rows).to(run.device)
        with run.autocast():
            logits = draft(batch.ids, use_cache=False).logits
            loss = loss_function(logits, batch.likeliest, batch.probabilities, recipe.distill_hard_share)
        loss.backward()
        scale = schedule(step, steps, recipe.distill_decay_share, step, recipe.warmup_steps)
        optimizers.step(scale)
        progress.add(step + 1, loss)
        if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == steps:
            state = {"step": step + 1, "model": draft.state_dict(), "optimizers": optimizers.state_dict()}
            save_checkpoint(path, state)
    return draft.eval()
