"""A draft model of one wide layer for a finished target: it reads the tasks, then learns what the target says.

The second phase is distillation on text that the target wrote itself (DistillSpec, arXiv 2310.08461).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from specdemo.training.lessons import Lessons, of_tasks
from specdemo.training.loop import Phase, Run, train
from specdemo.training.models import build_model
from specdemo.training.tasks.stream import TaskStream


def distillation_loss(q_logits: torch.Tensor, p_logits: torch.Tensor, hard_share: float) -> torch.Tensor:
    """Mean cross entropy to the target's sharpened distribution, in nats.

    The label is (1 − h)·p + h·onehot(argmax p): p alone serves sampling, where acceptance is Σ min(p, q)
    (arXiv 2310.08461), the one-hot part greedy decoding, where only the best token counts.

    Args:
        q_logits: (positions, V) the drafter's.
        p_logits: (positions, V) the target's.
        hard_share: h.
    """
    labels = (p_logits.float().softmax(-1), p_logits.argmax(-1))
    soft, hard = (functional.cross_entropy(q_logits.float(), label, reduction="sum") for label in labels)
    return ((1 - hard_share) * soft + hard_share * hard) / max(1, len(q_logits))  # a lesson may hold no answer


def train_draft(
    target: LlamaForCausalLM, lessons: Lessons, tasks: TaskStream, run: Run
) -> tuple[LlamaForCausalLM, float]:
    """The trained draft, and the seconds of all starts; goes on from ``folder/draft.pt``."""
    recipe, part = run.recipe, run.recipe.draft

    def new() -> LlamaForCausalLM:
        shape = target.config
        draft = build_model(part, 1, shape.vocab_size, shape.max_position_embeddings, recipe.seed)
        nn.Module.to(draft, run.device)
        return draft

    def reading(draft: LlamaForCausalLM, step: int) -> list[torch.Tensor]:
        """Next-token loss on all text of tasks, prompts too."""
        ids = of_tasks(tasks, step, recipe)[0].to(run.device)
        with run.autocast():
            logits = draft(ids[:, :-1], use_cache=False).logits.float()
        return [functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())]

    def distilling(draft: LlamaForCausalLM, step: int) -> list[torch.Tensor]:
        """At the places of lessons whose next token is an answer's."""
        lesson = lessons.at(step, run.device)
        places = lesson.places()
        with run.autocast():
            q_logits = draft.lm_head(draft.model(lesson.ids, use_cache=False).last_hidden_state[places])
        return [distillation_loss(q_logits, lesson.says(target.lm_head)[places], part.hard_share)]

    step_tokens = recipe.lessons.task_rows * recipe.lessons.window
    tokens = int(part.task_share * part.tokens)
    phases: list[Phase[LlamaForCausalLM]] = [
        Phase(tokens, step_tokens, lambda draft: (draft or new(), reading)),
        Phase(part.tokens - tokens, step_tokens, lambda draft: (draft or new(), distilling)),
    ]
    return train("draft", phases, part, run)
