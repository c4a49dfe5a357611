"""An EAGLE-3 head for a finished target, trained for so many minutes."""

from __future__ import annotations

import torch
from transformers import LlamaForCausalLM

from specdemo.models.eagle3_config import shaped_like
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.training.head_loss import TargetView, unrolled_loss
from specdemo.training.lessons import Lessons, says
from specdemo.training.loop import REPORT_EVERY, Run, Trainer, load_checkpoint, schedule
from specdemo.training.recipe import Recipe


def new_head(target: LlamaForCausalLM, recipe: Recipe) -> Eagle3Head:
    """A head of the target's own width and vocabulary that begins as the target's last steps.

    It starts with the highest tap alone and with the target's output layer; its attention and MLP add little.
    """
    shape = target.config
    layers = shape.num_hidden_layers
    taps = None if layers >= 6 else (min(1, layers - 1), layers // 2, layers - 1)
    config = shaped_like(shape, "the head", 4 * shape.hidden_size, taps=taps)
    torch.manual_seed(recipe.seed)
    head = Eagle3Head(config)
    with torch.no_grad():
        for name, weights in head.named_parameters():
            if weights.ndim > 1:
                weights.normal_(0.0, 0.002 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02)
        head.fc.weight[:, -shape.hidden_size :] += torch.eye(shape.hidden_size)
        head.norm.weight.copy_(target.model.norm.weight)
        head.lm_head.weight.copy_(target.get_output_embeddings().weight)
    return head


def train_head(target: LlamaForCausalLM, lessons: Lessons, recipe: Recipe, run: Run) -> Eagle3Head:
    """The trained head; checkpoints of earlier starts (``folder/head.pt``) are taken up.

    A checkpoint holds the seconds that all starts spent, so that the minutes are those of the whole run.
    """
    budget = 60 * recipe.minutes
    head = new_head(target, recipe).to(run.device)
    table = target.get_input_embeddings().weight.detach().float()
    path = run.folder / "head.pt"
    tokens = recipe.rows * (recipe.answer_tokens + recipe.longest_prompt)
    rates = (recipe.matrix_lr, recipe.vector_lr)
    trainer = Trainer("head", head, rates, 10**9, tokens, path, 0, load_checkpoint(path), run, budget)
    for step in trainer.steps():
        lesson = lessons.at(step, run.device)
        logits = says(target.lm_head, lesson.hidden)
        seen = TargetView(lesson.ids, lesson.learned, lesson.features, logits)
        # Five steps cost five times one: most of what a head needs is in the first, the rest follows quickly.
        unrolled = 1 if trainer.seconds < recipe.one_step_share * budget else recipe.unrolled
        with run.autocast():
            loss, agreement = unrolled_loss(head, table, seen, unrolled, recipe.step_decay, recipe.hard_share)
        if (step + 1) % REPORT_EVERY == 0:
            run.log(f"head: the target's token in {', '.join(f'{share:.0%}' for share in agreement)} by step")
        spent = min(trainer.seconds, budget)
        trainer.update([loss], schedule(spent, budget, recipe.decay_share, step, recipe.warmup_steps))
    trainer.save()
    return head.requires_grad_(False).eval()
