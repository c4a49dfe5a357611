"""Next-token training of one Llama model through phases of growing depth."""

from __future__ import annotations

import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo.training.corpus import Windows
from specdemo.training.loop import Run, Trainer, load_checkpoint, schedule
from specdemo.training.recipe import Phase, Recipe, Shape


def pretrain(
    name: str, shape: Shape, phases: tuple[Phase, ...], windows: Windows, recipe: Recipe, run: Run
) -> LlamaForCausalLM:
    """Train through all phases; returns the model of the last. Resumes from ``folder/name.pt``."""
    path = run.folder / f"{name}.pt"
    state = load_checkpoint(path)
    first = state["phase"] if state else 0
    model = build_model(shape, phases[first].layers, recipe)
    total = sum(p.tokens for p in phases)
    for index in range(first, len(phases)):
        phase = phases[index]
        if index > first:
            model, state = grown(model, shape, phase.layers, recipe), None
            run.log(f"{name}: grown to {phase.layers} layers")
        model.to(run.device)
        loss_function = run.compiled(model, next_token_loss)
        rows = max(1, phase.batch_tokens // phase.context)
        step_tokens = rows * phase.context
        steps = max(1, phase.tokens // step_tokens)
        label, rates = f"{name} {phase.layers} layers", (recipe.matrix_lr, recipe.vector_lr)
        trainer = Trainer(label, model, rates, steps, step_tokens, path, index, state, run)
        before = sum(p.tokens for p in phases[:index])
        for step in trainer.steps():
            ids = windows.batch(index * 10_000_000 + step, rows, phase.context + 1).to(run.device)
            with run.autocast():
                loss = loss_function(model(ids[:, :-1], use_cache=False).logits, ids[:, 1:])
            done = before + step * step_tokens
            trainer.update([loss], schedule(done, total, recipe.decay_share, step, recipe.warmup_steps))
    return _uncompiled(model)


def build_model(shape: Shape, layers: int, recipe: Recipe) -> LlamaForCausalLM:
    """A freshly initialised Llama of the given shape, with tied embeddings."""
    torch.manual_seed(recipe.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=recipe.vocab_size,
            hidden_size=shape.hidden,
            num_hidden_layers=layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            intermediate_size=shape.intermediate,
            max_position_embeddings=recipe.context,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    )


def grown(model: LlamaForCausalLM, shape: Shape, layers: int, recipe: Recipe) -> LlamaForCausalLM:
    """A deeper model whose layers are the trained stack repeated (arXiv 2405.15319)."""
    deeper = build_model(shape, layers, recipe)
    depth = model.config.num_hidden_layers
    deeper.model.embed_tokens.load_state_dict(model.model.embed_tokens.state_dict())
    deeper.model.norm.load_state_dict(model.model.norm.state_dict())
    for index, layer in enumerate(deeper.model.layers):
        layer.load_state_dict(model.model.layers[index % depth].state_dict())
    return deeper


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in float32; logits (rows, length, vocabulary), targets (rows, length)."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def _uncompiled(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same weights without the compiled code of training, which fits only one length."""
    plain = LlamaForCausalLM(model.config)
    plain.load_state_dict(model.state_dict())
    return plain.to(model.device).eval()
