"""Next-token training of one Llama model through phases of growing depth, resumable at any step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo.training.corpus import Windows
from specdemo.training.recipe import Phase, Recipe, Shape

Log = Callable[[str], None]
REPORT_EVERY = 25  # steps


def build_model(shape: Shape, layers: int, recipe: Recipe) -> LlamaForCausalLM:
    """A freshly initialised Llama of the given shape, tied embeddings."""
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


class Optimizers:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms, one schedule for both."""

    def __init__(self, model: nn.Module, matrix_lr: float, vector_lr: float) -> None:
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n]
        chosen = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        self.parameters = list(model.parameters())
        self.members = [
            torch.optim.Muon(matrices, lr=matrix_lr, weight_decay=0.01, momentum=0.95),
            torch.optim.AdamW(rest, lr=vector_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self.base = (matrix_lr, vector_lr)

    def step(self, scale: float) -> None:
        """One update with both learning rates multiplied by ``scale``."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimizer, lr in zip(self.members, self.base, strict=True):
            optimizer.param_groups[0]["lr"] = lr * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict]:
        return [o.state_dict() for o in self.members]

    def load_state_dict(self, states: list[dict]) -> None:
        for optimizer, state in zip(self.members, states, strict=True):
            optimizer.load_state_dict(state)


def schedule(done: int, total: int, decay_share: float, step: int, warmup: int) -> float:
    """Warm up, hold, then fall linearly to zero over the last ``decay_share`` of the tokens."""
    fall = min(1.0, (total - done) / max(1.0, decay_share * total))
    return min(1.0, (step + 1) / warmup) * max(0.0, fall)


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in float32; logits (rows, length, vocabulary), targets (rows, length)."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def compiled(model: LlamaForCausalLM, loss: Callable) -> Callable:
    """Compile one layer's code for all layers, and the loss: on a CPU this triples training speed."""
    torch._dynamo.reset()
    # Layers differ by their index, so each is compiled once; beyond the default limit they would run eagerly.
    torch._dynamo.config.recompile_limit = 4 * model.config.num_hidden_layers
    for layer in model.model.layers:
        layer.compile()
    return torch.compile(loss)


@dataclass(frozen=True, slots=True)
class Run:
    """Where and how a training stage runs."""

    folder: Path
    device: torch.device
    compile: bool
    log: Log

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


class Progress:
    """Tells loss and speed every REPORT_EVERY steps, and at the last one."""

    def __init__(self, name: str, step: int, steps: int, step_tokens: int, log: Log) -> None:
        self._name, self._steps, self._step_tokens, self._log = name, steps, step_tokens, log
        self._losses: list[torch.Tensor] = []
        self._clock, self._from = time.monotonic(), step

    def add(self, step: int, loss: torch.Tensor) -> None:
        """One more step is done; the loss stays on its device until it is reported."""
        self._losses.append(loss.detach())
        if step % REPORT_EVERY and step != self._steps:
            return
        mean = torch.stack(self._losses).mean().item()
        speed = (step - self._from) * self._step_tokens / (time.monotonic() - self._clock)
        self._log(f"{self._name}: step {step}/{self._steps}, loss {mean:.3f}, {speed:,.0f} tokens/s")
        self._losses, self._clock, self._from = [], time.monotonic(), step


def save_checkpoint(path: Path, state: dict) -> None:
    """Write beside, then rename: a run killed while saving keeps its last whole checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(path)


def pretrain(
    name: str, shape: Shape, phases: tuple[Phase, ...], windows: Windows, recipe: Recipe, run: Run
) -> LlamaForCausalLM:
    """Train through all phases; returns the model of the last. Resumes from ``folder/name.pt``."""
    path = run.folder / f"{name}.pt"
    state = torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None
    index = state["phase"] if state else 0
    model = build_model(shape, phases[index].layers, recipe)
    if state:
        model.load_state_dict(state["model"])
    total = sum(p.tokens for p in phases)
    while True:
        phase = phases[index]
        model.to(run.device)
        before = sum(p.tokens for p in phases[:index])
        _train_phase(name, model, phase, index, before, total, state, path, windows, recipe, run)
        index += 1
        if index == len(phases):
            return model.eval()
        model = grown(model, shape, phases[index].layers, recipe)
        state = None
        run.log(f"{name}: grown to {phases[index].layers} layers")


def _train_phase(
    name: str,
    model: LlamaForCausalLM,
    phase: Phase,
    index: int,
    before: int,
    total: int,
    state: dict | None,
    path: Path,
    windows: Windows,
    recipe: Recipe,
    run: Run,
) -> None:
    optimizers = Optimizers(model, recipe.matrix_lr, recipe.vector_lr)
    if state:
        optimizers.load_state_dict(state["optimizers"])
    step = state["step"] if state else 0
    rows = max(1, recipe.batch_tokens // phase.context)
    steps = max(1, phase.tokens // (rows * phase.context))
    loss_function = compiled(model, next_token_loss) if run.compile else next_token_loss
    model.train()
    progress = Progress(f"{name} {phase.layers} layers", step, steps, rows * phase.context, run.log)
    while step < steps:
        ids = windows.batch(index * 10_000_000 + step, rows, phase.context + 1).to(run.device)
        with run.autocast():
            loss = loss_function(model(ids[:, :-1], use_cache=False).logits, ids[:, 1:])
        loss.backward()
        done = before + step * rows * phase.context
        optimizers.step(schedule(done, total, recipe.decay_share, step, recipe.warmup_steps))
        step += 1
        progress.add(step, loss)
        if step % recipe.checkpoint_every == 0 or step == steps:
            save_checkpoint(
                path,
                {
                    "phase": index,
                    "step": step,
                    "model": model.state_dict(),
                    "optimizers": optimizers.state_dict(),
                },
            )
