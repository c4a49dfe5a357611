"""``python -m specdemo.training head``: trains an EAGLE-3 head for a finished target, in so many minutes."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.decoding.engines.model_views import TappedModel
from specdemo.models.eagle3_config import shaped_like
from specdemo.models.eagle3_files import save_head
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.training.head_card import write_head_card
from specdemo.training.head_loss import TargetView, unrolled_loss
from specdemo.training.head_recipe import HeadRecipe
from specdemo.training.head_texts import Texts, written
from specdemo.training.loop import REPORT_EVERY, Run, Trainer, load_checkpoint, schedule
from specdemo.training.tasks.task import Domain


def new_head(target: LlamaForCausalLM, recipe: HeadRecipe) -> Eagle3Head:
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


def train_head(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    domains: dict[str, Domain],
    recipe: HeadRecipe,
    run: Run,
) -> Eagle3Head:
    """The trained head. Texts and checkpoints (``folder/head.pt``) of earlier starts are taken up.

    A checkpoint holds the seconds that all starts spent, so that the minutes are those of the whole run.
    """
    teacher = copy.deepcopy(target).to(run.device, run.dtype).eval()
    seconds = 60 * recipe.minutes
    texts = written(teacher, tokenizer, domains, recipe, run, recipe.text_share * seconds)
    budget = (1 - recipe.text_share) * seconds
    head = new_head(target, recipe).to(run.device)
    table = teacher.get_input_embeddings().weight.detach().float()
    tapped = TappedModel(teacher, head.taps)
    path = run.folder / "head.pt"
    tokens = recipe.rows * (recipe.answer_tokens + recipe.longest_prompt)
    rates = (recipe.matrix_lr, recipe.vector_lr)
    trainer = Trainer("head", head, rates, 10**9, tokens, path, 0, load_checkpoint(path), run, budget)
    for step in trainer.steps():
        seen = _looked_at(tapped, texts, recipe, step, run)
        with run.autocast():
            loss, agreement = unrolled_loss(
                head, table, seen, recipe.unrolled, recipe.step_decay, recipe.hard_share
            )
        if (step + 1) % REPORT_EVERY == 0:
            run.log(f"head: the target's token in {', '.join(f'{share:.0%}' for share in agreement)} by step")
        spent = min(trainer.seconds, budget)
        trainer.update([loss], schedule(spent, budget, recipe.decay_share, step, recipe.warmup_steps))
    trainer.save()
    return head.requires_grad_(False).eval()


def _looked_at(tapped: TappedModel, texts: Texts, recipe: HeadRecipe, step: int, run: Run) -> TargetView:
    """A batch as the target sees it; a pure function of the step."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
    picks = torch.randint(len(texts.ids), (recipe.rows,), generator=generator).tolist()
    ids, learned = (t.to(run.device) for t in texts.batch(picks))
    with torch.no_grad():
        logits = tapped.view(input_ids=ids, use_cache=False).logits
    return TargetView(ids, learned, tapped.take().float(), logits)


def head_stage(
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM | None,
    tokenizer: PreTrainedTokenizerFast,
    domains: dict[str, Domain],
    recipe: HeadRecipe,
    run: Run,
    out: Path,
) -> None:
    """Train, save to ``out`` in SafeAI's format, and write the model card from what the saved files draft."""
    began = time.monotonic()
    save_head(train_head(target, tokenizer, domains, recipe, run).cpu(), out)
    run.log(f"head: saved after {(time.monotonic() - began) / 60:.1f} min of this start")
    head = Eagle3Head.load(out, target)
    table = write_head_card(out / "README.md", target, draft, head, tokenizer, domains, recipe)
    run.log(f"acceptance by position, held-out prompts:\n{table}")
