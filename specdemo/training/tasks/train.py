"""Trains a target on the task stream: resumable at any point, with checks of held-out answers on the way."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.training.loop import Run, Trainer, load_checkpoint, schedule
from specdemo.training.models import build_model, grown
from specdemo.training.tasks.answers import check, table
from specdemo.training.tasks.attention import NAME
from specdemo.training.tasks.domains import held_out_tasks
from specdemo.training.tasks.loss import summed_cross_entropy
from specdemo.training.tasks.plan import Plan
from specdemo.training.tasks.stream import Batch, TaskStream
from specdemo.training.tasks.task import Domain

CHECK_DRAWS = 1_000_000  # the checks on the way ask other held-out prompts than the check of the finished model


def train(
    plan: Plan,
    domains: Mapping[str, Domain],
    tokenizer: PreTrainedTokenizerFast,
    run: Run,
    start: LlamaForCausalLM | None = None,
) -> tuple[LlamaForCausalLM, float]:
    """The finished target, and the seconds of all starts and phases; resumes from ``folder/target.pt``.

    Args:
        start: of another run, with layers of the plan's shape; what a run without a checkpoint begins with.
    """
    path = run.folder / "target.pt"
    state = load_checkpoint(path)
    first = state["phase"] if state else 0
    phases, shape = plan.phases, plan.shape()
    stream = TaskStream(domains, plan.shares, tokenizer, plan.seed, plan.answers_only)
    model = build_model(shape, phases[first].layers, plan.seed)
    if start and not state:
        model = grown(start, shape, phases[first].layers, plan.seed)
    spent = 0.0
    for index in range(first, len(phases)):
        phase = phases[index]
        if index > first:
            model, state = grown(model, shape, phase.layers, plan.seed), None
            run.log(f"target: grown to {phase.layers} layers")
        model.to(run.device).set_attn_implementation(NAME)
        # The loss is not compiled: it is a few multiplications of another number of positions in every step.
        run.compiled(model, summed_cross_entropy)
        rows = max(1, plan.batch_tokens // plan.window)
        step_tokens = rows * plan.window
        steps = max(1, phase.tokens // step_tokens)
        label, rates = f"target {phase.layers} layers", (plan.matrix_lr, plan.vector_lr)
        trainer = Trainer(label, model, rates, steps, step_tokens, path, index, state, run, spent=spent)
        before = sum(p.tokens for p in phases[:index])
        check_steps = max(1, plan.check_every // step_tokens)
        for step in trainer.steps():
            batch = stream.batch(index * 10_000_000 + step, rows, plan.window)
            parts = batch.split(max(1, plan.part_tokens // plan.window))
            learned = int(batch.learned.sum())
            losses = (_summed_loss(model, part, run) / learned for part in parts)
            done = before + step * step_tokens
            trainer.update(losses, schedule(done, plan.tokens, plan.decay_share, step, plan.warmup_steps))
            last = phase is phases[-1] and step + 1 == steps
            if last or (step + 1) % check_steps == 0:
                _report(plain(model), plan, domains, stream, tokenizer, run)
        spent = trainer.seconds
    return plain(model), spent


def plain(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same weights for use: without compiled code, with an attention that takes a cache."""
    copied = LlamaForCausalLM._from_config(copy.deepcopy(model.config), attn_implementation="sdpa")
    copied.load_state_dict(model.state_dict())
    return copied.to(model.device).eval()


def _summed_loss(model: LlamaForCausalLM, batch: Batch, run: Run) -> torch.Tensor:
    """Cross entropy in nats over the positions that count; only they pass the output head."""
    with run.autocast():
        hidden = model.model(batch.ids.to(run.device), use_cache=False).last_hidden_state
    learned = batch.learned.to(run.device)
    chosen = hidden[learned].to(run.dtype)
    return summed_cross_entropy(chosen, model.lm_head.weight, batch.targets.to(run.device)[learned])


@torch.no_grad()
def _report(
    model: LlamaForCausalLM,
    plan: Plan,
    domains: Mapping[str, Domain],
    stream: TaskStream,
    tokenizer: PreTrainedTokenizerFast,
    run: Run,
) -> None:
    """Held-out loss and right answers of every domain, to the log."""
    for name, domain in domains.items():
        batch = stream.held_out(held_out_tasks(domain, plan.loss_prompts, CHECK_DRAWS), plan.window)
        loss = _summed_loss(model, batch, run) / batch.learned.sum()
        run.log(f"held-out loss, {name}: {loss:.3f}")
    asked = {name: held_out_tasks(domain, plan.check_prompts, CHECK_DRAWS) for name, domain in domains.items()}
    run.log("right answers:\n" + table(check(model, tokenizer, domains, asked)))
