"""A draft model of one wide layer for a finished target: it reads the tasks, then learns what the target says.

The second part is distillation on text that the target wrote itself (DistillSpec, arXiv 2310.08461).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from specdemo.training.lessons import Lesson, Lessons, of_tasks, says
from specdemo.training.loop import Run, Trainer, load_checkpoint, schedule
from specdemo.training.models import Shape, build_model
from specdemo.training.recipe import Recipe
from specdemo.training.tasks.stream import TaskStream


def distillation_loss(q_logits: torch.Tensor, p_logits: torch.Tensor, hard_share: float) -> torch.Tensor:
    """Mean cross entropy to the target's sharpened distribution, in nats.

    The label is (1 − h)·p + h·onehot(argmax p): p alone serves sampling, where acceptance is Σ min(p, q)
    (arXiv 2310.08461), the one-hot part greedy decoding, where only the best token counts.

    Args:
        q_logits: (positions, V) the draft's.
        p_logits: (positions, V) the target's.
        hard_share: h.
    """
    labels = (p_logits.float().softmax(-1), p_logits.argmax(-1))
    soft, hard = (functional.cross_entropy(q_logits.float(), label, reduction="sum") for label in labels)
    return ((1 - hard_share) * soft + hard_share * hard) / max(1, len(q_logits))  # a lesson may hold no answer


def train_draft(
    target: LlamaForCausalLM,
    lessons: Lessons,
    tasks: TaskStream,
    recipe: Recipe,
    run: Run,
) -> LlamaForCausalLM:
    """The trained draft; checkpoints of earlier starts (``folder/draft.pt``) are taken up.

    A checkpoint holds the seconds that all starts spent, so that the minutes are those of the whole run.
    """
    config = target.config
    shape = Shape(
        recipe.draft_width,
        recipe.draft_heads,
        recipe.draft_feed_forward,
        config.vocab_size,
        config.max_position_embeddings,
        config.bos_token_id,
        config.eos_token_id,
    )
    draft = build_model(shape, 1, recipe.seed).to(run.device)
    path, budget = run.folder / "draft.pt", 60 * recipe.minutes
    rates, tokens = (recipe.matrix_lr, recipe.vector_lr), recipe.task_rows * recipe.window
    trainer = Trainer("draft", draft, rates, 10**9, tokens, path, 0, load_checkpoint(path), run, budget)
    for step in trainer.steps():
        with run.autocast():
            if trainer.seconds < recipe.task_share * budget:
                loss = _of_tasks(draft, of_tasks(tasks, step, recipe)[0].to(run.device))
            else:
                lesson = lessons.at(step, run.device)
                loss = _of_the_target(draft, target.lm_head, lesson, recipe.hard_share)
        spent = min(trainer.seconds, budget)
        trainer.update([loss], schedule(spent, budget, recipe.decay_share, step, recipe.warmup_steps))
    trainer.save()
    return draft.eval()


def _of_tasks(draft: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """Next-token loss on all text of training tasks, prompts too."""
    logits = draft(ids[:, :-1], use_cache=False).logits.float()
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def _of_the_target(
    draft: LlamaForCausalLM, output_layer: nn.Linear, lesson: Lesson, hard_share: float
) -> torch.Tensor:
    """Distillation at the places whose next token is an answer's."""
    places = lesson.places()
    hidden = draft.model(lesson.ids, use_cache=False).last_hidden_state[places]
    return distillation_loss(draft.lm_head(hidden), says(output_layer, lesson.hidden[places]), hard_share)
