"""Trains a target on the task stream."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.training.loop import Phase, Run, Spent, load_checkpoint, train
from specdemo.training.models import build_model, grow, read_model, read_tokenizer
from specdemo.training.recipe import Target
from specdemo.training.start import start_copying
from specdemo.training.tasks.stream import TaskStream, task_mask

Trained = tuple[LlamaForCausalLM, PreTrainedTokenizerFast]
Batch = tuple[torch.Tensor, torch.Tensor]


def read_target(folder: Path, work: Path | None = None) -> Trained:
    """The finished target of a pair's folder, else the last checkpoint of a run in ``work`` that goes on.

    Raises:
        SystemExit: there is neither.
    """
    if (folder / "target" / "config.json").is_file():
        return read_model(folder / "target"), read_tokenizer(folder / "target")
    state = load_checkpoint(work / "target.pt") if work else None
    if work is None or state is None:
        raise SystemExit(f"{folder} holds no finished target; train one first, or give another folder.")
    part = Target.model_validate(state["recipe"]["target"])
    model = build_model(part, part.phases[state["phase"]].layers, part.vocabulary, part.context, 0)
    model.load_state_dict(state["model"])
    return model.eval(), read_tokenizer(work / "tokenizer")


def train_target(stream: TaskStream, run: Run, compiled: bool = False) -> tuple[LlamaForCausalLM, Spent]:
    """The finished target and what it took; goes on from ``folder/target.pt``.

    From two layers on it begins as an induction head. ``torch.compile`` makes it three times as fast on a CPU.
    """
    part, seed = run.recipe.target, run.recipe.seed
    rows, together = (max(1, tokens // part.window) for tokens in (part.batch_tokens, part.part_tokens))

    def read(phase: int, step: int) -> Batch:
        depth = part.phases[phase]
        return stream.without(depth.without).batch(phase * 10_000_000 + step, rows, part.window, depth.longest)

    def losses(model: LlamaForCausalLM, batch: Batch) -> Iterator[torch.Tensor]:
        for ids, weights in zip(*(tensor.split(together) for tensor in batch), strict=True):
            yield summed_loss(model, ids, weights, run) / float(batch[1].sum())

    def begin(phase: int, shallow: LlamaForCausalLM | None) -> LlamaForCausalLM:
        layers = part.phases[phase].layers
        model = build_model(part, layers, part.vocabulary, part.context, seed)
        if not shallow and layers > 1:
            start_copying(shallow := build_model(part, 2, part.vocabulary, part.context, seed))
        if shallow:
            grow(shallow, model)
        nn.Module.to(model, run.device)
        # On a CPU PyTorch's own attention is half as quick in bfloat16 as its parts.
        model.set_attn_implementation("eager")
        if compiled:
            for layer in model.model.layers:
                layer.self_attn.layer_idx = 0  # no cache is used; by the same index all share compiled code
                layer.compile()
        return model

    phases = [
        Phase(depth.tokens, rows * part.window, partial(begin, i), partial(read, i), losses)
        for i, depth in enumerate(part.phases)
    ]
    trained, spent = train("target", phases, part, run)
    # For use: without compiled code, with PyTorch's attention.
    plain = LlamaForCausalLM._from_config(copy.deepcopy(trained.config), attn_implementation="sdpa")
    plain.load_state_dict(trained.state_dict())
    nn.Module.to(plain, trained.device)
    return plain.eval(), spent


def summed_loss(model: LlamaForCausalLM, ids: torch.Tensor, weights: torch.Tensor, run: Run) -> torch.Tensor:
    """Weighed cross entropy in nats over the tokens (B, n) that are learned; only they pass the output layer."""
    # Chosen before anything is on a GPU, which would have to finish all it has begun.
    row, place = weights[:, 1:].nonzero(as_tuple=True)
    moved = (ids, ids[row, place + 1], weights[row, place + 1], row, place)
    ids, labels, weights, row, place = (tensor.to(run.device) for tensor in moved)
    with run.autocast():
        hidden = model.model(ids, attention_mask=task_mask(ids, run.dtype), use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[row, place])
    return functional.cross_entropy(logits.float(), labels, reduction="none") @ weights
