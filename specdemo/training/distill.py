"""Teaches the draft to guess what the target will say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from specdemo.training.corpus import Windows
from specdemo.training.pretrain import Optimizers, Progress, Run, compiled, save_checkpoint, schedule
from specdemo.training.recipe import Recipe


def distillation_loss(q_logits: torch.Tensor, p_logits: torch.Tensor, hard_share: float) -> torch.Tensor:
    """Mean KL divergence to a sharpened target; logits of shape (rows, length, vocabulary).

    The label is (1 − h)·p + h·onehot(argmax p): p alone serves sampling, where acceptance is Σ min(p, q)
    (DistillSpec, arXiv 2310.08461), the one-hot part greedy decoding, where only the best token counts.
    KL is given up to the label's entropy, which has no gradient.
    """
    log_q = F.log_softmax(q_logits.float(), -1)
    p = p_logits.float().softmax(-1)
    best = log_q.gather(-1, p_logits.argmax(-1, keepdim=True)).squeeze(-1)
    return -((1 - hard_share) * (p * log_q).sum(-1) + hard_share * best).mean()


class MixedWindows:
    """Batches of which a share is the target's own text and the rest corpus; a function of the step."""

    def __init__(self, windows: Windows, rollouts: np.ndarray, recipe: Recipe) -> None:
        self.windows, self.rollouts, self.recipe = windows, rollouts, recipe

    def batch(self, step: int, rows: int, length: int) -> torch.Tensor:
        """int64 ids of shape (rows, length)."""
        generator = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + step)
        own = round(rows * self.recipe.distill_rollout_share)
        picks = torch.randint(len(self.rollouts), (own,), generator=generator).numpy()
        written = torch.from_numpy(self.rollouts[picks, :length].astype(np.int64))
        return torch.cat([written, self.windows.batch(900_000_000 + step, rows - own, length)])


def distill(
    teacher: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    windows: Windows,
    rollouts: np.ndarray,
    recipe: Recipe,
    run: Run,
) -> LlamaForCausalLM:
    """Train ``draft`` to predict ``teacher``, the target in evaluation mode.

    Resumes from ``folder/draft_distilled.pt``.
    """
    path: Path = run.folder / "draft_distilled.pt"
    draft.to(run.device).train()
    optimizers = Optimizers(draft, recipe.distill_matrix_lr, recipe.distill_vector_lr)
    step = 0
    if path.exists():
        state = torch.load(path, map_location=run.device, weights_only=True)
        draft.load_state_dict(state["model"])
        optimizers.load_state_dict(state["optimizers"])
        step = state["step"]
    loss_function = distillation_loss
    if run.compile:
        loss_function = compiled(draft, distillation_loss)
        for layer in teacher.model.layers:
            layer.compile()
    mixed = MixedWindows(windows, rollouts, recipe)
    length = min(recipe.distill_context, rollouts.shape[1])
    rows = max(2, recipe.batch_tokens // length)
    total = recipe.distill_tokens
    steps = max(1, total // (rows * length))
    progress = Progress("distil", step, steps, rows * length, run.log)
    while step < steps:
        ids = mixed.batch(step, rows, length).to(run.device)
        with torch.no_grad():
            p_logits = teacher(ids, use_cache=False).logits
        with run.autocast():
            loss = loss_function(draft(ids, use_cache=False).logits, p_logits, recipe.distill_hard_share)
        loss.backward()
        optimizers.step(
            schedule(step * rows * length, total, recipe.distill_decay_share, step, recipe.warmup_steps)
        )
        step += 1
        progress.add(step, loss)
        if step % recipe.checkpoint_every == 0 or step == steps:
            state = {"step": step, "model": draft.state_dict(), "optimizers": optimizers.state_dict()}
            save_checkpoint(path, state)
    return draft.eval()
