"""The draft model and the EAGLE-3 head of a finished target, both trained on what the target says.

The draft learns the tasks, then is distilled on text that the target wrote itself (DistillSpec, arXiv
2310.08461). The head is trained as it will draft, by the training-time test of EAGLE-3
(Li et al., arXiv 2503.01840, section 3): step 0 reads the target's features at every index at once. Step k reads
at each index what step k − 1 gave there, with the true token k places on, as a draft step does that follows k
accepted ones.
"""

from __future__ import annotations

from functools import partial
from itertools import count

import torch
from torch import nn
from torch.nn import functional
from transformers import DynamicCache, LlamaForCausalLM

from specdemo.models.eagle3_config import shaped_like
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.training.lessons import Lesson, Lessons
from specdemo.training.loop import REPORT_EVERY, Phase, Run, Spent, train
from specdemo.training.models import build_model
from specdemo.training.start import start_copying
from specdemo.training.target import Batch, summed_loss
from specdemo.training.tasks.stream import TaskStream, task_mask


def distillation_loss(q_logits: torch.Tensor, p_logits: torch.Tensor, hard_share: float) -> torch.Tensor:
    """Mean cross entropy to the target's sharpened distribution, in nats.

    The label is (1 − h)·p + h·onehot(argmax p): p alone serves sampling, where acceptance is Σ min(p, q)
    (arXiv 2310.08461), the one-hot part greedy decoding, where only the best token counts. h is ``hard_share``;
    the logits (positions, V) are the drafter's and the target's.
    """
    labels = (p_logits.float().softmax(-1), p_logits.argmax(-1))
    soft, hard = (functional.cross_entropy(q_logits.float(), label, reduction="sum") for label in labels)
    return ((1 - hard_share) * soft + hard_share * hard) / max(1, len(q_logits))  # a lesson may hold no answer


def train_draft(
    target: LlamaForCausalLM, lessons: Lessons, tasks: TaskStream, run: Run
) -> tuple[LlamaForCausalLM, Spent]:
    """The trained draft and what it took; goes on from ``folder/draft.pt``."""
    recipe, part, numbers = run.recipe, run.recipe.draft, run.recipe.lessons
    vocabulary, context = target.config.vocab_size, target.config.max_position_embeddings
    new = build_model(part, part.layers, vocabulary, context, recipe.seed)
    if part.layers > 1:
        start_copying(new)
    nn.Module.to(new, run.device)

    def learning(draft: LlamaForCausalLM, batch: Batch) -> list[torch.Tensor]:
        return [summed_loss(draft, *batch, run) / float(batch[1].sum())]

    def distilling(draft: LlamaForCausalLM, lesson: Lesson) -> list[torch.Tensor]:
        """At the places of lessons whose next token is an answer's."""
        lesson = lesson.to(run.device)
        places = lesson.places()
        with run.autocast():
            states = draft.model(lesson.ids, task_mask(lesson.ids, run.dtype), use_cache=False).last_hidden_state
            q_logits = draft.lm_head(states[places])
        return [distillation_loss(q_logits, lesson.says(target.lm_head)[places], part.hard_share)]

    read = partial(tasks.batch, rows=numbers.task_rows, window=numbers.window)
    step_tokens = numbers.task_rows * numbers.window
    tokens = int(part.task_share * part.tokens)
    phases = [
        Phase(tokens, step_tokens, lambda _: new, read, learning),
        Phase(part.tokens - tokens, step_tokens, lambda _: new, lessons.at, distilling),
    ]
    return train("draft", phases, part, run)


def new_head(target: LlamaForCausalLM, seed: int) -> Eagle3Head:
    """A head of the target's own width and vocabulary that begins as the target's last steps.

    It starts with the last auxiliary hidden state and the output layer; its own attention and MLP add little.
    """
    shape = target.config
    layers = shape.num_hidden_layers
    aux_layers = () if layers >= 6 else (min(1, layers - 1), layers // 2, layers - 1)
    config = shaped_like(shape, "the head", 4 * shape.hidden_size, aux_layers=aux_layers)
    torch.manual_seed(seed)
    head = Eagle3Head(config)
    with torch.no_grad():
        for name, weights in head.named_parameters():
            if weights.ndim > 1:
                weights.normal_(0.0, 0.002 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02)
        head.get_parameter("fc.weight")[:, -shape.hidden_size :] += torch.eye(shape.hidden_size)
        head.get_parameter("norm.weight").copy_(target.model.norm.weight)
        head.get_parameter("lm_head.weight").copy_(target.lm_head.weight)
    return head


def train_head(target: LlamaForCausalLM, lessons: Lessons, run: Run) -> tuple[Eagle3Head, Spent]:
    """The trained head and what it took; goes on from ``folder/head.pt``.

    Five steps cost five times one: most of what a head needs is in the first, the rest follows quickly.
    """
    part, numbers, steps = run.recipe.head, run.recipe.lessons, count(1)
    table = target.model.embed_tokens.weight.detach().float()

    def loss(unrolled: int, head: Eagle3Head, lesson: Lesson) -> list[torch.Tensor]:
        lesson = lesson.to(run.device)
        logits = lesson.says(target.lm_head)
        with run.autocast():
            shares = (part.step_decay, part.hard_share)
            total, agreement = unrolled_loss(head, table, lesson, logits, unrolled, *shares)
        if next(steps) % REPORT_EVERY == 0:
            run.log(f"head: the target's token in {', '.join(f'{share:.0%}' for share in agreement)} by step")
        return [total]

    new = new_head(target, run.recipe.seed).to(run.device)
    step_tokens = numbers.rows * (numbers.answer_tokens + numbers.longest_prompt)
    alone = int(part.one_step_share * part.tokens)
    phases = [
        Phase(alone, step_tokens, lambda _: new, lessons.at, partial(loss, 1)),
        Phase(part.tokens - alone, step_tokens, lambda _: new, lessons.at, partial(loss, part.unrolled)),
    ]
    head, spent = train("head", phases, part, run)
    return head.requires_grad_(False), spent


def unrolled_loss(
    head: Eagle3Head,
    table: torch.Tensor,
    lesson: Lesson,
    logits: torch.Tensor,
    unrolled: int,
    step_decay: float,
    hard_share: float,
) -> tuple[torch.Tensor, list[float]]:
    """The loss over all steps, and of each step the share of tokens whose best token is the target's.

    Of step k at index t the label is what the target says of token t + k + 2: the share ``hard_share`` is its best
    token, the rest its distribution over the draft vocabulary. Tokens whose best one is not in that vocabulary are
    left out. Attention is causal over the task's rows of step 0, and sees of later steps the row of its own index.
    ``table`` (V, H) are the embeddings, ``logits`` (B, n, V) what the target says; step k counts ``step_decay``^k.
    """
    rows, count = lesson.ids.shape
    known = torch.isin(logits.argmax(-1), head.target_ids)
    hidden, cache = head.project(lesson.features), DynamicCache()
    total, agreement = hidden.new_zeros((), dtype=torch.float32), []
    causal = task_mask(lesson.ids, hidden.dtype)
    own = torch.full_like(causal[0, 0], -torch.inf).fill_diagonal_(0.0).expand_as(causal)
    for step in range(min(unrolled, count - 2)):
        ahead = step + 1
        # Along dimension 1, what stands so many places on; the last places hold what must not be counted.
        embeddings = functional.embedding(lesson.ids.roll(-ahead, 1), table)
        positions = torch.arange(step, step + count, device=hidden.device).expand(rows, -1)
        mask = torch.cat([causal, *([own] * step)], dim=-1)
        h = head(hidden, embeddings, positions, mask, cache)
        hidden = head.feed_back(h)
        counts = lesson.learned.roll(-ahead - 1, 1) & known.roll(-ahead, 1)
        counts[:, count - ahead - 1 :] = False
        row, index = counts.nonzero(as_tuple=True)  # only the places that count pass the output layer
        q = head.logits(h[row, index]).float()
        p = logits[row, index + ahead][:, head.target_ids]  # index t of the target's logits is of token t + 1
        total = total + step_decay**step * distillation_loss(q, p, hard_share)
        agreement.append((q.argmax(-1) == p.argmax(-1)).sum().item() / max(1, len(row)))
    return total, agreement
